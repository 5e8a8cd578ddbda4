"""Results of stored trials, and their statistics."""
