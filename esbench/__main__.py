"""``esbench`` and ``python -m esbench`` are the command line."""

import os
import sys

COMPLETES = "_ESBENCH_COMPLETE"  # set by the scripts of --install-completion


def program() -> None:
    """Run the command line; Ctrl-C while it is loaded is reported as later on."""
    try:
        if COMPLETES in os.environ:
            _complete()
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


def _complete() -> None:
    """Answer the Tab key and exit; a shell that only typer knows is left to it.

    The user is typing: there is no message, whatever goes wrong.
    """
    from esbench.core import shell_completion

    if not shell_completion.is_asked(os.environ[COMPLETES]):
        return
    try:
        names = shell_completion.kept_names()
        if names is None:
            from esbench.cli.completion import keep

            names = keep()
        code = shell_completion.answer(names, os.environ[COMPLETES])
    except (Exception, KeyboardInterrupt):
        code = 1
    sys.exit(code)


if __name__ == "__main__":  # worker processes import this module too
    if not sys.flags.safe_path:  # a file of the current folder may have the name of a module
        del sys.path[0]
    program()
