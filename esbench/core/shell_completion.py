"""Answers the Tab key of a shell from a file of names, without the imports of a command.

``esbench --install-completion`` installs the scripts of typer. They run ``esbench`` with the words
of the command line in the environment, and show what it prints. The names are those of
``esbench.cli.completion``, which keeps them in a file of the user's cache until the package or what
is installed beside it changes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

Names: TypeAlias = dict[str, Any]
"""The names of ``esbench.cli.completion.collect``."""
Found: TypeAlias = list[tuple[str, str]]
"""Completed words with a line of help each, which may be empty."""

SHELLS: Final = ("bash", "zsh", "fish")
BREAKS: Final = ("=", ":")  # where bash begins another word
# A shell evaluates what is printed, and a label may come from somebody else's grid.
_HARMLESS: Final = re.compile(r"[\w./:+=@,-]+")
_NOT_IN_HELP: Final = re.compile(r"[^\w .,;/+=-]+")
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def is_asked(instruction: str) -> bool:
    """Whether "complete_SHELL" is of one of ``SHELLS``."""
    return instruction in {f"complete_{shell}" for shell in SHELLS}


def answer(names: Names, instruction: str) -> int:
    """Print the completions that "complete_SHELL" asks for, and return the exit code."""
    shell = instruction.removeprefix("complete_")
    words, known = _words_of_bash() if shell == "bash" else (_words(), 0)
    found = [
        (word, _NOT_IN_HELP.sub(" ", text).strip())
        for word, text in completions(names, words[:-1], words[-1])
        if _HARMLESS.fullmatch(word)
    ]
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if found else 1  # the shell completes files
    if shell == "zsh":
        items = "\n".join(
            ":".join(f'"{part}"' for part in (word.replace(":", r"\\:"), text) if part)
            for word, text in found
        )
        sys.stdout.write(f"_arguments '*: :(({items}))'\n" if found else "_files\n")
    else:
        for word, text in found:
            line = word[known:] if shell == "bash" else "\t".join(filter(None, (word, text)))
            sys.stdout.write(f"{line}\n")
    return 0


def _words() -> list[str]:
    """The words after the program's name up to the cursor; the last one is to be completed."""
    text = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    for end in ("", "'", '"'):  # of a quote that is still open
        with contextlib.suppress(ValueError):
            words = shlex.split(text + end)
            return [*words[1:], *[""] * (text.endswith(" ") and not end)] or [""]
    return [""]


def _words_of_bash() -> tuple[list[str], int]:
    """As ``_words``, and the characters of the last word that bash does not replace."""
    last = int(os.environ.get("COMP_CWORD", "0"))
    words: list[str] = []
    joins = False
    pieces = os.environ.get("COMP_WORDS", "").split("\n")[1 : last + 1]
    for piece in pieces:
        if words and (joins or piece in BREAKS):
            words[-1] += piece
        else:
            words.append(piece.lstrip("'\""))
        joins = piece in BREAKS
    if not words:
        return [""], 0
    return words, len(words[-1]) - (0 if joins else len(pieces[-1].lstrip("'\"")))


def completions(names: Names, before: Sequence[str], word: str) -> Found:
    """The words that begin with ``word`` and may follow those ``before`` it."""
    name = next((each for each in before if not each.startswith("-")), None)
    if name is None:
        return _matching(names["options"] if word.startswith("-") else _helps(names), word)
    command = names["commands"].get(name)
    if command is None:
        return []
    arguments: list[str] = []
    given: list[str] = []
    option = None  # that waits for its value
    for each in before[before.index(name) + 1 :]:
        if option is not None:
            option = None
        elif each.startswith("-"):
            given.append(each.partition("=")[0])
            waits = each in command["options"] and not command["options"][each]["flag"]
            option = each if waits else None
        else:
            arguments.append(each)
    grid = arguments[0] if command["arguments"][:1] == ["grid"] and arguments else ""
    values = _Values(names, grid)
    if option is not None:
        return values.of(command["options"][option]["kind"], word)
    head, equals, value = word.partition("=")
    if head.startswith("-") and equals:
        kind = command["options"].get(head, {"kind": ""})["kind"]
        return [(f"{head}={found}", text) for found, text in values.of(kind, value)]
    if word.startswith("-"):
        options = {
            each: about["help"]
            for each, about in command["options"].items()
            if about["many"] or each not in given
        }
        return _matching(options, word)
    kinds = command["arguments"]
    place = min(len(arguments), len(kinds) - 1) if command["many"] else len(arguments)
    return values.of(kinds[place], word) if 0 <= place < len(kinds) else []


def _helps(names: Names) -> dict[str, str]:
    return {name: command["help"] for name, command in names["commands"].items()}


def _matching(known: dict[str, str], word: str) -> Found:
    return [(name, text) for name, text in known.items() if name.startswith(word)]


@final
class _Values:
    """The values of options and arguments, where the command line names a grid."""

    def __init__(self, names: Names, grid: str) -> None:
        self._names = names
        self._grid = names["grids"].get(grid) or _grid_of(grid)

    def of(self, kind: str, word: str) -> Found:
        """The values of a kind that begin with a word."""
        known = self._names["kinds"]
        if kind == "keys":
            return self._keys(word)
        if kind == "grid":
            files = dict.fromkeys(_files(word), "")
            return _matching({**known["grid"], **files}, word)
        found = {} if kind != "algorithm" else dict.fromkeys(self._grid["algorithms"], "")
        if kind == "skip":
            own = [*self._grid["environments"], *self._grid["algorithms"]]
            return _matching(dict.fromkeys(own, ""), word)
        found |= known.get(kind, {})
        head, comma, last = word.rpartition(",")
        if kind in self._names["joined"]:
            return [(f"{head}{comma}{name}", text) for name, text in _matching(found, last)]
        return _matching(found, word) or _matching(known.get(f"{kind} else", {}), word)

    def _keys(self, word: str) -> Found:
        """The dotted keys of ``--set`` below which there is one level more, or their values."""
        keys = self._names["keys"]
        place: Names = dict(keys)
        place["environment"] = dict.fromkeys(self._environments(), keys["environment"])
        place["algorithms"] = {
            label: self._names["settings"].get(algorithm, {})
            for label, algorithm in self._algorithms().items()
        }
        path, start = "", word.partition("=")[0]
        while True:
            head, dot, start = start.partition(".")
            if not dot:
                break
            path, place = f"{path}{head}.", place.get(head) or {}
            if not isinstance(place, dict):
                return []
        if "=" in word:
            values = place.get(head)
            return _matching({f"{path}{head}={value}": "" for value in values or ()}, word)
        found = [name for name in place if name.startswith(head)]
        while len(found) == 1 and isinstance(place[found[0]], dict):
            path, place = f"{path}{found[0]}.", place[found[0]]
            found = [*place]
        if len(found) == 1:
            # The key alone too, so that the shell stops after "=".
            values = ["", *place[found[0]]]
            return [(f"{path}{found[0]}={value}", "") for value in values]
        ends = {name: "" if isinstance(place[name], dict) else "=" for name in found}
        return [(f"{path}{name}{end}", "") for name, end in ends.items()]

    def _algorithms(self) -> dict[str, str]:
        own: dict[str, str] = self._grid["algorithms"]
        return own or {name: name for name in self._names["settings"]}

    def _environments(self) -> list[str]:
        return self._grid["environments"] or [*self._names["kinds"]["env"]]


def _grid_of(name: str) -> Names:
    """The environments and the labels of a grid file; none of any other name."""
    nothing: Names = {"environments": [], "algorithms": {}}
    if not name.endswith(".toml"):
        return nothing
    import tomllib

    try:
        table = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        return labels_of(table)
    except Exception:  # no message is shown at the Tab key
        return nothing


def labels_of(table: Names) -> Names:
    """The environments of a raw grid, and the algorithm of each label."""
    algorithms = table["algorithms"]
    if isinstance(algorithms, list):
        algorithms = {name: {} for name in algorithms}
    return {
        "environments": list(map(str, table.get("environments", []))),
        "algorithms": {name: own.get("algorithm", name) for name, own in algorithms.items()},
    }


def _files(word: str) -> Iterator[str]:
    """The grid files and the folders that begin with a path."""
    folder, slash, start = word.rpartition("/")
    with contextlib.suppress(OSError), os.scandir(folder or ("/" if slash else ".")) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.startswith(start) and not entry.name.startswith("."):
                if entry.is_dir() and word:
                    yield f"{folder}{slash}{entry.name}/"
                elif entry.name.endswith(".toml"):
                    yield f"{folder}{slash}{entry.name}"


# The file


def kept_names() -> Names | None:
    """The names in the user's cache; None if they are not those of this installation."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        content = json.loads(_place().read_text(encoding="utf-8"))
        if content["state"] == [*_state()]:
            names: Names = content["names"]
            return names
    return None


def keep_names(names: Names) -> None:
    """Write the names into the user's cache, if it can be written."""
    place = _place()
    new = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps({"state": _state(), "names": names}), encoding="utf-8")
        new.replace(place)


def _place() -> Path:
    """The file of this installation in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    safe = re.sub(r"\W+", "-", str(_PACKAGE)).strip("-")
    return Path(cache, "esbench", f"completion{safe[-100:]}.json")


@functools.cache  # collecting names may extend the path of modules
def _state() -> tuple[Any, ...]:
    """What changes if names may have changed: files of the package, and installed packages."""
    times = [*_times(_PACKAGE), *_times(_PACKAGE.parent / "envs")]
    installed = [each for each in dict.fromkeys(sys.path) if each.endswith("-packages")]
    return (sys.version, max(times), len(times), *map(_time, installed))


def _times(root: Path) -> Iterator[int]:
    """When the files below a folder were changed [ns]."""
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each != "__pycache__"]
        for name in files:
            yield _time(f"{folder}/{name}")


def _time(path: str) -> int:
    """When a file was changed [ns]; 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - a Path takes three times as long
    return 0
