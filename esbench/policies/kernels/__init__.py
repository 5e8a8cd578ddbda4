"""Batched forward passes."""
