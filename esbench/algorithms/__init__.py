"""The algorithms: one file per family, found by the registry."""
