"""Behavior characterizations: what novelty search compares episodes by; one file each."""
