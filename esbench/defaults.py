"""Stored specifications with the defaults of settings that came after them.

The default of a new setting is what was done before there was one. So a trial that was begun
without it goes on, and a baseline holds.
"""

from __future__ import annotations

from esbench.errors import UsageError
from esbench.registry import ALGORITHMS, POLICIES
from esbench.settings import parse
from esbench.spec import AlgorithmSpec, PolicySpec, TrialSpec


def completed(spec: TrialSpec) -> TrialSpec:
    """Return a stored specification with the defaults of settings that came after it.

    Raises:
        UsageError: it has a setting that is gone, or a value that is no longer allowed.
    """
    algorithm, policy = spec.algorithm, spec.policy
    if algorithm.name in ALGORITHMS.names():
        model = ALGORITHMS.get(algorithm.name).Settings
        typed = parse(model, algorithm.settings, f"algorithm {algorithm.name}")
        algorithm = AlgorithmSpec(name=algorithm.name, settings=typed.model_dump(mode="json"))
    if policy.template in POLICIES.names():
        template = POLICIES.get(policy.template).Settings
        own = parse(template, policy.settings, f"policy {policy.template}")
        policy = PolicySpec(template=policy.template, settings=own.model_dump(mode="json"))
    return spec.model_copy(update={"algorithm": algorithm, "policy": policy})


def completed_if_known(spec: TrialSpec) -> TrialSpec:
    """Return a stored specification completed, or as it is if it has a setting that is gone.

    To be compared: the setting that is gone is a difference like others.
    """
    try:
        return completed(spec)
    except UsageError:
        return spec
