"""Tables: typed rows from stored trials, rendered in several formats."""
