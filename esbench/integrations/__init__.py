"""Adapters of other libraries, one file per library.

They are found through entry points and imported when their names are requested.
"""
