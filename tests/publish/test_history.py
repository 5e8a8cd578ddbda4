"""The history of a repository's checks: order, digests, levels, figures and bad input."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_trials import GOOD, edit, write_scores
from past_checks import ORIGIN, git, write_check, write_levels

from esbench.core.git import commit_address
from esbench.publish.figures.history_figure import history_drawing
from esbench.publish.figures.style import style
from esbench.publish.history import CellHistory, as_markdown, history


def only(folder: Path) -> CellHistory:
    (cell,) = history([folder])
    return cell


def places(cell: CellHistory, name: str) -> list[int]:
    """The places of the checks with a change."""
    return [n for n, c in enumerate(cell.checks) if not math.isnan(getattr(c, name))]


def test_checks_of_a_repository_are_kept_and_shown(esbench: Run, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write_scores(tmp_path / "base", GOOD)
    assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    write_scores(tmp_path / "out", GOOD)
    edit(tmp_path / "out", "result.json", lambda c: c.update(cpu_time_s=0.5, digest="d" * 64))
    commits = []
    for number, date in enumerate(("2026-03-02T10:00:00Z", "2026-03-01T10:00:00Z")):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", str(number), date=date)
        commits.append(git(tmp_path, "rev-parse", "HEAD").strip())
        assert esbench("check", "out", "--baseline", "b.json", "--json", f"h/{number}.json")[0] == 0
    write_scores(tmp_path / "worse", [score - 100 for score in GOOD])
    edit(tmp_path / "worse", "result.json", lambda c: c.update(cpu_time_s=0.25, digest="e" * 64))
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "2", date="2026-03-03T10:00:00Z")
    commits.append(git(tmp_path, "rev-parse", "HEAD").strip())
    assert esbench("check", "worse", "--baseline", "b.json", "--json", "h/2.json")[0] == 1
    code, out, _ = esbench("history", "h")
    assert code == 0
    assert {path.name for path in Path("h/figures").iterdir()} == {
        f"history-openai_es-CartPole-v1.{suffix}" for suffix in ("png", "svg")
    }
    lines = [line for line in out.splitlines() if " 2026-03-0" in line]
    order = [commits[1], commits[0], commits[2]]  # by date of commit
    assert [line.split()[0] for line in lines] == [commit[:8] for commit in order]
    cell = only(Path("h"))
    assert [check.digests for check in cell.checks] == ["first", "same", "changed"]
    assert [check.verdict for check in cell.checks] == ["no worse", "no worse", "regression"]
    assert [check.speed for check in cell.checks] == [400.0, 400.0, 800.0]
    assert [check.score for check in cell.checks] == [492.0, 492.0, 392.0]
    assert places(cell, "score_change") == [2]
    assert cell.checks[2].score_change == pytest.approx(-100)
    assert "score -100.0" in lines[2]
    content = json.loads(esbench("history", "h", "--format", "json", "--out", "f")[1])
    assert content["cells"][0]["checks"][1]["scores"] == GOOD
    assert len(list(Path("f").iterdir())) == 2
    text = esbench("history", "h", "--format", "markdown")[1]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert (len(rows), len({row.count("|") for row in rows})) == (5, 1)


def test_commits_of_one_second_are_in_the_order_of_ancestry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "-q")
    for number in range(5):
        git(checkout, "commit", "-q", "--allow-empty", "-m", str(number))
    commits = git(checkout, "rev-list", "--reverse", "HEAD").split()
    tested = [commits[n] for n in (4, 0, 2, 3, 1)] + ["f" * 40]
    for number, commit in enumerate(tested):
        created = f"2026-03-01T00:00:0{number}+00:00"
        date = "2026-01-01T00:00:00+00:00"
        more = {"commit_date": date, "created": created}
        write_check(tmp_path / "checks", 1, GOOD, commit=f"{commit}+", **more)
    monkeypatch.chdir(checkout)
    known = [check.revision for check in only(tmp_path / "checks").checks]
    assert known == ["f" * 40, *commits]  # unknown commits come first
    monkeypatch.chdir(tmp_path)
    assert [check.revision for check in only(tmp_path / "checks").checks] == tested


def test_digests_are_compared_with_the_last_measured_check(tmp_path: Path) -> None:
    mine, other = [["a", "b", "c"], ["a", "b", "x"]]
    elsewhere = [{**ORIGIN, "hardware": {"cpu": "B"}}]
    scores = GOOD[:3]
    several: list[dict[str, Any]] = [
        {"last_digests": mine},
        {"last_digests": mine},
        {"seeds": [], "verdict": "not measured", "speeds": [], "last_digests": []},
        {"last_digests": mine, "origins": elsewhere},  # equal bits on another machine
        {"last_digests": other, "origins": elsewhere},
        {"last_digests": mine},
        {"last_digests": ["a"], "seeds": [7], "speeds": [1.0]},
        {"last_digests": [None], "seeds": [7], "speeds": [None]},
    ]
    for number, more in enumerate(several):
        measured = scores[: len(more.get("seeds", scores))]
        write_check(tmp_path, number, measured, **more)
    checks = only(tmp_path).checks
    assert [check.digests for check in checks] == [
        *("first", "same", "unknown", "same", "changed", "not comparable", "unknown", "unknown")
    ]
    assert math.isnan(checks[2].score)
    assert math.isnan(checks[7].speed)
    two = [ORIGIN, *elsewhere]  # seeds on two machines
    for number, origins in enumerate((two, two, [*two, {**ORIGIN, "hardware": {"cpu": "C"}}])):
        write_check(tmp_path, number, GOOD, origins=origins, algorithm="snes")
    _, snes = history([tmp_path])
    assert [check.digests for check in snes.checks] == ["first", "changed", "not comparable"]


def test_the_same_bits_again_are_no_new_measurement(tmp_path: Path) -> None:
    write_levels(tmp_path / "repeated", [0.0, 0.0, 0.0], repeated=20)
    repeated = only(tmp_path / "repeated")
    assert places(repeated, "score_change") == []
    assert len({check.score for check in repeated.checks}) == 3  # although these differ
    write_levels(tmp_path / "drop", [0.0, 0.0, -4.0], repeated=20)
    cell = only(tmp_path / "drop")
    assert places(cell, "score_change") == [40]
    levels = [check.score_level for check in cell.checks]
    assert len(set(levels[:40])) == len(set(levels[40:])) == 1
    assert cell.checks[40].score_change == pytest.approx(levels[40] - levels[39])


def test_speeds_are_compared_with_those_of_equal_processors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(30):
        cpu, level = ("A", 1000) if number % 2 else ("B", 400 if number < 16 else 800)
        origins = [{**ORIGIN, "hardware": {"cpu": cpu}}]
        speed = level * (1 + 0.01 * rng.standard_normal())
        more = {"speeds": [speed] * 8, "last_digests": ["a"] * 8, "origins": origins}
        write_check(tmp_path, number, GOOD, **more)
    cell = only(tmp_path)
    assert (places(cell, "speed_change"), places(cell, "score_change")) == ([16], [])
    assert cell.checks[16].speed_change == pytest.approx(1.0, abs=0.05)
    assert {round(check.speed_level, -2) for check in cell.checks[1::2]} == {1000}
    with style():
        _, below = history_drawing(cell).make().axes
    legend = below.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["B", "A"]
    assert " Processor |" in as_markdown([cell])


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/me/agents.git", "https://github.com/me/agents/commit/"),
        ("https://me:secret@github.com/me/agents", "https://github.com/me/agents/commit/"),
        ("git@github.com:me/agents.git", "https://github.com/me/agents/commit/"),
        ("ssh://git@gitlab.lab.org:2222/a/b/c.git", "https://gitlab.lab.org/a/b/c/-/commit/"),
        ("git@bitbucket.org:me/agents", "https://bitbucket.org/me/agents/commits/"),
        ("git@server:me/agents.git", ""),
        ("/srv/github/agents.git", ""),
        ('https://github.com/me/agents"onclick=alert(1)', ""),
    ],
)
def test_commits_are_links_where_the_host_is_known(
    tmp_path: Path, remote: str, address: str
) -> None:
    git(tmp_path, "init", "-q")
    assert commit_address(tmp_path) == ""
    git(tmp_path, "remote", "add", "origin", remote)
    assert commit_address(tmp_path) == address
    (tmp_path / "checks").mkdir()
    assert commit_address(tmp_path / "checks", "https://x.org/a/b/") == "https://x.org/a/b/commit/"


@pytest.mark.parametrize("given", ["agents", "javascript:alert(1)", "https://x/a b"])
def test_an_address_that_is_none_is_refused(esbench: Run, tmp_path: Path, given: str) -> None:
    write_check(tmp_path / "good", 0, GOOD)
    code, out, err = esbench("history", "good", "--html", "h.html", "--repository", given)
    assert (code, out, given in err) == (2, "", True)
    assert not Path("h.html").exists()


def test_the_page_is_written_in_place_of_figures(esbench: Run, tmp_path: Path) -> None:
    write_check(tmp_path / "good", 0, GOOD)
    assert esbench("history", "good", "--html", "h.txt")[0] == 2
    code, out, _ = esbench("history", "good", "--html", "pages/index.html")
    assert (code, "pages/index.html" in out) == (0, True)
    assert not Path("good/figures").exists()
    page, _, _ = Path("pages/index.html").read_text(encoding="utf-8").partition("<script>")
    assert "noopener" not in page


def test_a_cell_that_is_checked_no_more_is_not_shown_as_the_latest(
    esbench: Run, tmp_path: Path
) -> None:
    for number in (0, 1):
        write_check(tmp_path / "checks", number, GOOD)
    new = next((tmp_path / "checks").iterdir())
    content = json.loads(new.read_text())
    content["cells"][0]["environment"] = "Pendulum-v1"
    content["commit_date"] = content["created"] = "2099-01-01T00:00:00+00:00"
    new.write_text(json.dumps(content))
    assert esbench("history", "checks", "--html", "h.html")[0] == 0
    latest = Path("h.html").read_text().partition('id="latest"')[2].partition("</section>")[0]
    (row,) = (line for line in latest.splitlines() if "in no later check" in line)
    assert "CartPole-v1" in row


def test_the_figure_shows_changes_and_equal_digests(tmp_path: Path) -> None:
    write_levels(tmp_path, [0.0, 0.0, -4.0], repeated=2)
    cell = only(tmp_path)
    with style():
        figure = history_drawing(cell).make()
    above, below = figure.axes
    dotted = [line for line in above.get_lines() if line.get_linestyle() == ":"]
    assert [list(np.asarray(line.get_xdata())) for line in dotted] == [[3.5, 3.5]]
    scattered: list[Any] = [part for part in above.collections if part.get_label()[0] != "_"]
    points = {part.get_label(): part for part in scattered}
    assert set(points) == {"digests changed", "same digests", "level"}
    segments = points["level"].get_segments()
    assert [each[:, 0].tolist() for each in segments] == [[-0.4, 3.4], [3.6, 5.4]]
    assert (above.get_ylim()[0] == 0.0, below.get_ylim()[0] == 0.0) == (False, True)
    for name, places in (("digests changed", [0, 2, 4]), ("same digests", [1, 3, 5])):
        assert points[name].get_offsets()[:, 0].tolist() == places
        is_white = (points[name].get_facecolor() == 1).all(axis=1)
        assert is_white.tolist() == [name == "same digests"] * 3
    (text,) = above.texts
    assert cell.checks[4].commit in text.get_text()
    assert [tick.get_text() for tick in below.get_xticklabels()] == [c.commit for c in cell.checks]


def test_files_of_no_check_are_refused(esbench: Run, tmp_path: Path) -> None:
    write_check(tmp_path / "good", 0, GOOD)
    content = json.loads(next((tmp_path / "good").iterdir()).read_text())
    bad = {
        "baseline": {"format": 1, "created": "x"},
        "text": "hello",
        "date": {**content, "commit_date": "yesterday"},
        "short": {**content, "cells": [{**content["cells"][0], "seeds": [0]}]},
        "later": {**content, "format": 2},
        "origin": {**content, "cells": [{**content["cells"][0], "origins": [{"versions": 3}]}]},
    }
    for name in (*bad, "empty", "none"):
        if name != "none":
            (tmp_path / name).mkdir()
        if name in bad:
            (tmp_path / name / "c.json").write_text(json.dumps(bad[name]))
        code, out, err = esbench("history", "good", name)
        assert (code, out, len(err.splitlines()), name in err) == (2, "", 1, True)
