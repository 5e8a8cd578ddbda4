"""Stored specifications with the defaults of settings that came after them.

The default of a new setting is what was done before there was one. So a trial that was begun
without it goes on, and a baseline holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from esbench.algorithms.base import ALGORITHMS
from esbench.errors import UsageError
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.base import POLICIES
from esbench.registry import Registry
from esbench.settings import Settings, Table, parse

_Fill: TypeAlias = Callable[[Registry[Any], str, Table], Table]


def completed(spec: TrialSpec) -> TrialSpec:
    """Return a stored specification with the defaults of settings that came after it.

    Raises:
        UsageError: it has a setting that is gone, or a value that is no longer allowed.
    """
    return _filled(spec, _all)


def completed_if_known(spec: TrialSpec) -> TrialSpec:
    """Return a stored specification completed as far as this version understands it.

    To be compared: a setting that is gone stays, and is a difference like others.
    """
    return _filled(spec, _known)


def _filled(spec: TrialSpec, fill: _Fill) -> TrialSpec:
    algorithm, policy = spec.algorithm, spec.policy
    ours = fill(ALGORITHMS, algorithm.name, algorithm.settings)
    theirs = fill(POLICIES, policy.template, policy.settings)
    update = {
        "algorithm": algorithm.model_copy(update={"settings": ours}),
        "policy": policy.model_copy(update={"settings": theirs}),
    }
    return spec.model_copy(update=update)


def _all(registry: Registry[Any], name: str, settings: Table) -> Table:
    """Return settings with the defaults of those that they lack; all of them must be valid."""
    if name not in registry.names():
        return settings  # of a plugin that is not here
    model: type[Settings] = registry.get(name).Settings
    return parse(model, settings, f"{registry.kind} {name}").model_dump(mode="json")


def _known(registry: Registry[Any], name: str, settings: Table) -> Table:
    """Return settings with those defaults as far as the others are valid."""
    try:
        model: type[Settings] = registry.get(name).Settings
        known = {key: value for key, value in settings.items() if key in model.model_fields}
        return _all(registry, name, known) | settings
    except UsageError:  # a value that is no longer allowed, or a plugin that is not here
        return settings
