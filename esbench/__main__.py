"""``python -m esbench`` is the command line."""

if __name__ == "__main__":  # worker processes import this module too
    from esbench.cli import program

    program()
