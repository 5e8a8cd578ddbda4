"""The typed description of one trial: everything its results depend on, and nothing else.

Workers, slots and folders are not part of it, because they change no result. A grid is validated
into these objects once. The trainer and the workers use them as they are; a stored ``trial.json``
holds them as JSON, and the registries say which class its settings have.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias, final

from pydantic import AfterValidator, Field, SerializeAsAny

from esbench.agents.agent import AGENTS, agent_class, agent_settings
from esbench.algorithms.base import ALGORITHMS, algorithm_class
from esbench.core.arguments import Arguments
from esbench.core.errors import UsageError, suggestion, unknown
from esbench.core.json_text import Json, digest_of
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import (
    Count,
    CountOrZero,
    EpisodeCount,
    Settings,
    Table,
    TrainerSettings,
    parse,
    settings_named_by,
)
from esbench.environments.behaviors.behavior import BehaviorSettings, behavior_class
from esbench.environments.make_environment import Wrappers
from esbench.policies.policy import POLICIES, PolicySettings


def trainer_names() -> list[str]:
    """The names of all algorithms and agents, sorted."""
    return sorted({*ALGORITHMS.names(), *AGENTS.names()})


def is_agent(name: str) -> bool:
    """Whether a name is that of an agent, also of a user's "package.file:Class".

    Raises:
        UsageError: it cannot be imported, or an algorithm has the same name.
    """
    if ":" in name:
        return agent_class(name) is not None
    if (known := name in AGENTS.names()) and name in ALGORITHMS.names():
        raise UsageError(f"{name!r} is registered as an algorithm and as an agent; expected once")
    return known


def trainer_settings(name: str) -> type[TrainerSettings]:
    """The class of the settings of an algorithm or an agent.

    Raises:
        UsageError: there is none, or it cannot be imported.
    """
    if ":" not in name and name not in trainer_names():
        raise unknown("algorithm", name, trainer_names())
    return agent_settings(agent_class(name)) if is_agent(name) else algorithm_class(name).Settings


@final
class PolicySpec(Settings):
    """A registered policy template and its settings."""

    template: str
    settings: Annotated[
        SerializeAsAny[PolicySettings],
        settings_named_by("policy", "template", lambda name: POLICIES.get(name).Settings),
    ]


def policy_spec(table: Table, source: str, prefix: str) -> PolicySpec:
    """The policy of a table such as ``{"template": "mlp", "hidden": [8]}``.

    ``template = "package.file:Class"`` names a module of the user's own. Keys that are not settings
    of every policy are arguments of its constructor.
    """
    values = dict(table)
    template = values.pop("template", "mlp")
    if isinstance(template, str) and ":" in template:
        known = POLICIES.get("module").Settings.model_fields
        own = {key: values.pop(key) for key in list(values) if key not in known}
        arguments = {**values.pop("arguments", {}), **own}
        values = {"factory": template, **values, "arguments": arguments}
        template = "module"
    if not isinstance(template, str) or template not in POLICIES.names():
        near = suggestion(str(template), POLICIES.names())
        raise UsageError(
            f"{source}: unknown policy template {template!r} ({prefix}.template); {near}"
        )
    typed = parse(POLICIES.get(template).Settings, values, source, prefix)
    return PolicySpec(template=template, settings=typed)


EpisodeSeeds: TypeAlias = Literal["fresh", "pair", "shared"]


def _rising(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    starts = [start for start, _ in pairs]
    if starts[:1] != [0] or any(second <= first for first, second in pairwise(starts)):
        raise ValueError("expected pairs such as [[0, 250], [900_000, 1_000]], rising from 0")
    return pairs


EpisodeLimit: TypeAlias = (
    Count
    | Literal["adaptive"]
    | Annotated[tuple[tuple[CountOrZero, Count], ...], AfterValidator(_rising)]
    | None
)
"""A limit of training episodes; pairs are training steps and the limit from there on [steps]."""


def _low_and_high(clip: tuple[float, float]) -> tuple[float, float]:
    if clip[0] >= clip[1]:
        raise ValueError("expected the lowest and the highest reward, such as [-1, 1]")
    return clip


RewardClip: TypeAlias = Annotated[tuple[float, float], AfterValidator(_low_and_high)] | None
"""The lowest and the highest reward in training [reward]."""


def _known_behavior(name: str) -> str:
    behavior_class(name)
    return name


class EnvironmentSettings(Settings, ABC):
    """Settings of a Gymnasium environment and of its training episodes.

    Attributes:
        id: Gymnasium name; "package:Name-v0" imports the package first.
        kwargs: arguments of ``gymnasium.make``. They also apply to scoring.
        wrappers: applied to the environment, the first one innermost; in scoring too. Only the
            Gymnasium loop plays a wrapped environment.
        backend: vector environment; "auto" is the fastest one that supports the environment. All
            backends give the same bits. ``trial.json`` records the one that was used.
        episodes_per_member: a member's return is the mean over this many episodes.
        max_episode_steps: training episodes are cut after this many steps; "adaptive" is twice the
            mean length of the previous generation. Pairs (training steps, limit) are a schedule:
            from that many training steps on, the limit applies. The default is no cut. A number
            becomes an argument in ``kwargs`` if the environment has no time limit of its own.
        action_noise: standard deviation of Gaussian noise on continuous actions.
        reward_clip: the lowest and the highest reward; others become the nearest of the two.
        reward_shift: subtracted from every reward (the alive bonus, in ARS), after clipping.
        episode_seeds: "fresh" (every member has its own), "pair" (a mirrored pair shares them;
            without pairs the same as fresh) or "shared" (the whole generation shares them).
        behavior: behavior characterization of novelty search; other algorithms ignore it.
        behavior_settings: settings of the behavior characterization.

    All but the first four apply to training only: scores come from the unmodified environment.
    """

    id: str
    kwargs: Arguments = Field(default_factory=dict)
    wrappers: Wrappers = ()
    backend: str = "auto"
    episodes_per_member: EpisodeCount = 1
    max_episode_steps: EpisodeLimit = None
    action_noise: Annotated[float, Field(ge=0)] = 0.0
    reward_clip: Annotated[RewardClip, Field(exclude_if=lambda clip: clip is None)] = None
    reward_shift: float = 0.0
    episode_seeds: EpisodeSeeds = "fresh"
    behavior: Annotated[str, AfterValidator(_known_behavior)] = "final_observation"
    behavior_settings: Annotated[
        SerializeAsAny[BehaviorSettings],
        settings_named_by("behavior", "behavior", lambda name: behavior_class(name).Settings),
    ] = Field(default_factory=dict, validate_default=True)


@final
class EnvironmentSpec(EnvironmentSettings):
    """A Gymnasium environment and how training episodes are played."""


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
    evaluation: EvaluationSpec = Field(default_factory=EvaluationSpec)
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
        old, new = json.dumps(before.get(key)), json.dumps(after.get(key))
        if key not in before:
            phrases.append(f"{key} = {new} is new")
        elif key not in after:
            phrases.append(f"{key} (was {old}) is gone")
        elif before[key] != after[key]:
            phrases.append(f"{key} was {old}, is now {new}")
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


LONGEST: Final = 40  # characters of a value in a label; a longer one is named by its hash


def combinations(table: Table, place: str) -> Iterator[tuple[Table, list[str]]]:
    """The table with one value for each of its lists, and the keys with several values.

    A list with one value is that value, so a nested list gives a setting that is itself a list.
    UsageError for an empty list or a repeated value; ``place`` is the table's name for messages.
    """
    lists = {key: value for key, value in table.items() if isinstance(value, list)}
    for key, values in lists.items():
        if not values:
            raise UsageError(f"{place}.{key} = []: expected one or more values")
        for number, value in enumerate(values):
            if value in values[:number]:
                raise UsageError(f"{place}.{key}: {value!r} is given twice; expected once")
    several = [key for key, values in lists.items() if len(values) > 1]
    for chosen in itertools.product(*lists.values()):
        yield {**table, **dict(zip(lists, chosen, strict=True))}, several


def swept_label(label: str, settings: Json, keys: Sequence[str]) -> str:
    """The label of one algorithm of a sweep, such as "openai_es sigma=0.1 shaping=raw"."""
    return " ".join([label, *(f"{key}={value_text(settings[key])}" for key in keys)])


def swept_keys(label: str, settings: Json) -> list[str]:
    """The settings that ``swept_label`` put into a label."""
    words = label.split(" ")
    return [key for key, value in settings.items() if f"{key}={value_text(value)}" in words]


def without_setting(label: str, key: str, value: Any) -> str:
    """A label of ``swept_label`` without one of its settings: what its algorithms share."""
    return " ".join(word for word in label.split(" ") if word != f"{key}={value_text(value)}")


def value_text(value: Any) -> str:
    """A value of a setting, without spaces: 0.01, 1e-05, true, centered or {"momentum":0.5}."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.12g}"
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if len(text) > LONGEST or " " in text:
        return f"#{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    return text
