"""The typed description of one trial: everything its results depend on, and nothing else.

Workers, slots and folders are not part of it, because they change no result. A grid is validated
into these objects once. The trainer and the workers use them as they are; a stored ``trial.json``
holds them as JSON, and the registries say which class its settings have.
"""

from __future__ import annotations

import json
import math
from abc import ABC
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias, final

from pydantic import Field, SerializeAsAny

from esbench.agents.names import trainer_settings
from esbench.algorithms.settings import TrainerSettings
from esbench.core.json_text import Json, digest_of
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import (
    Count,
    CountOrZero,
    EpisodeCount,
    Settings,
    Table,
    settings_named_by,
)
from esbench.grids.environment_spec import EnvironmentSpec
from esbench.grids.policy_spec import PolicySpec

Seed: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
DEFAULT_LABEL: Final = "default"


@final
class AlgorithmSpec(Settings):
    """A registered algorithm or agent, or "package.file:Class", and its settings."""

    name: str
    settings: Annotated[
        SerializeAsAny[TrainerSettings], settings_named_by("algorithm", "name", trainer_settings)
    ]

    @property
    def defaults(self) -> tuple[str, ...]:
        """The settings that were not given, so that their values are those of the code."""
        given = self.settings.model_fields_set
        return tuple(name for name in type(self.settings).model_fields if name not in given)


@final
class BudgetSpec(Settings):
    """When training ends: at the first of these limits.

    Attributes:
        env_steps: environment steps of the population; a generation is always finished.
        generations: maximum number of generations.
        target_return: stop once the mean return of the unperturbed policy over the last
            ``target_window`` generations reaches it.
        target_window: generations in that mean.
    """

    env_steps: Count
    generations: Count | None = None
    target_return: float | None = None
    target_window: Count = 5


@final
class ValidationSpec(Settings):
    """Selection of the final policy of a search among several centers, by validation episodes.

    Attributes:
        start: training steps before the first candidate.
        interval: training steps from one candidate to the next.
        episodes: validation episodes of a candidate; their steps are training steps.
    """

    start: CountOrZero
    interval: Count
    episodes: EpisodeCount = 32


@final
class EvaluationSpec(Settings):
    """How the policy is scored.

    Attributes:
        episodes: held-out episodes of the final score.
        center: also evaluate the unperturbed policy in every generation, for its rank.
        validation: how the final policy is selected; by default it is the last center. Agents
            ignore it.
    """

    episodes: EpisodeCount = 100
    center: bool = True
    validation: Annotated[
        ValidationSpec | None, Field(exclude_if=lambda validation: validation is None)
    ] = None


@final
class StartSpec(Settings):
    """The policy from which a trial starts: a checkpoint of another trial.

    Attributes:
        trial: its folder.
        generation: of the checkpoint.
        digest: of that generation, in the rows of the other trial.
    """

    trial: str
    generation: Count
    digest: str


@final
class TrialSpec(Settings):
    """One trial: algorithm, environment, policy, budget, scoring and seed.

    An agent makes its own policy, so it has none here.
    """

    algorithm: AlgorithmSpec
    environment: EnvironmentSpec
    policy: PolicySpec | None
    budget: BudgetSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    seed: Seed
    init_from: StartSpec | None = None

    @property
    def is_agent(self) -> bool:
        """Whether an agent is trained, not a search."""
        return self.policy is None

    def as_json(self) -> Json:
        """The specification as it is stored in ``trial.json``."""
        return self.model_dump(mode="json", exclude=None if self.init_from else {"init_from"})

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the specification."""
        return digest_of(self.as_json())


def differences(stored: Json, wanted: Json) -> list[str]:
    """One phrase per setting in which two specifications differ."""
    before, after = flatten(stored), flatten(wanted)
    phrases = []
    for key in dict.fromkeys([*before, *after]):
        if key not in before:
            phrases.append(f"{key} = {json.dumps(after[key])} is new")
        elif key not in after:
            phrases.append(f"{key} (was {json.dumps(before[key])}) is gone")
        elif before[key] != after[key]:
            phrases.append(f"{key} was {json.dumps(before[key])}, is now {json.dumps(after[key])}")
    return phrases


def extends(wanted: Json, stored: Json) -> bool:
    """Whether two specifications differ only in that the wanted one has a larger budget.

    A search does not look ahead to its end, so training under the larger budget begins with
    exactly the generations of the smaller one. An agent may: its schedules span the whole budget.
    """
    more, less = wanted["budget"], stored["budget"]
    limits = {key: more[key] for key in ("env_steps", "generations")}
    return (
        more != less
        and wanted == {**stored, "budget": {**less, **limits}}
        and more["env_steps"] >= less["env_steps"]
        and (more["generations"] or math.inf) >= (less["generations"] or math.inf)
    )


def flatten(table: Table, prefix: str = "") -> Table:
    """A nested table as one level of dotted keys; empty tables stay as values."""
    flat: Table = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def cell_name(algorithm: str, policy: str) -> str:
    """Algorithm and policy in words, without the default policy."""
    return algorithm if policy == DEFAULT_LABEL else f"{algorithm} {policy}"


@dataclass(frozen=True)
class NamedCell(ABC):
    """One algorithm and policy in one environment, by their labels."""

    environment: str
    algorithm: str
    policy: str

    @property
    def name(self) -> str:
        """Algorithm and policy in words, without the default policy."""
        return cell_name(self.algorithm, self.policy)

    @property
    def title(self) -> str:
        """The name and the environment."""
        return f"{self.name} on {self.environment}"
