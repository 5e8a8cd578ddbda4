"""Text that may come from anyone, such as labels and messages, as data: one function per output.

JSON needs none, since its writer escapes all but ASCII.
"""

from __future__ import annotations

import re
from typing import Any, Final

# A host and a port are no name and password. A password may have any character.
_PASSWORD: Final = re.compile(r"(?<=://)([^/\s:@]*):(?!\d+(?:/|$)).*@|([?&]password=)[^&]*")
# Words are what stands between spaces and the characters that end a code span or a table's cell.
_WORD: Final = re.compile(r"[|`\\]|[^\s|`\\]+")
_MARKUP: Final = re.compile(
    r"[\\|*`<$~{]|(?<![^\W_])_|_(?![^\W_])|&(?=[#\w])|\](?=[(\[:{])|\)(?==)|#(?=\w)"
)
# GitHub makes links, mentions, references to issues and pictures of these, escaped or not.
_LINKED: Final = re.compile(r"@(?=\w)|#\d+\b|\bGH-\d|://|\bwww\.|:[\w+-]+:", re.IGNORECASE)
# What is a list, a heading, a quotation, a comment, a target or a directive where a line begins.
_BLOCK: Final = re.compile(
    r"^(\d{1,9})(?=[.)](?:\s|$))|^(?=[>:%(]|#{1,6}(?:\s|$)|(?!-$)[-+=]+(?:\s|$)|\[[ xX]?\])"
)
# TeX makes one character of two of these.
_LIGATURE: Final = re.compile(r"-(?=-)|[`?!](?=`)|,(?=,)")
# Spreadsheets compute a cell that begins so, also with the wide characters.
_FORMULA: Final = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


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


def one_line(text: str) -> str:
    """Printable text with single spaces for line ends and other space."""
    return " ".join(printable(text).split())


def markdown(text: str) -> str:
    """Markdown on one line that shows the text, also on GitHub and in MyST.

    It has no HTML, emphasis, link, formula, role or directive, and ends no cell of a table. A word
    that GitHub would link is set as code.
    """
    return _BLOCK.sub(r"\1\\", _WORD.sub(lambda word: _markdown_word(word[0]), one_line(text)))


def _markdown_word(word: str) -> str:
    return f"`{word}`" if _LINKED.search(word) else _MARKUP.sub(r"\\\g<0>", word)


def markdown_code(text: str) -> str:
    """Markdown on one line that shows the text as code; bars, which end a cell, are between."""
    return r"\|".join(_code(part) if part else "" for part in one_line(text).split("|"))


def _code(text: str) -> str:
    """A code span between more backticks than the text has in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`*", text))))
    padding = " " if {text[0], text[-1]} <= {" ", "`"} or "`" in {text[0], text[-1]} else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def latex(text: str) -> str:
    """Source of LaTeX that shows the text."""
    from pylatexenc.latexencode import unicode_to_latex

    minus = re.sub(r"(?<![^\s\[])-(?=\d)", "\N{MINUS SIGN}", printable(text))
    source: str = unicode_to_latex(minus, unknown_char_policy="unihex", unknown_char_warning=False)
    # After a row a bracket would start an argument, and a star be one.
    source = re.sub(r"^\*", "{*}", source.replace("[", "{[}").replace("|", r"\textbar{}"))
    return _LIGATURE.sub(r"\g<0>{}", source)


def csv(value: Any) -> Any:
    """A value as a cell of CSV that no spreadsheet takes for a formula; several values are joined.

    Text that would be one begins with an apostrophe. Numbers stay numbers.
    """
    match value:
        case tuple():
            value = "; ".join(map(str, value))
        case dict():
            value = "; ".join(f"{name} {text}" for name, text in value.items())
    if not isinstance(value, str):
        return value
    text = printable(value)
    numbers = all(map(_is_number, text.split("; ")))
    return f"'{text}" if _FORMULA.match(text) and not numbers else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def html(value: Any) -> Any:
    """A value that a template shows, whose markup the template escapes itself."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else printable(value)


def plotly(text: str) -> str:
    """Text of a Plotly figure, which takes tags, entities and "%{...}" for markup."""
    from html import escape

    return escape(one_line(text), quote=False).replace("{", "&#123;")  # no entity of quotes
