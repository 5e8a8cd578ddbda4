"""The specifications in files of trials, baselines and leaderboards, which others may have written.

Their numbers have limits that no training comes near, since a file costs nothing to write and its
training may never end or fill the memory. A grid has no such limits: who runs it has chosen it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.settings import parse
from esbench.core.user_code import require_trusted
from esbench.grids.trial_spec import TrialSpec, flatten

MOST_STEPS: Final = 10**12
MOST_IN_ENVIRONMENT: Final = 10**6  # of any number, such as a time limit or a stack of frames
MOST_TEXT: Final = 10**5  # characters of an environment, such as a map


def stored_spec(content: Json, source: str, trusted: bool = False) -> TrialSpec:
    """The typed specification that a file holds; ``source`` begins the messages.

    Raises:
        UsageError: it names code that is not trusted, this version does not understand it, or a
            number exceeds its limit.
    """
    require_trusted([content], source, trusted)
    spec = parse(TrialSpec, content, source, "spec")
    environment = {k: v for k, v in content["environment"].items() if k != "max_episode_steps"}
    limits = spec.environment.max_episode_steps
    last = limits[-1] if isinstance(limits, tuple) else (0, limits)
    if (size := len(json.dumps(environment))) > MOST_TEXT:
        raise UsageError(
            f"{source}: spec.environment: {size} characters; expected at most {MOST_TEXT}"
        )
    for key, value, most in (
        ("budget.env_steps", spec.budget.env_steps, MOST_STEPS),
        ("environment.max_episode_steps", last[1], MOST_IN_ENVIRONMENT),
        *(
            (f"environment.{key}", own, MOST_IN_ENVIRONMENT)
            for key, own in flatten(environment).items()
            if "seed" not in key
        ),
    ):
        for number in _integers(value):
            if abs(number) > most:
                raise UsageError(
                    f"{source}: spec.{key} = {number}: expected at most {most} in a file that is "
                    "trained or played again"
                )
    return spec


def target_reason(target: float) -> str:
    """How the reason of a stop at the target of a budget begins."""
    return f"the center's return reached {target:g} ("


def at_target(spec: Json, stopped: str | None) -> bool:
    """Whether training has stopped because it reached the target of its budget."""
    target = spec["budget"]["target_return"]
    return target is not None and (stopped or "").startswith(target_reason(target))


def require_possible(
    spec: TrialSpec, generations: float, env_steps: float, stopped: str | None, source: str
) -> None:
    """Raises UsageError if a search cannot have had these generations and steps.

    It ends at its budget, and every member of a generation and candidate plays its episodes.
    """
    settings, own = spec.algorithm.settings, spec.environment.episodes_per_member
    most = own * (getattr(settings, "population_size_max", None) or MOST_STEPS)
    grown = max(getattr(settings, name, 0) for name in ("num_interactions", "min_episodes"))
    least = max(own * (getattr(settings, "population_size", None) or 1), min(grown, most))
    least *= int(generations)
    if (validation := spec.evaluation.validation) and validation.start < env_steps:
        least = max(least, validation.episodes)
    if not stopped and generations != spec.budget.generations:
        least = max(least, spec.budget.env_steps)
    if env_steps < least and not spec.is_agent:
        raise UsageError(
            f"{source}: {env_steps:.0f} steps in {generations:.0f} generations; expected at least "
            f"{least}, by its population and its budget"
        )


def _integers(value: Any) -> Iterator[int]:
    """The integers in a value and in the lists and tables that it holds; seeds are left out."""
    if isinstance(value, dict):
        value = [own for key, own in value.items() if "seed" not in key]
    if isinstance(value, int):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _integers(each)
