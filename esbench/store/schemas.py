"""The types of the JSON files of a trial's folder: the keys that readers need; others are allowed.

A key that ends with "?" is one that only some trials have.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, final

import msgspec

LARGEST_COUNT: Final = 2**63 - 1
StoredCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]


def _schema(keys: dict[str, Any]) -> type[msgspec.Struct]:
    """A type of JSON objects with these keys and the types of their values."""
    types = {key: _schema(kind) if isinstance(kind, dict) else kind for key, kind in keys.items()}
    needed = [field for field in types.items() if not field[0].endswith("?")]
    optional = [(key[:-1], kind, None) for key, kind in types.items() if key.endswith("?")]
    return msgspec.defstruct("Stored", [*needed, *optional])


_Versions: TypeAlias = dict[str, str | None] | None
_Numbers: TypeAlias = list[float | None]


@final
class _Origin(TypedDict, total=False):
    versions: _Versions
    own_code: _Versions


StoredSpec: Final = _schema(
    {
        "algorithm": {"name": str, "settings": dict[str, Any]},
        "environment": {
            "id": str,
            "kwargs": dict[str, Any],
            "max_episode_steps": StoredCount | list[list[StoredCount]] | Literal["adaptive"] | None,
            "reward_shift": float,
        },
        "policy": _schema({"template": str, "settings": dict[str, Any]}) | None,
        "budget": {
            "env_steps": Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)],
            "generations": StoredCount | None,
            "target_return": float | None,
        },
        "evaluation": {"center": bool},
        "seed": StoredCount,
    }
)

StoredDescription: Final = _schema(  # trial.json
    {
        "spec": StoredSpec,
        "labels": {"environment": str, "algorithm": str, "policy": str},
        "versions?": _Versions,
        "own_code?": _Versions,
        "hardware?": dict[str, Any] | None,
        "git_commit?": str | None,
        "command?": str | None,
        "created?": str | None,
        "scores?": dict[str, Any] | None,
        "inherited?": list[str],
        "defaults?": list[str],
        "workers?": int | None,
        "resumed_with?": list[_Origin],
        "extended?": list[dict[str, Any]],
    }
)

StoredResult: Final = _schema(  # result.json; rows is the SHA-256 of the rows of training
    {
        "score": float | None,
        "env_steps": StoredCount,
        "wall_time_s": float,
        "returns?": _Numbers,
        "lengths?": _Numbers,
        "deterministic?": bool,
        "evaluation_episodes?": StoredCount,
        "generations?": StoredCount,
        "validated_generation?": StoredCount,
        "digest?": str | None,
        "rows?": str,
        "stopped?": str | None,
    }
)

StoredBest: Final = _schema(  # best.json
    {
        "score": float | None,
        "returns": _Numbers,
        "generations": StoredCount,
        "last_digest": str | None,
        "evaluation_episodes?": StoredCount,
    }
)

StoredNodes: Final = _schema(  # nodes.json
    {"nodes": list[Any], "losses": StoredCount, "lost_episodes": StoredCount}
)

StoredCheckpoint: Final = _schema(  # of the trainer's state; rows is the SHA-256 of the rows so far
    {
        "arrays": {  # the safetensors file beside it
            "file": Annotated[str, msgspec.Meta(pattern=r"^\d{8,}(-[0-9a-f]{8})?\.safetensors$")],
            "size": StoredCount,
            "sha256": str,
        },
        "rows": str,
        "state": {"progress": {"generation": StoredCount}},
        "spec": dict[str, Any],
        "sha256": str,
    }
)

# The columns of members.jsonl.gz that every algorithm has, [members][episodes].
StoredMembers: Final = _schema(
    {"generation": StoredCount, "return": list[_Numbers], "length": list[list[StoredCount]]}
)

# Of one member, or of every member, as a number or as numbers.
StoredColumn: TypeAlias = float | list[float | list[float | None] | None] | None
