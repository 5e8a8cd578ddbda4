"""The algorithms: one file a family, found by the registry."""
