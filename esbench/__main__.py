"""``esbench`` and ``python -m esbench`` are the command line."""

import sys


def program() -> None:
    """Run the command line; Ctrl-C while it is loaded is reported as later on."""
    try:
        from esbench.cli import program as run
    except KeyboardInterrupt:
        sys.stderr.write("esbench: interrupted\n")
        sys.exit(130)
    except ModuleNotFoundError as error:  # with --no-deps, for the pytest plugin alone
        if not error.name or error.name.partition(".")[0] == "esbench":
            raise
        sys.stderr.write(
            f"esbench: {error.name} is not installed; expected: pip install esbench-rl\n"
        )
        sys.exit(2)
    run()


if __name__ == "__main__":  # worker processes import this module too
    if not sys.flags.safe_path:  # a file of the current folder may have the name of a module
        del sys.path[0]
    program()
