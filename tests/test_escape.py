"""Labels are data: no output takes them for markup, formulas, control sequences or code."""

import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import Run
from fake_trials import edit, write_scores

from esbench.core.escape import latex, markdown, printable, without_passwords
from esbench.publish.figures.write_figures import draw

NAUGHTY = "$x_{$ \x1b[31m\x07 \0 <script> | [a](b) \u202e \udc80 \r &lt; 中"


def test_only_printable_characters_are_left() -> None:
    assert printable(NAUGHTY).replace("中", "x").isascii()
    assert printable(NAUGHTY).isprintable()
    assert printable("\x1b[31m\udc80\r") == r"\x1b[31m\udc80\r"
    assert printable("a\nß 中 😀") == "a\nß 中 😀"


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


@pytest.mark.parametrize("text", [NAUGHTY, "plain", "a_b", "1 & 2", "[1, 2]", "$5", "a\n# b"])
def test_markdown_shows_the_text(text: str) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parseInline(markdown(text))
    children = tokens[0].children or []
    shown = "".join(each.content for each in children)
    assert {each.type for each in children} <= {"text", "text_special"}
    assert shown == " ".join(printable(text).split())


def test_latex_has_no_command_of_a_label() -> None:
    assert "\\input" not in latex(r"\input{x}")
    assert latex("a\0b").isprintable()


@pytest.fixture
def labeled(tmp_path: Path) -> Path:
    """Three seeds with a label that outputs may take for something else."""
    folder = tmp_path / "base"
    write_scores(folder, [1.0, 2.0, 3.0])
    text = NAUGHTY.replace("\udc80", "")  # no JSON file has it
    labels = dict.fromkeys(("environment", "algorithm"), text)
    edit(folder, "trial.json", lambda content: content["labels"].update(labels))
    return folder


def test_a_label_is_not_drawn_as_a_formula(labeled: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # a character that no font of ours has
        paths = draw(labeled, tmp_path / "figures")
    for path in paths:
        if path.suffix == ".svg":
            ElementTree.parse(path)


def test_outputs_have_no_control_characters(esbench: Run, labeled: Path) -> None:
    assert esbench("baseline", str(labeled), "--out", "b.json")[0] == 0
    check = ["check", str(labeled), "--baseline", "b.json", "--junit", "c.xml", "--markdown"]
    for command in (
        ["table", str(labeled)],
        ["table", str(labeled), "--format", "markdown"],
        ["table", str(labeled), "--format", "latex"],
        ["diagnose", str(labeled)],
        [*check, "c.md", "--allow-inconclusive"],
    ):
        code, out, err = esbench(*command)
        assert code in {0, 1}, err
        assert printable(out + err) == out + err
    (case,) = ElementTree.parse("c.xml").iter("testcase")
    assert "<script>" in case.attrib["name"]
    assert "<script>" not in Path("c.md").read_text(encoding="utf-8").replace(r"\<", "")
