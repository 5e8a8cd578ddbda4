"""Algorithms of other libraries, as a package on the side adds them: one file a library.

They are found by their entry points and imported when their names are asked for.
"""
