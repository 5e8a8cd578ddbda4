"""A label such as ``[algorithms.wide] algorithm = "openai_es"`` changes only what its table names.

If the grid has a table ``[algorithms.openai_es]`` too, the label starts from that one, and in an
environment from that environment's table for ``openai_es``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

from esbench.core.errors import UsageError
from esbench.core.settings import Table, TrainerSettings, untupled
from esbench.grids.environment_files import merged
from esbench.grids.trial_spec import is_agent, trainer_settings

# Keys of an algorithm's table that are no settings; ``policy`` may be a setting of an agent.
RESERVED: Final = ("algorithm", "policy", "seeds", "environments")


def displacing(model: type[TrainerSettings], below: Table, above: Table) -> Table:
    """``above`` merged on ``below``, without alternatives of the settings that ``above`` has."""
    gone = {
        name
        for group in model.alternatives
        if any(key in above for key in group)
        for name in group
        if name not in above
    }
    return merged({key: value for key, value in below.items() if key not in gone}, above)


def policy_on(below: Table, above: Table) -> Table:
    """``above`` if it names a template, else its settings merged on ``below``."""
    return above if "template" in above else merged(below, above)


def reserved_keys(algorithm: str) -> set[str]:
    """The keys of an algorithm's table that are no settings."""
    return {*RESERVED} - ({"policy"} if is_agent(algorithm) else set())


def base_of(label: str, algorithms: Mapping[str, Any]) -> str | None:
    """The label whose table another label starts from: the name of its algorithm, if it is one."""
    table = algorithms[label]
    name = table.get("algorithm", label) if isinstance(table, dict) else label
    if name == label or not isinstance(name, str) or not isinstance(algorithms.get(name), dict):
        return None
    return name if algorithms[name].get("algorithm", name) == name else None


def on_bases(
    algorithms: Mapping[str, Table], environment: Mapping[str, Table], labels: Collection[str]
) -> tuple[dict[str, Table], dict[str, Table]]:
    """The tables ``algorithms`` and ``environment`` of a grid, those of ``labels`` on their bases.

    What is wrong in them stays as it is and is reported later.
    """
    found, changed = dict(algorithms), dict(environment)
    for label in labels:
        if (base := base_of(label, algorithms)) is None:
            continue
        with contextlib.suppress(UsageError):
            own, reserved = algorithms[label], reserved_keys(base)
            model = trainer_settings(base)
            found[label] = _on(model, algorithms[base], own)
            settings = untupled(model, {k: v for k, v in own.items() if k not in reserved})
            for name, changes in changed.items():
                tables = changes.get("algorithms")
                if isinstance(tables, dict) and isinstance(tables.get(base), dict):
                    # The label's own table is stronger than what the base has here.
                    here = displacing(model, tables[base], settings)
                    here = displacing(model, here, tables.get(label, {}))
                    changed[name] = {**changes, "algorithms": {**tables, label: here}}
    return found, changed


def _on(model: type[TrainerSettings], below: Table, above: Table) -> Table:
    """The table of a label on that of its base."""
    found = displacing(model, below, above)
    lower, upper = below.get("policy"), above.get("policy")
    if isinstance(lower, dict) and isinstance(upper, dict):
        found["policy"] = policy_on(lower, upper)
    return found
