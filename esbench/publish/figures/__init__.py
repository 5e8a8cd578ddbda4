"""Figures: learning curves, the ECDF of targets and performance profiles."""
