"""Stored specifications with the defaults of settings that came after them.

The default of a new setting is what was done before there was one. So a trial that was begun
without it goes on, and a baseline holds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from esbench.errors import UsageError
from esbench.registry import ALGORITHMS, POLICIES
from esbench.settings import Settings, Table, parse
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
    """Return a stored specification completed as far as this version understands it.

    To be compared: a setting that is gone stays, and is a difference like others.
    """
    algorithm, policy = spec.algorithm, spec.policy
    if algorithm.name in ALGORITHMS.names():
        settings = _filled(partial(ALGORITHMS.get, algorithm.name), algorithm.settings)
        algorithm = AlgorithmSpec(name=algorithm.name, settings=settings)
    if policy.template in POLICIES.names():
        settings = _filled(partial(POLICIES.get, policy.template), policy.settings)
        policy = PolicySpec(template=policy.template, settings=settings)
    return spec.model_copy(update={"algorithm": algorithm, "policy": policy})


def _filled(find: Callable[[], type[Any]], settings: Table) -> Table:
    """Return stored settings with the defaults of those they lack, if the others are valid."""
    try:
        model: type[Settings] = find().Settings
        known = {key: value for key, value in settings.items() if key in model.model_fields}
        return parse(model, known, "").model_dump(mode="json") | settings
    except UsageError:  # a value is no longer allowed, or a plugin cannot be imported
        return settings
