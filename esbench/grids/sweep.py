"""Lists in an algorithm's table are a sweep: one labeled algorithm per combination of values."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.settings import Table

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
