"""``python -m esbench`` is the command line."""

from esbench.cli import main

if __name__ == "__main__":
    main()
