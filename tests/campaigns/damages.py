"""Random damages of a trial's folder, each reproducible from its seed."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator

DONE, PARTIAL = TRIALS = ("seed-0", "seed-1")
FILES: Final = (
    *("trial.json", "result.json", "best.json", "metrics.jsonl", "members.jsonl.gz"),
    *("checkpoint/state.json", "checkpoint/*.safetensors", "kept/*.json", "kept/*.safetensors"),
)
OTHERS: Final = ("lock", "log.txt", "error.txt", "checkpoint", "kept")
WRONG: Final = (
    *("NaN", "Infinity", "1e999", "-1", '"x"', "null", "true", "[]", "{}", "0.5", "9" * 400),
    *("[" * 2000 + "]" * 2000, '{"a":' * 900 + "1" + "}" * 900, "[[[]]]", '"\\ud800"', "1e308"),
)


def flip(data: bytes, stream: Generator) -> bytes:
    """A flipped bit."""
    damaged = bytearray(data)
    damaged[int(stream.integers(len(data)))] ^= 1 << int(stream.integers(8))
    return bytes(damaged)


def _cut(data: bytes, stream: Generator) -> bytes:
    return data[: int(stream.integers(len(data)))]


def _zeros(data: bytes, stream: Generator) -> bytes:
    start = int(stream.integers(len(data)))
    end = min(len(data), start + int(stream.integers(1, 513)))
    return data[:start] + bytes(end - start) + data[end:]


def _repeat(data: bytes, stream: Generator) -> bytes:
    start, end = sorted(map(int, stream.integers(len(data) + 1, size=2)))
    return data[:end] + data[start:end] + data[end:]


def _append(data: bytes, stream: Generator) -> bytes:
    return data + stream.bytes(int(stream.integers(1, 200)))


def _swap_lines(data: bytes, stream: Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    one, other = stream.integers(len(lines), size=2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _repeat_line(data: bytes, stream: Generator) -> bytes:
    lines = data.splitlines(keepends=True)
    place = int(stream.integers(len(lines)))
    return b"".join([*lines[: place + 1], *lines[place:]])


def _random(data: bytes, stream: Generator) -> bytes:
    return stream.bytes(int(stream.integers(1, 2000)))


def _wrong_value(data: bytes, stream: Generator) -> bytes:
    """Another value in the place of one of JSON."""
    lines = data.split(b"\n")
    number = int(stream.integers(len(lines)))
    try:
        content = json.loads(lines[number] if len(lines) > 2 and data[:2] != b"{\n" else data)
    except ValueError:
        return flip(data, stream)
    leaves: list[tuple[Any, Any]] = []
    _collect(content, leaves)
    table, key = leaves[int(stream.integers(len(leaves)))]
    table[key] = "$WRONG$"
    wrong = WRONG[int(stream.integers(len(WRONG)))]
    text = json.dumps(content).replace('"$WRONG$"', wrong).encode()
    return text if data[:2] == b"{\n" else b"\n".join([*lines[:number], text, *lines[number + 1 :]])


def _collect(value: Any, leaves: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        leaves.append((value, key))
        if isinstance(item, dict | list):
            _collect(item, leaves)


CONTENT: Final[tuple[Callable[[bytes, Generator], bytes], ...]] = (
    *(flip, flip, _cut, _zeros, _repeat, _append, _swap_lines, _repeat_line),
    *(_random, _wrong_value, _wrong_value),
)


def _outside(path: Path) -> Path:
    return next(place / "outside" for place in path.parents if (place / "outside").is_dir())


KINDS: Final[dict[str, Callable[[Path], object]]] = {
    "nothing": lambda path: None,
    "an empty file": Path.touch,
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to a file outside": lambda path: path.symlink_to(_outside(path) / "own.safetensors"),
    "a link to a folder outside": lambda path: path.symlink_to(_outside(path)),
    "four terabytes": lambda path: (path.touch(), os.truncate(path, 1 << 42)),
}


def damage(root: Path, seed: int) -> tuple[str, bool]:
    """Damage one file below ``root``: its description, and whether only its content changed."""
    stream = np.random.default_rng(seed)
    trial = TRIALS[int(stream.integers(2))]
    (folder,) = root.rglob(trial)
    kind = stream.choice(["content", "kind", "other", "mix"], p=[0.6, 0.2, 0.1, 0.1])
    if kind == "mix":
        return f"{trial}: {_mix(root, folder, stream)}", False
    name = str(stream.choice(OTHERS if kind == "other" else FILES))
    found = sorted(folder.glob(name)) or [folder / name.replace("*", "00000001")]
    path = found[int(stream.integers(len(found)))]
    what = f"{trial}/{path.relative_to(folder)}"
    if kind == "content" and path.is_file():
        change = CONTENT[int(stream.integers(len(CONTENT)))]
        before = path.read_bytes()
        after = change(before, stream)
        path.write_bytes(after)
        return (
            f"{what}: {change.__name__.strip('_')} {hashlib.sha256(after).hexdigest()[:12]}",
            True,
        )
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    new = list(KINDS)[int(stream.integers(len(KINDS)))]
    path.parent.mkdir(exist_ok=True)
    KINDS[new](path)
    return f"{what}: {new}", False


def _mix(root: Path, folder: Path, stream: Generator) -> str:
    """Put files of the other trial, or of an older checkpoint, into the place of its own."""
    (other,) = (path for path in root.rglob("seed-*") if path != folder)
    names = ["trial.json", "metrics.jsonl", "checkpoint", "members.jsonl.gz", "kept"]
    name = str(stream.choice([*(name for name in names if (other / name).exists()), "state"]))
    if name == "state":
        kept = sorted((folder / "kept").glob("*.json"))
        shutil.copy(
            kept[0] if kept else other / "checkpoint/state.json", folder / "checkpoint/state.json"
        )
        return "checkpoint/state.json of another generation"
    path = folder / name
    if (other / name).is_dir():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(other / name, path)
    else:
        shutil.copy(other / name, path)
    return f"{name} of the other trial"
