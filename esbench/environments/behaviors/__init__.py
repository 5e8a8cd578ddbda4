"""Behaviour characterisations: what novelty search compares episodes by; one file each."""
