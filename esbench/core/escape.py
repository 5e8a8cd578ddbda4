"""Text that may come from anyone, such as labels and messages, as data: one function per output.

HTML pages are escaped by their template, CSV and JSON by their writers.
"""

from __future__ import annotations

import re
from typing import Final

# A host and a port are no name and password. A password may have any character.
_PASSWORD: Final = re.compile(r"(?<=://)([^/\s:@]*):(?!\d+(?:/|$)).*@|([?&]password=)[^&]*")
_MARKDOWN: Final = re.compile(r"[\\|*`<$~]|(?<![^\W_])_|_(?![^\W_])|&(?=[#\w])|(?<=\])\(")


def printable(text: str) -> str:
    """Text with escape sequences for all but printable characters and line ends.

    So it can be encoded, stored, printed and put into XML and figures: it has no lone surrogates
    and controls no terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each == "\n"
        else each.encode("unicode_escape").decode("ascii")
        for each in text.expandtabs()
    )


def without_passwords(text: str) -> str:
    """A word of a command line, which may be a URL, with ``***`` in place of a password."""
    return _PASSWORD.sub(lambda m: f"{m[2]}***" if m[2] else f"{m[1]}:***@", text)


def markdown(text: str) -> str:
    """Markdown on one line that shows the text: no HTML, emphasis, link, table cell or formula."""
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(printable(text).split()))


def latex(text: str) -> str:
    """Source of LaTeX that shows the text."""
    from pylatexenc.latexencode import unicode_to_latex

    minus = re.sub(r"(?<![^\s\[])-(?=\d)", "\N{MINUS SIGN}", printable(text))
    source: str = unicode_to_latex(minus, unknown_char_policy="unihex", unknown_char_warning=False)
    # After a row a bracket would start an argument; "--" and "|" would become dashes.
    for special, escaped in {"[": "{[}", "--": "-{}-", "|": r"\textbar{}"}.items():
        source = source.replace(special, escaped)
    return source
