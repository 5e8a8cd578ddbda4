"""Values as text of TOML, for files that esbench writes and for lines in its messages."""

from __future__ import annotations

import json
from typing import Any


def toml_key(name: str) -> str:
    """A name as a key of TOML.

    >>> toml_key("sigma"), toml_key("CartPole v1.0")
    ('sigma', '"CartPole v1.0"')
    """
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _quoted(name)


def toml_value(value: Any) -> str:
    """A number, text, list or table as a value of TOML, on one line; ValueError for others.

    >>> toml_value({"net_arch": [64, 64], "squash": True})
    '{net_arch = [64, 64], squash = true}'
    """
    if isinstance(value, dict):
        inner = (f"{toml_key(str(key))} = {toml_value(each)}" for key, each in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return (int if isinstance(value, int) else float).__repr__(value)  # also nan and inf
    if not isinstance(value, str):
        raise ValueError(f"TOML has no {type(value).__name__}")
    return _quoted(value)


def toml_line(name: str, value: Any) -> str:
    """A line of a message that sets a value, which is shown as in Python if TOML has none such."""
    try:
        return f"{name} = {toml_value(value)}"
    except ValueError:
        return f"{name} = {value!r}"


def _quoted(text: str) -> str:
    """A text in quotes, as in JSON; what is not printable is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
