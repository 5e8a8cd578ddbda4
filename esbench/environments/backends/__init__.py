"""Vector-environment backends: one file each, found by the registry."""
