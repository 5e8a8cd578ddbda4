"""The typed, frozen description of one trial: everything its results depend on, and nothing else.

Workers, slots and folders are not part of it, because they change no result. Its hash names it.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from esbench.settings import Settings, Table

Count = Annotated[int, Field(ge=1)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
DEFAULT_LABEL: Final = "default"
EpisodeSeeds: TypeAlias = Literal["fresh", "pair", "shared"]


class EnvironmentSpec(Settings):
    """A Gymnasium environment and how episodes are played in training.

    Attributes:
        id: its Gymnasium name; "package:Name-v0" imports the package first.
        kwargs: arguments of ``gymnasium.make``; part of the environment, scored with them too.
        backend: which vector environment plays it; "auto" is the fastest that serves it. They are
            bit-identical; the one that ran is in ``trial.json``.
        episodes_per_member: a member's return is the mean over so many episodes.
        max_episode_steps: training episodes are cut after so many steps; "adaptive" cuts at twice
            the mean length of the generation before; none by default.
        action_noise: deviation of Gaussian noise on continuous actions.
        reward_shift: subtracted from every reward (the alive bonus, in ARS).
        episode_seeds: fresh (each member has its own), pair (a mirrored pair shares them; without
            pairs as fresh) or shared (the whole generation does): common random numbers.
        behavior: what novelty search compares episodes by; other algorithms do not look at it.
        behavior_settings: its settings.

    The last six act in training only; scores come from the unmodified environment.
    """

    id: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    backend: str = "auto"
    episodes_per_member: Count = 1
    max_episode_steps: Count | Literal["adaptive"] | None = None
    action_noise: Annotated[float, Field(ge=0)] = 0.0
    reward_shift: float = 0.0
    episode_seeds: EpisodeSeeds = "fresh"
    behavior: str = "final_observation"
    behavior_settings: dict[str, Any] = Field(default_factory=dict)


class AlgorithmSpec(Settings):
    """A registered algorithm with all its settings, defaults filled in."""

    name: str
    settings: Table


class PolicySpec(Settings):
    """A registered policy template with all its settings, defaults filled in."""

    template: str
    settings: Table


class BudgetSpec(Settings):
    """When training ends: at the first of these.

    Attributes:
        env_steps: environment steps taken by the population; a generation is always finished.
        generations: at most so many.
        target_return: stop once the mean return of the unperturbed policy over the last
            ``target_window`` generations reaches it.
        target_window: generations in that mean.
    """

    env_steps: Count
    generations: Count | None = None
    target_return: float | None = None
    target_window: Count = 5


class EvaluationSpec(Settings):
    """How the policy is scored.

    Attributes:
        episodes: held-out episodes of the final score.
        center: evaluate the unperturbed policy in every generation too, for its rank.
    """

    episodes: Count = 100
    center: bool = True


class TrialSpec(Settings):
    """One cell of a grid: algorithm, environment, policy, budget, scoring and seed."""

    algorithm: AlgorithmSpec
    environment: EnvironmentSpec
    policy: PolicySpec
    budget: BudgetSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    seed: Seed

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the specification."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def differences(stored: TrialSpec, wanted: TrialSpec) -> list[str]:
    """Return a phrase for each setting in which two specifications differ."""
    before, after = flatten(stored.model_dump(mode="json")), flatten(wanted.model_dump(mode="json"))
    missing = object()
    phrases = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key, missing), after.get(key, missing)
        if old is missing:
            phrases.append(f"{key} = {json.dumps(new)} is new")
        elif new is missing:
            phrases.append(f"{key} (was {json.dumps(old)}) is gone")
        elif old != new:
            phrases.append(f"{key} was {json.dumps(old)}, is now {json.dumps(new)}")
    return phrases


def extends(wanted: TrialSpec, stored: TrialSpec) -> bool:
    """Return whether a specification is another one with a larger budget, and nothing else.

    Training does not look ahead to its end, so what it does under the larger budget begins with
    all that it did under the smaller one.
    """
    if wanted.budget == stored.budget or wanted != stored.model_copy(
        update={"budget": wanted.budget}
    ):
        return False
    more, less = wanted.budget, stored.budget
    limits = {"env_steps": more.env_steps, "generations": more.generations}
    return (
        more == less.model_copy(update=limits)
        and more.env_steps >= less.env_steps
        and (more.generations or math.inf) >= (less.generations or math.inf)
    )


def flatten(table: Table, prefix: str = "") -> Table:
    """Return a nested table as one level of dotted keys; empty tables stay as values."""
    flat: Table = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat
