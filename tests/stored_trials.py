"""The folder of a trial without what differs from run to run: times, machine and command."""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

VARIABLE = {"created", "finished", "workers", "hardware", "wall_time_s", "cpu_time_s", "command"}
DIGESTS = {"sha256", "rows"}  # of content that has these too


def content(folder: Path) -> dict[str, Any]:
    """The content of every file by its path in the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = [path for path in paths if path.name != "nodes.json"]
    return {str(path.relative_to(folder)): _read(path) for path in paths}


def _read(path: Path) -> Any:
    match path.suffix:
        case ".json" | ".jsonl":
            return [_constant(json.loads(line)) for line in _objects(path)]
        case ".safetensors":
            return {name: array.tobytes() for name, array in sorted(load_file(path).items())}
        case ".txt":
            return set(path.read_bytes().splitlines())  # workers may repeat parts of episodes
        case _:
            return path.read_bytes()


def _objects(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _constant(v) for k, v in value.items() if k not in VARIABLE | DIGESTS}
    return value
