"""Prints the results of the commands, one module per subject."""
