"""JSON: parsed within bounds, written without NaN, and sealed with a digest."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

SEAL: Final = "sha256"  # key of the digest of a JSON file's other content
DEEPEST: Final = 64  # nested tables and lists in JSON
MOST_DIGITS: Final = 100  # of an integer in JSON; the state of a random generator has 39
_NESTING: Final = (dict, list, tuple)


def parse_json(text: bytes) -> Any:
    """Parse strict JSON, whose content can be written again as JSON in UTF-8.

    Raises:
        ValueError: it is something else.
    """
    try:
        content = json.loads(
            text, parse_constant=_no_number, parse_float=_finite, parse_int=_integer
        )
        if b"\\u" in text:  # an escape can stand for half a character
            json.dumps(content, ensure_ascii=False).encode()
    except (RecursionError, UnicodeEncodeError):
        raise ValueError("it is nested too deeply, or has text that is not valid Unicode") from None
    if is_deeper(content, DEEPEST):
        raise ValueError(f"more than {DEEPEST} levels of nesting")
    return content


def is_deeper(value: Any, most: int) -> bool:
    """Whether tables and arrays are inside each other in more than ``most`` levels."""
    level = [value] if isinstance(value, _NESTING) else []
    for _ in range(most):
        if not level:
            return False
        items = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for some in items for item in some if isinstance(item, _NESTING)]
    return bool(level)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a finite number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:MOST_DIGITS])


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer of more than {MOST_DIGITS} digits")
    return int(text)


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


def as_text(content: Json) -> str:
    """Indented JSON; NaN and infinity become null."""
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """A value with None for NaN and infinity, which JSON lacks."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)
