"""Algorithms of other libraries: one file a library, found by its entry point, imported only when
its name is asked for, and an example of how a package on the side adds an algorithm.
"""  # noqa: D205
