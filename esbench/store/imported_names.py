"""Which modules a Python file imports, at its top or later; nothing is imported or executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

# Parsing takes a second for 30,000 lines, which would slow the start of a trial. A name in a
# comment or a text does no harm: it counts only if there is such a module.
_STATEMENT: Final = re.compile(
    rb"(?:^|[;:])[ \t]*"
    rb"(?:from(?:[ \t]+|(?=\.))(\.*\w[\w.]*|\.+)[ \t]*\bimport\b[ \t]*(?:\(([^)]*)\)|([^#;\n]*))"
    rb"|import[ \t]+([^#;\n]+))",
    re.MULTILINE,
)
_CALL: Final = re.compile(rb"""(?:import_module|__import__)\(\s*['"](\.*\w[\w.]*)['"]""")
_TEXT: Final = re.compile(rb"""['"]([^\W\d][\w.]*):[^\W\d][\w.]*['"]""")  # as "package.file:Class"
_NAME: Final = re.compile(rb"(?:^|,)(?:\s|#[^\n]*)*(\w[\w.]*)")


@cache
def imported_names(path: Path, version: object = None) -> frozenset[str]:
    """The names of modules, and of what is imported from them, in a file.

    Those of relative imports begin with a dot. Names that are computed are left out. A text such as
    "package.file:Class" counts, since registries import by such names. ``version`` stands for the
    content, which is read once.
    """
    if path.suffix != ".py":
        return frozenset()
    try:
        source = path.read_bytes().replace(b"\\\n", b" ")
    except OSError:
        return frozenset()
    return frozenset(name.decode("ascii", "ignore") for name in _names(source))


def _names(source: bytes) -> Iterator[bytes]:
    for module, wrapped, plain, modules in _STATEMENT.findall(source):
        for name in _NAME.findall(wrapped or plain or modules):
            yield b"%s%s%s" % (module, b"." * bool(module.strip(b".")), name)
        if module.strip(b"."):
            yield module
    yield from _CALL.findall(source)
    yield from _TEXT.findall(source)
