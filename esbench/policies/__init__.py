"""The policy templates: one file each, found by the registry."""
