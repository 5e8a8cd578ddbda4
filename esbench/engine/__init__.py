"""Playing episodes: jobs, players, workers and the worker pool."""
