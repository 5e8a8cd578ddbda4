"""The batched forward passes of the policies."""
