"""The JSON files of a trial's folder: their types, format and digest.

A type has the keys that readers need; other keys are allowed. A key that ends with "?" is one that
only some trials have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec

from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.files import read_bytes, replace
from esbench.core.json_text import SEAL, Json, as_text, digest_of, parse_json, sealed
from esbench.store.generation_record import Return
from esbench.store.origin import COMMIT, COMMIT_FORM

FORMAT: Final = 2
CHECKPOINT: Final = "checkpoint"  # folder of the latest checkpoint
KEPT: Final = "kept"  # folder of the earlier checkpoints
BEST: Final = "best.json"
MEMBERS: Final = "members.jsonl.gz"
NOT_NEEDED: Final = ("result.json", BEST, MEMBERS)  # by training


_TENSORS: Final = r"^\d{8,}(-[0-9a-f]{8})?\.safetensors$"
_FORMS: Final = {COMMIT: COMMIT_FORM, _TENSORS: "a name such as 00000012-0a1b2c3d.safetensors"}
"""What texts of a pattern are, for messages."""


def read_stored(path: Path, schema: Any) -> Json:
    """The content of a JSON file of the current format, of the type of a ``schema``.

    The digest at its end is compared. A file without one was written by hand.

    Raises:
        DamagedTrialError: the file is missing, not a JSON object, of another type, or edited.
        UsageError: it has another format, or cannot be read.
    """
    try:
        content = parse_json(read_bytes(path))
        if (header := msgspec.convert(content, _Header)).format != FORMAT:
            version = (header.versions or {}).get("esbench", "an unknown version")
            raise UsageError(
                f"{path.parent} was written in trial format {header.format} by esbench {version}; "
                f"expected format {FORMAT} (use another output folder, or the version of esbench "
                "that wrote it)"
            )
        msgspec.convert(content, schema)
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except UsageError:
        raise
    except ValueError as error:  # msgspec.ValidationError is one
        problem = str(error)
        for pattern, form in _FORMS.items():
            problem = problem.replace(f"`str` matching regex {pattern!r}", form)
        raise damaged(path, problem) from None
    if content.pop(SEAL, None) not in (None, digest_of(content)):
        raise damaged(path, f"its content does not match its {SEAL}")
    result: Json = content
    return result


def write_stored(path: Path, content: Json) -> None:
    """Replace a JSON file atomically, with its format and digest; OSError as the system."""
    replace(path, as_text(sealed({"format": FORMAT, **content})))


def damaged(path: Path, problem: str) -> DamagedTrialError:
    """The error that names a damaged file, its problem and what to remove."""
    if path.parent.name == KEPT:
        place = path.with_name(f"{path.name[:8]}*")
    elif path.name in NOT_NEEDED:
        place = path
    else:
        place = path.parents[path.parent.name == CHECKPOINT]
    return DamagedTrialError(
        f"{path} is damaged ({problem}); remove {place} and run the same 'esbench run' again"
    )


@final
class _Header(msgspec.Struct):
    format: int
    versions: dict[str, Any] | None = None


LARGEST_COUNT: Final = 2**63 - 1
StoredCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]


def _schema(keys: dict[str, Any]) -> type[msgspec.Struct]:
    """A type of JSON objects with these keys and the types of their values."""
    types = {key: _schema(kind) if isinstance(kind, dict) else kind for key, kind in keys.items()}
    needed = [field for field in types.items() if not field[0].endswith("?")]
    optional = [(key[:-1], kind, None) for key, kind in types.items() if key.endswith("?")]
    return msgspec.defstruct("Stored", [*needed, *optional])


_Versions: TypeAlias = dict[str, str | None] | None
_Returns: TypeAlias = list[Return | None]

_TRAINED: Final = {
    "versions?": _Versions,
    "own_code?": _Versions,
    "hardware?": dict[str, Any] | None,
    "git_commit?": Annotated[str, msgspec.Meta(pattern=COMMIT)] | None,
}
_Trained: Final = _schema(_TRAINED)

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
        **_TRAINED,
        "command?": str | None,
        "created?": str | None,
        "scores?": dict[str, Any] | None,
        "inherited?": list[str],
        "defaults?": list[str],
        "workers?": int | None,
        "resumed_with?": list[_Trained],  # type: ignore[valid-type]
        "extended?": list[dict[str, Any]],
    }
)

StoredResult: Final = _schema(  # result.json; rows is the SHA-256 of the rows of training
    {
        "score": Return | None,
        "env_steps": StoredCount,
        "wall_time_s": float,
        "returns?": _Returns,
        "lengths?": list[float | None],
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
        "score": Return | None,
        "returns": _Returns,
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
            "file": Annotated[str, msgspec.Meta(pattern=_TENSORS)],
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
    {"generation": StoredCount, "return": list[_Returns], "length": list[list[StoredCount]]}
)
