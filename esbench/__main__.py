"""``esbench`` and ``python -m esbench`` are the command line."""

import sys


def program() -> None:
    """Run the command line; Ctrl-C while it is loaded is reported as later on."""
    try:
        from esbench.cli import program as run
    except KeyboardInterrupt:
        sys.stderr.write("esbench: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":  # worker processes import this module too
    if not sys.flags.safe_path:  # a file of the current folder may have the name of a module
        del sys.path[0]
    program()
