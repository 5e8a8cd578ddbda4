from __future__ import annotations

import re
from pathlib import Path

import pytest
from tex import compiled

from esbench.reporting.tables import latex
from esbench.reporting.tables.render_table import Sheet, as_latex

AWKWARD = r"""\ _ % & # ~ ^ < > | " ' ` $ { } [x] -- --- ä ß Ø ł † ‘a’ σ ≤ − 5 -3 ?` «a» 目 \N{x}"""


@pytest.mark.parametrize("encoding", ["OT1", "T1"])
def test_a_real_tex_sets_every_text_and_nothing_sticks_out(tmp_path: Path, encoding: str) -> None:
    characters = [*map(chr, range(32, 127)), *latex._LETTERS, *latex._SYMBOLS]
    words = ["/".join(["a_long_folder"] * 20), "x" * 300, f"--set {AWKWARD}={AWKWARD}"]
    header = ["Environment", "Algorithm", "Score", *(f"column {n}" for n in range(9))]
    body = [[f"[{AWKWARD}", "\\", f"-{number}.5", *"123456789"] for number in range(70)]
    text = as_latex(Sheet(header, body, [*words, "".join(characters), " ".join(characters)]))
    log = compiled(text, tmp_path, rf"\usepackage[{encoding}]{{fontenc}}")
    assert "Output written" in log, log[-2000:]
    for trouble in ("Overfull", "Float too large", "Missing character", "LaTeX Error"):
        assert trouble not in log, log


def test_texts_by_hand() -> None:
    assert latex.escape("a_b: -0.5 [-2, 3] --out") == (r"a\_b: $-$0.5 {[}$-$2, 3{]} -{}-out")
    assert latex.escape("σ† ü") == r"\ensuremath{\sigma}† ü"
    assert latex.escape("目\n") == "U+76EEU+000A"
    assert latex.bold("$-$1") == r"\textbf{\boldmath $-$1}"
    assert latex.small("") == ""


def table_of(rows: int, lines: int = 1) -> latex.Tabular:
    body = [[[f"{row}.{line}", "1"] for line in range(lines)] for row in range(rows)]
    return latex.Tabular("lr", [["name", "value"]], body, {1: latex.SPACE, 42: latex.RULE})


def pages_of(text: str) -> list[str]:
    return re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", text, re.DOTALL)


def test_a_table_longer_than_a_page_goes_on_with_its_head_on_the_next() -> None:
    (page,) = pages_of(latex.floats([table_of(42)], []))
    assert page.count(r"\addlinespace") == 1
    first, second = pages_of(latex.floats([table_of(60)], ["a note"]))
    assert first.count("name & value") == second.count("name & value") == 1
    assert first.count(r"\\") + second.count(r"\\") == 60 + 2
    assert "42.0 & 1" in second
    assert second.count(r"\midrule") == 1  # that of the head, and none at the top of a page
    assert "a note" not in first
    assert "a note" in second


def test_lines_of_a_row_stay_on_one_page() -> None:
    first, second = pages_of(latex.floats([table_of(25, lines=2)], []))
    (last,) = re.findall(r"(\d+)\.1 & 1 \\\\\n\\bottomrule", first)
    assert f"\n{int(last) + 1}.0 &" in second


def test_notes_that_leave_no_room_go_to_another_page() -> None:
    notes = [f"{number} " + "word " * 100 for number in range(12)]
    first, second = pages_of(latex.floats([table_of(10)], notes))
    assert r"\toprule" in first
    assert r"\toprule" not in second
    assert (first + second).count(r"\par") == 12 + 1  # and one below the table


def test_a_scaled_table_has_more_lines_on_a_page() -> None:
    wide = latex.Tabular("l", [["x" * 160]], [[[str(row)]] for row in range(80)])
    assert len(pages_of(latex.floats([wide], []))) == 1
    narrow = latex.Tabular("l", [["x" * 60]], [[[str(row)]] for row in range(80)])
    assert len(pages_of(latex.floats([narrow], []))) == 2
