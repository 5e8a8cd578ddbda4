"""Text of strangers is data: no output takes it for markup, formulas, links, code or commands."""

import csv as csv_files
import html as entities
import json
import re
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import execute, working_in
from fake_entries import fake_suite
from fake_trials import edit, make_records, make_trials, write_scores, write_trial
from hostile_texts import CALL, EVIL, HOSTILE
from markdown_it import MarkdownIt

from esbench.cli.console import show
from esbench.cli.printing import plain_table
from esbench.core.escape import (
    csv,
    html,
    latex,
    markdown,
    markdown_code,
    one_line,
    plotly,
    printable,
    without_passwords,
)
from esbench.core.files import safe_name
from esbench.publish.html.report import template
from esbench.results.entries import as_file

LINKED = re.compile(r"@\w|#\d+\b|\bgh-\d|://|\bwww\.|:[\w+-]+:", re.IGNORECASE)


@pytest.mark.parametrize("label", [".", "..", "../..", "a/../../b", "/etc", *HOSTILE])
def test_the_folder_of_a_label_is_in_its_parent(label: str) -> None:
    assert (Path("/out") / safe_name(label)).resolve().parent == Path("/out")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:se@cr:et@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me:a/b c@host/db", "postgresql://me:***@host/db"),
        ("mysql://host/db?user=u&password=a b&x=1", "mysql://host/db?user=u&password=***&x=1"),
        ("sqlite:///file.db", "sqlite:///file.db"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("redis://:key@host", "redis://:***@host"),
    ],
)
def test_passwords_are_left_out(text: str, expected: str) -> None:
    assert without_passwords(text) == expected


# What the reader of each format shows of an escaped text.


def markdown_shown(source: str) -> str:
    """The text of Markdown as the item of a list and as the cell of a table, where it is alone."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(f"- {source}\n\n| a | b |\n|--|--|\n| x | {source} |\n")
    item, *_, cell = (each for each in tokens if each.type == "inline")
    assert [t.type for t in tokens] != ["heading_open", "blockquote_open", "fence", "html_block"]
    assert [t.type for t in tokens[:6]] == [
        *("bullet_list_open", "list_item_open", "paragraph_open"),
        *("inline", "paragraph_close", "list_item_close"),
    ]
    assert sum(each.type == "td_open" for each in tokens) == 2
    for inline in (item, cell):
        children = inline.children or []
        assert {each.type for each in children} <= {"text", "text_special", "code_inline"}
        joined = "".join("\0" if each.type == "code_inline" else each.content for each in children)
        assert not LINKED.search(joined)
    return "".join(each.content for each in cell.children or [])


class Text(HTMLParser):
    """The text and the tags of HTML."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", list[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += [tag, *(name for name, _ in attrs)]

    def handle_data(self, data: str) -> None:
        self.text += data


def html_shown(value: str) -> str:
    page = Text(f'<p title="{value}">{value}</p>')
    assert page.tags == ["p", "title"]
    return page.text


def autoescaped(text: str) -> str:
    """A text as the templates of pages write it."""
    environment = template("page.html").environment
    return environment.from_string("{{ text }}").render(text=text)


def plotly_shown(source: str) -> str:
    assert not re.search(r"[<>]|%\{", source)
    known = r"&(#\d+|#x[0-9a-f]+|mu|amp|lt|gt|nbsp|times|plusmn|deg);"  # no others, in its source
    return re.sub(known, lambda match: entities.unescape(match[0]), source)


def csv_shown(cell: str) -> str:
    assert not re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell)
    return cell.removeprefix("'")


FORMATS: dict[str, tuple[Callable[[str], str], Callable[[str], str], Callable[[str], str]]] = {
    "markdown": (markdown, markdown_shown, one_line),
    "markdown code": (markdown_code, markdown_shown, one_line),
    "html": (autoescaped, html_shown, printable),
    "plotly": (plotly, plotly_shown, one_line),
    "csv": (csv, csv_shown, printable),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("text", [*HOSTILE, "plain", "a_b", "1 & 2", "[1, 2]", "a\n# b", "中 é"])
def test_every_format_shows_the_text_and_nothing_else(text: str, format_: str) -> None:
    escape, shown, expected = FORMATS[format_]
    source = escape(text)
    assert printable(source) == source
    assert shown(source) == expected(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_no_command_of_a_text(text: str) -> None:
    known = r"\\(?:[%$#&_{}'^`\"~]|text\w+|ensuremath|ldots|langle|rangle)"
    rest = re.sub(known, "", latex(text))
    assert not re.search(r"[\\$%#&_^~]|^\*|\[|-(?=-)", rest.replace("{[}", ""))
    assert printable(rest) == rest


@pytest.mark.parametrize("value", [-3.5, 2, None, True, "-3.5", "+1e5", "-inf", "a=b", ""])
def test_numbers_and_plain_text_stay_as_they_are_in_csv(value: object) -> None:
    assert csv(value) == value


def test_values_in_one_cell_of_csv_are_joined_and_no_formula() -> None:
    assert csv(("=1", "=2")) == "'=1; =2"
    assert csv((-1e-15, -2.5)) == "-1e-15; -2.5"
    assert csv((-1.0, "=2")) == "'-1.0; =2"
    assert csv({"@x": "\x1b"}) == r"'@x \x1b"


def test_a_terminal_shows_brackets_and_colons(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table("[red]", title="[/] :smile:")
    table.add_row("[link=file:x]y[/link]")
    show(table)
    out = capsys.readouterr().out
    assert {"[red]", "[/] :smile:", "[link=file:x]y[/link]"} <= {*map(str.strip, out.splitlines())}


def test_a_value_that_is_no_text_or_is_markup_already_stays_in_a_template() -> None:
    from markupsafe import Markup

    assert html(1.5) == 1.5
    assert html(Markup("<b>\x1b")) == "<b>\x1b"


@pytest.mark.parametrize("text", ["x", ":", "@", "`", "[", "#1", "a:", "-", "|"])
def test_long_texts_take_time_in_proportion(text: str) -> None:
    for escape, _, _ in FORMATS.values():
        assert escape(10**5 * text)


# Commands whose input has such texts wherever a file can have them.

SHORT = f"=<b>@all</b> #1 $x$ [r]|`{{x}}`](https://{EVIL}) \x1b]0;t\x07 \u202e"
EVERY = " ".join(HOSTILE)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder, which has trials, a failed one, and a leaderboard."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("openai_es", "snes"):
        write_scores(folder / "runs", [1.0, 2.0, 3.0], algorithms={name: {}})
    write_scores(folder / "broken", [1.0, 2.0, 3.0])
    failed = make_trials(folder / "broken", seeds=[7])[0]
    write_trial(failed, make_records([1.0]), error=f"Traceback\n{one_line(EVERY)}\x1b[31m")
    edit(folder, "trial.json", poison)
    (folder / "board").mkdir()
    for entry in fake_suite("mujoco-mlp", seeds=3)[:2]:
        cell = entry.cell.model_copy(update={"algorithm": SHORT, "reference_source": EVERY})
        origin = entry.origins[0].model_copy(update={"hardware": {"cpu": EVERY}})
        changes = {"cell": cell, "origins": (origin,), "commands": HOSTILE}
        found = entry.model_copy(update=changes)
        (folder / "board" / found.file_name).write_bytes(as_file(found))
    with working_in(folder):
        yield folder


def poison(content: dict[str, Any]) -> None:
    """Put such texts wherever a trial's file has text of its author."""
    content["labels"].update(environment=SHORT, policy="<i>@p</i>")
    content["labels"]["algorithm"] += SHORT
    content.update(
        command=EVERY,
        created=EVERY,
        hardware={"cpu": EVERY, "cores": EVERY, "platform": EVERY},
        versions=dict.fromkeys(HOSTILE, EVERY),
        own_code=dict.fromkeys(HOSTILE, EVERY),
    )


def require_markdown(text: str) -> None:
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        assert token.type not in {"html_block", "fence", "code_block", "blockquote_open"}
        children = token.children or []
        plain = {"text", "text_special", "code_inline", "softbreak"}
        assert {each.type for each in children} <= plain, children
        assert not [
            each for each in children if each.type == "text" and LINKED.search(each.content)
        ]


def require_html(text: str) -> None:
    tags = Text(text).tags
    assert not {"img", "iframe", "b"} & {*tags}
    assert not [tag for tag in tags if tag.startswith("on")]
    assert len(re.findall("^<script>", text, flags=re.M)) == tags.count("script") <= 2
    assert f'href="https://{EVIL}' not in text
    shown = Text(re.sub("(?s)<script>.*?</script>", "", text)).text
    assert printable(shown) == shown
    assert CALL in shown


def require_csv(text: str) -> None:
    for cell in (cell for row in csv_files.reader(text.splitlines()) for cell in row):
        assert csv(cell) == cell or cell.startswith("'")


READERS: dict[str, Callable[[str], object]] = {
    "text": printable,
    "markdown": require_markdown,
    "latex": lambda text: require(r"\input" not in text),
    "csv": require_csv,
    "json": json.loads,
    "html": require_html,
    "xml": lambda text: ElementTree.fromstring(text.encode()),
}
# The formats of what a command prints, and of the files that it writes.
COMMANDS = {
    "table runs": {"": "text"},
    "table runs --wide": {"": "text"},
    "table runs --format markdown": {"": "markdown"},
    "table runs --wide --format markdown": {"": "markdown"},
    "table runs --format latex": {"": "latex"},
    "table runs --format csv": {"": "csv"},
    "table runs --wide --format csv": {"": "csv"},
    "table runs --format json": {"": "json"},
    "diagnose broken": {"": "text"},
    "diagnose broken --format json": {"": "json"},
    "report broken": {"broken/report.html": "html"},
    "plot runs --format svg --panels steps --out figures": {"figures/*.svg": "xml"},
    "baseline runs --out b.json --margin 0.5": {"": "text", "b.json": "json"},
    "check runs --baseline b.json --json checks/c.json --markdown c.md --junit c.xml": {
        "": "text",
        "checks/c.json": "json",
        "c.md": "markdown",
        "c.xml": "xml",
    },
    "history checks --format markdown --html h.html": {"": "markdown", "h.html": "html"},
    "leaderboard board": {"": "text"},
    "leaderboard board --format markdown": {"": "markdown"},
    "leaderboard board --format csv": {"": "csv"},
    "leaderboard board --format html": {"": "html"},
    "leaderboard board --format json": {"": "json"},
}


def require(fact: bool) -> None:
    assert fact


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_have_no_markup_of_their_inputs(
    hostile: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(action="ignore"):  # a character that no font of ours has
        code = execute(*command.split())
    out, err = capsys.readouterr()
    for place, format_ in COMMANDS[command].items():
        for text in [path.read_text() for path in hostile.glob(place)] if place else [out]:
            READERS[format_](text)
    assert printable(out + err) == out + err
    assert code == 0, err
