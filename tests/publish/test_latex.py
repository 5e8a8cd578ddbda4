from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from fake_cells import make_cell
from programs import compiled

from esbench.core.errors import UsageError
from esbench.publish.tables.render_table import Paper, Sheet, as_latex, renamed
from esbench.publish.tables.score_table import sheet

AWKWARD = r"""\ _ % & # ~ ^ < > | " ' ` $ { } [x] -- --- ä ß Ø ł ą † ‘a’ σ ≤ − 5 -3 «a» 目 \N{x}"""


def test_a_real_tex_sets_every_text_and_nothing_is_cut(tmp_path: Path) -> None:
    long = "/".join(["a_long_folder"] * 20)
    ascii_ = " ".join(map(chr, range(32, 127)))
    header = ["Environment", "Algorithm", "Score", *(f"column_{n}" for n in range(9))]
    score = ["-{}.5 =\n[-2.0, 1.0]", *"123456789"]
    body = [[f"[{AWKWARD}"[:40], "\\", score[0].format(n), *score[1:]] for n in range(70)]
    notes = [f"--set {AWKWARD}={AWKWARD}", long, ascii_]
    text = as_latex(Sheet(header, body, notes, frozenset({(0, 2)}), separated=2))
    log = compiled(text, tmp_path)
    assert "Output written" in log, log[-2000:]
    for trouble in ("Overfull", "Float too large", "Missing character", "LaTeX Error"):
        assert trouble not in log, log
    assert "(3 pages" in log or "(4 pages" in log  # a long table continues on the next page


def test_a_real_tex_sets_a_table_of_a_page_in_a_float_of_one_column(tmp_path: Path) -> None:
    body = [["CartPole-v1", "snes", f"{n}.5\n[-2.0, 1.0]"] for n in range(10)]
    text = as_latex(Sheet(["Environment", "Algorithm", "Score"], body, ["A note."]))
    log = compiled(f"\\twocolumn\\begin{{table}}\n{text}\\end{{table}}\n", tmp_path)
    assert "(2 pages" in log  # twocolumn begins the second one
    for trouble in ("Overfull", "Float too large", "LaTeX Error"):
        assert trouble not in log, log


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("a_b: -0.5 [-2, 3] --out", r"a\_b: \ensuremath{-}0.5 {[}\ensuremath{-}2, 3] -{}-out"),
        ("σ ü", r"\ensuremath{\sigma} \"u"),
        (r"'50%' {x} $y & #1|\z", r"'50\%' \{x\} \$y \& \#1\textbar{}{\textbackslash}z"),
        ("~^", r"{\textasciitilde}{\textasciicircum}"),
    ],
)
def test_texts_by_hand(text: str, source: str) -> None:
    assert f"\n{source} & 1 " in as_latex(Sheet(["Algorithm", "n"], [[text, "1"]], []))


SHEET = Sheet(
    ["Environment", "Algorithm", "Score"],
    [["mine:Boat-v0", "snes", "1.5\n[1.0, 2.0]"], ["mine:Boat-v0", "snes_2", "0.5"]],
    ["Score: of snes.", "Made by: esbench run --env mine:Boat-v0 --algorithm snes"],
)


@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("notes", ["below", "caption", "none"])
def test_a_caption_and_a_label_can_be_referred_to(
    tmp_path: Path, notes: Literal["below", "caption", "none"], rows: int
) -> None:
    sheet = replace(SHEET, body=[*SHEET.body] * rows)
    text = as_latex(sheet, Paper(notes, "Scores of 50 %", "tab:scores"))
    assert text.count("Score: of snes.") == (notes != "none")
    log = compiled(f"{text}\nTable \\ref{{tab:scores}}", tmp_path, runs=3)
    assert "Output written" in log, log[-2000:]
    for trouble in ("Overfull", "undefined", "LaTeX Error", "LaTeX Warning"):
        assert trouble not in log, log


@pytest.mark.parametrize(
    ("caption", "notes", "shown"),
    [
        ("A", [], "A"),
        ("A", ["b", "c.", "d"], "A. b. c. d"),
        ("Why?", ["b"], "Why? b"),
        ("", ["b", "c"], "b. c"),
    ],
)
def test_the_notes_of_a_caption_are_sentences(caption: str, notes: list[str], shown: str) -> None:
    text = as_latex(replace(SHEET, notes=notes), Paper("caption", caption))
    assert rf"\caption{{{shown}}}" in text


def test_chosen_columns_fit_a_column(tmp_path: Path) -> None:
    rows = [make_cell(algorithm=f"an_algorithm_{n}", random=1.0) for n in range(3)]
    whole, chosen = sheet(rows), sheet(rows, columns=["algorithm", "Score", "seeds", "interval"])
    assert [*chosen.header] == ["Algorithm", "Score", "Seeds", "95 % interval"]
    for table, is_wide in ((whole, True), (chosen, False)):
        column = r"\setlength{\hsize}{241pt}\hbadness10000" + as_latex(table, Paper("none"))
        log = compiled(column, tmp_path)
        assert ("Overfull" in log) == is_wide, log


def test_rows_without_environments_stand_close() -> None:
    rows = [make_cell(float(n), algorithm=f"a_{n}") for n in range(3)]
    assert "addlinespace" not in as_latex(sheet(rows, columns=["score", "algorithm"]))


@pytest.mark.parametrize(
    ("environment", "policy", "chosen", "header"),
    [
        ("A", "small", "algorithm,score", "Environment,Policy,Algorithm,Score"),
        ("A", "default", "algorithm,score", "Environment,Algorithm,Score"),
        ("A", "small", "score,policy,environment", "Score,Policy,Environment"),
        ("HalfCheetah-v5", "small", "algorithm,score", "Policy,Algorithm,Score"),
        ("HalfCheetah-v5", "default", "algorithm,score", "Algorithm,Score"),
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_chosen_columns_name_what_rows_differ_in(
    environment: str, policy: str, chosen: str, header: str, terminal: bool
) -> None:
    rows = [make_cell(), make_cell(environment=environment, policy=policy)]
    made = sheet(rows, terminal=terminal, columns=chosen.split(","))
    assert [*made.header] == header.split(",")


def test_notes_explain_the_chosen_columns_only() -> None:
    notes = " ".join(sheet([make_cell()], columns=["algorithm", "seeds"]).notes)
    assert "IQM" not in notes
    assert "interval" not in notes
    rows = [make_cell(reference=1.0)]
    for columns, is_cited in (["algorithm", "score"], False), (["reference"], True):
        notes = " ".join(sheet(rows, columns=columns).notes)
        assert ("[1]" in notes) == is_cited


@pytest.mark.parametrize("columns", [["scre"], ["score", "Score"], [""], ["0"]])
def test_chosen_columns_exist_and_are_named_once(columns: list[str]) -> None:
    with pytest.raises(UsageError):
        sheet([make_cell()], columns=columns)


def test_a_whole_name_is_replaced_except_in_commands() -> None:
    known = {"mine:Boat-v0", "snes", "snes_2"}
    shown = renamed(SHEET, ["mine:Boat-v0=Boat", "snes=SNES"], known)
    assert [cells[:2] for cells in shown.body] == [["Boat", "SNES"], ["Boat", "snes_2"]]
    assert shown.notes == ["Score: of SNES.", SHEET.notes[1]]


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("CartPole-v1: every row", "CartPole-v1", "new: every row"),
        ("[1] CartPole-v1: ARS", "CartPole-v1", "[1] new: ARS"),
        ("mine:Boat-v0: 5 of snes.", "mine:Boat-v0", "new: 5 of snes."),
        ("mine:Boat-v0 of mine", "mine", "mine:Boat-v0 of new"),
        ("snes s=0.2 on A-v1, snes s=0.25", "snes s=0.2", "new on A-v1, snes s=0.25"),
        ("(as that of snes.)", "snes", "(as that of new.)"),
        ("snes s=1: x, snes s=1.5: x", "snes s=1", "new: x, snes s=1.5: x"),
        ("Made by (snes on A-v1): run snes", "snes", "Made by (new on A-v1): run snes"),
    ],
)
def test_a_note_has_the_new_name(text: str, name: str, shown: str) -> None:
    known = {name, "snes", "A-v1"}
    assert renamed(Sheet([], [], [text]), [f"{name}=new"], known).notes == [shown]


@pytest.mark.parametrize("text", ["snes", "=x", "snes=", "sness=x", ""])
def test_a_renaming_is_a_known_name_and_a_new_one(text: str) -> None:
    with pytest.raises(UsageError, match="--rename|sness"):
        renamed(SHEET, [text], {"snes"})


@pytest.mark.parametrize("names", ["snes=ars", "snes=new ars=new", "snes=ars ars=snes"])
def test_two_names_do_not_become_one(names: str) -> None:
    with pytest.raises(UsageError, match="--rename"):
        renamed(SHEET, names.split(), {"snes", "ars"})
    renamed(SHEET, ["snes=new", "ars=snes"], {"snes", "ars"})


@pytest.mark.parametrize("label", ["a b", "a}", "\\x", "50%"])
def test_a_label_without_markup(label: str) -> None:
    with pytest.raises(UsageError, match="--label"):
        as_latex(SHEET, Paper(label=label))
