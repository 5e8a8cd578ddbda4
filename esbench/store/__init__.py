"""Trials on disk: the only code that reads or writes results."""
