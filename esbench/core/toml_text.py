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
    """A number, text, list or table as a value of TOML, on one line.

    >>> toml_value({"net_arch": [64, 64], "squash": True})
    '{net_arch = [64, 64], squash = true}'
    """
    if isinstance(value, dict):
        inner = (f"{toml_key(str(key))} = {toml_value(each)}" for key, each in value.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value) if isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # also nan and inf, which JSON spells otherwise
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """A text in quotes: that of JSON, which leaves a delete character as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
