"""The CI gate: baselines, ``check``, ``verify`` and the pytest plugin."""
