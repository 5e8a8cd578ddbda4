"""The named grids, as data."""
