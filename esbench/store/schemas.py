"""The types of the JSON files of a trial's folder: the keys that readers need; others are allowed.

A key that is ``NotRequired`` is one that only some trials have.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict, final

import msgspec

LARGEST_COUNT: Final = 2**63 - 1
StoredCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
Versions: TypeAlias = dict[str, str | None]


@final
class StoredAlgorithm(TypedDict):
    """The algorithm of a specification."""

    name: str
    settings: dict[str, Any]


@final
class StoredEnvironment(TypedDict):
    """The environment of a specification."""

    id: str
    kwargs: dict[str, Any]
    max_episode_steps: StoredCount | list[list[StoredCount]] | None
    reward_shift: float


@final
class StoredBudget(TypedDict):
    """The budget of a specification."""

    env_steps: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]
    generations: StoredCount | None
    target_return: float | None


@final
class StoredPolicy(TypedDict):
    """The policy of a specification."""

    template: str
    settings: dict[str, Any]


@final
class StoredEvaluation(TypedDict):
    """The evaluation of a specification."""

    center: bool


@final
class StoredSpec(TypedDict):
    """A specification."""

    algorithm: StoredAlgorithm
    environment: StoredEnvironment
    policy: StoredPolicy | None
    budget: StoredBudget
    evaluation: StoredEvaluation
    seed: StoredCount


@final
class StoredLabels(TypedDict):
    """The names of a trial in tables and figures."""

    environment: str
    algorithm: str
    policy: str


@final
class StoredOrigin(TypedDict):
    """What a trial was resumed with."""

    versions: NotRequired[Versions | None]
    own_code: NotRequired[Versions | None]


@final
class StoredDescription(TypedDict):
    """The content of ``trial.json``."""

    spec: StoredSpec
    labels: StoredLabels
    versions: NotRequired[Versions | None]
    own_code: NotRequired[Versions | None]
    hardware: NotRequired[dict[str, Any] | None]
    git_commit: NotRequired[str | None]
    command: NotRequired[str | None]
    created: NotRequired[str | None]
    scores: NotRequired[dict[str, Any] | None]
    inherited: NotRequired[list[str]]
    defaults: NotRequired[list[str]]
    workers: NotRequired[int | None]
    resumed_with: NotRequired[list[StoredOrigin]]
    extended: NotRequired[list[dict[str, Any]]]


@final
class StoredResult(TypedDict):
    """The content of ``result.json``; ``rows`` is the SHA-256 of the rows of training."""

    score: float | None
    env_steps: StoredCount
    wall_time_s: float
    returns: NotRequired[list[float | None]]
    lengths: NotRequired[list[float | None]]
    deterministic: NotRequired[bool]
    evaluation_episodes: NotRequired[StoredCount]
    generations: NotRequired[StoredCount]
    validated_generation: NotRequired[StoredCount]
    digest: NotRequired[str | None]
    rows: NotRequired[str]
    stopped: NotRequired[str | None]


# Of one member, or of every member, as a number or as numbers.
StoredColumn: TypeAlias = float | list[float | list[float | None] | None] | None

# The columns of ``members.jsonl.gz`` that every algorithm has, [members][episodes].
StoredMembers = TypedDict(
    "StoredMembers",
    {
        "generation": StoredCount,
        "return": list[list[float | None]],
        "length": list[list[StoredCount]],
    },
)


@final
class StoredBest(TypedDict):
    """The content of ``best.json``."""

    score: float | None
    returns: list[float | None]
    generations: StoredCount
    last_digest: str | None
    evaluation_episodes: NotRequired[StoredCount]


@final
class StoredNodes(TypedDict):
    """The content of ``nodes.json``."""

    nodes: list[Any]
    losses: StoredCount
    lost_episodes: StoredCount


@final
class StoredProgress(TypedDict):
    """How far a checkpoint is."""

    generation: StoredCount


@final
class StoredState(TypedDict):
    """The state of a trainer."""

    progress: StoredProgress


@final
class StoredArrays(TypedDict):
    """The safetensors file beside a checkpoint's JSON file."""

    file: Annotated[str, msgspec.Meta(pattern=r"^\d{8,}(-[0-9a-f]{8})?\.safetensors$")]
    size: StoredCount
    sha256: str


@final
class StoredCheckpoint(TypedDict):
    """The JSON file of a checkpoint; ``rows`` is the SHA-256 of the rows up to it."""

    arrays: StoredArrays
    rows: str
    state: StoredState
    spec: dict[str, Any]
    sha256: str
