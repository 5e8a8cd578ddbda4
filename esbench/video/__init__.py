"""Films of a stored policy."""
