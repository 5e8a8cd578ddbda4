"""Searching for the settings of an algorithm: spaces, the pruning rule, and the trials of a study.

Optuna chooses the values; it is imported in ``esbench.integrations.optuna_study`` only.
"""
