"""The typed description of an environment and of its training episodes."""

from __future__ import annotations

from abc import ABC
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, final

from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from esbench.core.settings import Count, CountOrZero, EpisodeCount, Settings, settings_named_by
from esbench.environments.behaviors.behavior import BehaviorSettings, behavior_class
from esbench.environments.make_environment import Wrappers

EpisodeSeeds: TypeAlias = Literal["fresh", "pair", "shared"]


def _rising(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    starts = [start for start, _ in pairs]
    if not starts:
        raise ValueError("expected at least one pair, such as [[0, 250]]")
    if starts[0] != 0 or any(second <= first for first, second in pairwise(starts)):
        raise ValueError(
            f"the first numbers of the pairs are {starts}; expected 0, and then rising numbers"
        )
    return pairs


def _tuples(value: Any) -> Any:
    """Lists as tuples, also inside; a strict tuple is no list."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _episode_limit(value: Any, parsed: ValidatorFunctionWrapHandler) -> Any:
    """One sentence for all the forms of the field."""
    try:
        return parsed(_tuples(value))
    except ValidationError as error:
        for each in error.errors():
            if each["type"] == "value_error":
                raise ValueError(str(each["ctx"]["error"])) from None
        raise ValueError(
            "expected a whole number of steps, 'adaptive', or pairs of training steps and a limit, "
            "such as [[0, 250], [900_000, 1_000]]"
        ) from None


EpisodeLimit: TypeAlias = Annotated[
    Count
    | Literal["adaptive"]
    | Annotated[tuple[tuple[CountOrZero, Count], ...], AfterValidator(_rising)]
    | None,
    WrapValidator(_episode_limit),
]
"""A limit of training episodes; pairs are training steps and the limit from there on [steps]."""


def _reward_clip(value: Any, parsed: ValidatorFunctionWrapHandler) -> Any:
    """One sentence for all the wrong forms of the field."""
    try:
        clip: tuple[float, float] | None = parsed(_tuples(value))
        if clip is None or clip[0] < clip[1]:
            return clip
    except ValidationError:
        pass
    raise ValueError("expected the lowest and the highest reward, such as [-1, 1]")


RewardClip: TypeAlias = Annotated[tuple[float, float] | None, WrapValidator(_reward_clip)]
"""The lowest and the highest reward in training [reward]."""


def _known_behavior(name: str) -> str:
    behavior_class(name)
    return name


def _behavior_settings(name: str) -> type[BehaviorSettings]:
    return behavior_class(name).Settings


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
    kwargs: dict[str, Any] = Field(default_factory=dict)
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
        settings_named_by("behavior", "behavior", _behavior_settings),
    ] = Field(default_factory=dict, validate_default=True)


@final
class EnvironmentSpec(EnvironmentSettings):
    """A Gymnasium environment and how training episodes are played."""
