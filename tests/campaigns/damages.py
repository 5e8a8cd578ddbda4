"""Random damages of a trial's folder, each reproducible from its seed."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from esbench.core.json_text import SEAL, sealed

DONE, PARTIAL = TRIALS = ("seed-0", "seed-1")
FILES: Final = (
    *("trial.json", "result.json", "best.json", "metrics.jsonl", "members.jsonl.gz"),
    *("checkpoint/state.json", "checkpoint/*.safetensors", "kept/*.json", "kept/*.safetensors"),
)
OTHERS: Final = ("lock", "log.txt", "error.txt", "checkpoint", "kept")
NAUGHTY: Final = (
    *("$x_{$", r"$\frac{$ b", "<script>alert(1)</script>", "\x1b[31mred\x1b[0m", "a\0b\rc\x07"),
    *("| a | b |\n|--|--|", "\u202e reversed", "\\end{longtable}\\input{/etc/passwd}", "%s{}#&~^"),
    *("lone \udc80", "[b](javascript:alert(1))", "x" * 300, "../../etc", "]]>", "&lt;b&gt;"),
)
WRONG: Final = (
    *("NaN", "Infinity", "1e999", "-1", '"x"', "null", "true", "[]", "{}", "0.5", "9" * 400),
    *("[" * 2000 + "]" * 2000, '{"a":' * 900 + "1" + "}" * 900, "[[[]]]", '"\\ud800"', "1e308"),
)


def flip(data: bytes, stream: Generator, bits: int = 1) -> bytes:
    """Some flipped bits."""
    damaged = bytearray(data)
    for place in stream.integers(len(data), size=bits):
        damaged[place] ^= 1 << int(stream.integers(8))
    return bytes(damaged)


def _flip_ten(data: bytes, stream: Generator) -> bytes:
    return flip(data, stream, 10)


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


def _digit(data: bytes, stream: Generator) -> bytes:
    """Another digit in the place of one."""
    places = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    if not places:
        return flip(data, stream)
    place = places[int(stream.integers(len(places)))]
    new = (data[place] - ord("0") + int(stream.integers(1, 10))) % 10
    return data[:place] + str(new).encode() + data[place + 1 :]


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
    *(flip, flip, _flip_ten, _cut, _zeros, _repeat, _append, _swap_lines, _repeat_line),
    *(_digit, _digit, _random, _wrong_value, _wrong_value),
)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def _outside(path: Path) -> Path:
    return next(place / "outside" for place in path.parents if (place / "outside").is_dir())


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        place = os.open(path.parent, os.O_PATH)
        server.bind(f"/proc/self/fd/{place}/{path.name}")
        os.close(place)


KINDS: Final[dict[str, Callable[[Path], object]]] = {
    "nothing": lambda path: None,
    "an empty file": Path.touch,
    "a pipe": os.mkfifo,
    "a socket": _bind,
    "a folder": Path.mkdir,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to a file outside": lambda path: path.symlink_to(_outside(path) / "own.safetensors"),
    "a link to a folder outside": lambda path: path.symlink_to(_outside(path)),
    "four terabytes": _sparse,
}


def damage(root: Path, seed: int) -> tuple[str, bool]:
    """Damage one file below ``root``: its description, and whether only its content changed."""
    stream = np.random.default_rng(seed)
    trial = TRIALS[int(stream.integers(2))]
    (folder,) = root.rglob(trial)
    kind = stream.choice(
        ["content", "kind", "other", "mix", "label"], p=[0.6, 0.2, 0.1, 0.05, 0.05]
    )
    if kind == "label":
        return f"{trial}: {relabel(root, stream)}", False
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
        return f"{what}: {change.__name__.strip('_')} {hash_of(after)}", True
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    new = list(KINDS)[int(stream.integers(len(KINDS)))]
    path.parent.mkdir(exist_ok=True)
    KINDS[new](path)
    return f"{what}: {new}", False


def hash_of(data: bytes) -> str:
    """The start of the SHA-256."""
    import hashlib

    return hashlib.sha256(data).hexdigest()[:12]


def relabel(root: Path, stream: Generator) -> str:
    """Give all trials a label that outputs may take for something else, with a digest that fits."""
    key = str(stream.choice(["environment", "algorithm", "policy", "command"]))
    first, second = (NAUGHTY[int(n)] for n in stream.integers(len(NAUGHTY), size=2))
    text = first + second if stream.integers(2) else first
    for path in root.rglob("trial.json"):
        content = json.loads(path.read_text())
        content.pop(SEAL)
        (content if key == "command" else content["labels"])[key] = text
        path.write_text(json.dumps(sealed(content)))
    return f"{key} = {text[:60]!r} {hash_of(text.encode(errors='replace'))}"


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
