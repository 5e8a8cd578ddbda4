"""Running: one trial, and the trials of a grid, side by side and on the nodes of a cluster."""
