"""JSON: parsed and written without NaN, and sealed with a digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

SEAL: Final = "sha256"  # key of the digest of a JSON file's other content


def parse_json(text: str | bytes) -> Any:
    """Parse JSON whose content can be written again: finite numbers and text in UTF-8.

    Raises:
        ValueError: it is something else.
    """
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def sealed(content: Json) -> Json:
    """JSON content that ends with the SHA-256 of the rest; NaN and infinity become None."""
    plain = finite(content)
    return {**plain, SEAL: digest_of(plain)}


def digest_of(content: Json) -> str:
    """The SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def as_line(row: Json) -> str:
    """JSON on one line, with a newline; NaN and infinity become null."""
    return json.dumps(finite(row), separators=(",", ":"), allow_nan=False) + "\n"


def as_text(content: Json | list[Json]) -> str:
    """Indented JSON; NaN and infinity become null."""
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """A value with None for NaN and infinity, which JSON lacks."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
