"""Suites of invented entries: their cells, their figures and the generated pages with results."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import results_pages
from checkout import LEADERBOARD
from comparisons import CHOSEN_ON, EXPECTED, PAIRS, best_words, compared, expected, without_chosen
from fake_entries import fake_suite, write_board
from results_pages import films_text
from results_parts import best_table, overall_table, tuning
from results_tables import environment_table, results, suite_results
from scipy.stats import permutation_test, trim_mean
from suite import draw

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.files import distinct_names, safe_name
from esbench.core.settings import Table
from esbench.core.units import format_number, format_share
from esbench.publish.figures.chart import Chart, Curve, grid_drawing
from esbench.publish.figures.drawing import Drawing
from esbench.publish.figures.style import BLUE, Style
from esbench.publish.leaderboard.films import Film
from esbench.publish.leaderboard.suites import (
    SettingsOrigin,
    Suite,
    in_every_scale,
    read_suite,
    suite_drawings,
    suite_names,
)
from esbench.results.entries import Entry, read_entry
from esbench.results.statistics.estimates import iqm


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return fake_suite("mujoco-mlp", without=["ars"])


@pytest.fixture(scope="module")
def suite(entries: list[Entry]) -> Suite:
    return read_suite("mujoco-mlp", entries)


# Cells and figures


def with_spec(entry: Entry, part: str, **changes: object) -> Entry:
    spec: Table = entry.cell.spec or {}
    own = {**spec, part: {**spec[part], **changes}}
    return entry.model_copy(update={"cell": entry.cell.model_copy(update={"spec": own})})


def test_suites_are_the_named_grids_that_say_so() -> None:
    assert {"mujoco", "control", "classic"} <= set(suite_names())
    assert not {"quick", "ci"} & set(suite_names())
    with pytest.raises(UsageError, match="mujoco"):
        read_suite("mujoko", [])


def test_every_cell_of_the_grid_has_its_entry_and_the_origin_of_its_settings(suite: Suite) -> None:
    assert suite.environments == ["HalfCheetah-v5", "Hopper-v5"]
    assert len(suite.cells) == 12
    origins = {}
    for cell in suite.cells:
        key = cell.environment, cell.algorithm
        if cell.algorithm == "ars":
            assert (cell.shown, cell.missing) == (None, tuple(range(10)))
        else:
            ((entry, origins[key]),) = cell.entries
            assert (entry.cell.environment, entry.cell.algorithm) == key
            assert cell.missing == (4, 5, 6, 7, 8, 9)
    assert origins["Hopper-v5", "openai_es"] is SettingsOrigin.FILE
    assert origins["Hopper-v5", "snes"] is SettingsOrigin.DEFAULTS


def test_settings_of_the_grid_are_shown_first(
    entries: list[Entry], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from esbench.grids import grid_file

    text = (grid_file.NAMED / "mujoco-mlp.toml").read_text()
    text = text.replace("[algorithms.snes]", "[algorithms.snes]\nsigma = 0.25")
    (tmp_path / "mujoco-mlp.toml").write_text(text)
    monkeypatch.setattr(grid_file, "NAMED", tmp_path)
    tuned = fake_suite("mujoco-mlp", without=["ars", "openai_es", "pgpe", "sep_cma_es", "eggroll"])
    found = read_suite("mujoco-mlp", [*entries, *tuned])
    (cell,) = [c for c in found.cells if (c.environment, c.algorithm) == ("Hopper-v5", "snes")]
    assert [origin for _, origin in cell.entries] == [SettingsOrigin.GRID, SettingsOrigin.DEFAULTS]
    assert cell.shown in tuned
    scores = [format_number(float(iqm(entry.scores))) for entry, _ in cell.entries]
    (row,) = [line for line in tuning([found]).splitlines() if "Hopper" in line]
    assert f" | {scores[0]} | {scores[1]} | " in row
    assert "No cell" in tuning([read_suite("mujoco-mlp", entries)])


def test_another_task_is_not_of_the_suite_and_other_settings_are(entries: list[Entry]) -> None:
    hopper = next(entry for entry in entries if entry.cell.environment == "Hopper-v5")
    assert not read_suite("mujoco-mlp", [with_spec(hopper, "budget", env_steps=7)]).shown
    assert not read_suite("mujoco", entries).shown  # its policy is linear
    own = hopper.cell.spec["algorithm"]["settings"] | {"population_size": 6}  # type: ignore[index]
    (found,) = [
        cell
        for cell in read_suite("mujoco-mlp", [with_spec(hopper, "algorithm", settings=own)]).cells
        if cell.entries
    ]
    assert found.entries[0][1] is SettingsOrigin.OTHER


def test_every_figure_has_every_algorithm_and_environment(suite: Suite) -> None:
    drawings = suite_drawings(suite)
    assert list(drawings) == ["curves", "ranks", "tails", "best-seen", "profile"]
    for name in ("curves", "ranks", "tails", "best-seen"):
        figure = drawings[name].make()
        shown = [axes for axes in figure.axes if axes.get_visible()]
        assert [axes.get_title() for axes in shown] == suite.environments
        (legend,) = figure.legends
        algorithms = {entry.cell.algorithm for entry in suite.shown}
        assert {text.get_text() for text in legend.get_texts()} == algorithms
    with pytest.raises(UsageError, match="mujoco-mlp"):
        suite_drawings(read_suite("mujoco-mlp", []))


@pytest.mark.parametrize("ends", [[], [(500.0, 500.0)], [(0.0, 0.0)]])
def test_a_square_panel_with_one_point_or_none_is_drawn(ends: list[tuple[float, float]]) -> None:
    none = np.zeros(0)
    curves = [
        Curve("_a", "_a", Style(BLUE, "-", "o"), none, none, none, none, end=end) for end in ends
    ]
    chart = Chart(title="Ant-v5", x_label="x", y_label="y", curves=curves, is_square=True)
    (axes,) = grid_drawing([chart], "").make().axes
    assert not ends or axes.get_xlim() == axes.get_ylim()


def test_a_profile_has_the_algorithms_that_have_run_everywhere(
    entries: list[Entry], suite: Suite
) -> None:
    assert in_every_scale(suite) == suite.shown
    lost = suite.shown[0].cell
    kept = in_every_scale(read_suite("mujoco-mlp", [e for e in entries if e.cell != lost]))
    assert {entry.cell.environment for entry in kept} == set(suite.environments)
    names = {entry.cell.algorithm for entry in suite.shown}
    assert {entry.cell.algorithm for entry in kept} == names - {lost.algorithm}


def test_the_script_draws_the_files_of_a_leaderboard(entries: list[Entry], tmp_path: Path) -> None:
    paths = draw("mujoco-mlp", write_board(tmp_path / "board", entries), tmp_path)
    assert [path.name for path in paths][:2] == ["mujoco-mlp-curves.png", "mujoco-mlp-ranks.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


# Pages


@pytest.fixture(scope="module")
def pages(entries: list[Entry], tmp_path_factory: pytest.TempPathFactory) -> Path:
    board = write_board(tmp_path_factory.mktemp("board"), entries)
    out = tmp_path_factory.mktemp("pages")
    (out / "suites").mkdir()
    (out / "suites" / "gone.md").write_text("of an earlier build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_pages, "suite_drawings", two_figures)
        results_pages.generate(board, out)
    return out


def two_figures(suite: Suite) -> dict[str, Drawing]:
    """The cheapest ones; the others have tests of their own."""
    blank = Drawing(1.0, ["snes"], lambda figure, size: {})
    return {"curves": blank, "best-seen": blank}


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    below = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = below.split("\n\n")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_there_is_a_page_for_every_suite_environment_and_algorithm(pages: Path) -> None:
    names = {str(path.relative_to(pages)) for path in pages.rglob("*") if path.is_file()}
    assert {"suites/index.md", "suites/mujoco-mlp.md", "suites/control.md"} <= names
    assert {f"environments/{name}.md" for name in ("Hopper-v5", "HalfCheetah-v5")} <= names
    assert {"algorithms/snes.md", "algorithms/eggroll.md"} <= names
    assert "algorithms/ars.md" not in names  # without a result
    assert {"figures/mujoco-mlp-curves.png", "figures/mujoco-mlp-best-seen.png"} <= names
    assert "suites/gone.md" not in names


def test_a_suite_is_sorted_by_score_and_names_what_is_missing(pages: Path, suite: Suite) -> None:
    text = (pages / "suites" / "mujoco-mlp.md").read_text()
    assert "**Incomplete**: 10 of 12 cells, 40 of 120 seeds" in text
    header, _, *body = rows_of(text, "Hopper-v5")
    assert header[:3] == ["Algorithm", "Score", "95 % interval"]
    *done, absent = body
    assert [row[header.index("Seeds")] for row in done] == ["4/10"] * 5
    assert "ars" in absent[0]
    assert absent[header.index("Seeds")] == "0/10"
    scores = [float(re.sub(r"[^-.\d]", "", row[1])) for row in done]
    assert scores == sorted(scores, reverse=True)
    assert [row[1].startswith("**") for row in done] == [True, False, False, False, False]
    own = suite_results(suite, "Hopper-v5")
    assert scores == pytest.approx([each.cell.score for each in own], rel=2e-4)


def test_every_row_has_its_command_commit_and_file(pages: Path, entries: list[Entry]) -> None:
    for entry in entries:
        name = entry.cell.environment
        for page in (f"environments/{name}", f"algorithms/{entry.cell.algorithm}"):
            text = (pages / f"{page}.md").read_text()
            assert entry.commands[0] in text
            assert entry.file_name in text
            assert "c" * 40 in text


def test_an_environment_shows_the_films_of_its_rows_and_its_other_versions(
    pages: Path, suite: Suite
) -> None:
    text = (pages / "environments" / "Hopper-v5.md").read_text()
    assert "no policies of this environment are published yet" in text
    assert "v4 roughly comparable" in text
    rows = suite_results(suite, "Hopper-v5")
    entry = rows[1].entry.model_copy(update={"policies": "a" * 64})
    filmed = replace(rows[1], row=replace(rows[1].row, entry=entry))
    film = Film(
        environment="Hopper-v5", row=entry.file_name, name="Hopper-v5/<b>`\n#1", pick="worst",
        policies="a" * 64, seed=3, episode=7, episodes=400, total=12.5, steps=90, shown=50,
    )  # fmt: skip
    shown = films_text([rows[0], filmed], [film])
    assert 'src="../../_static/Hopper-v5-worst.webp"' in shown
    assert "--seed 3 --episode 7 --max-steps 50" in shown
    assert "return 12.5, the lowest of 400 held-out episodes" in shown
    assert "<b>" not in shown
    assert shown.count("`") == 6
    assert len(shown.splitlines()) == 3
    other = film.model_copy(update={"policies": "b" * 64})
    assert "has not been run" in films_text([rows[0], filmed], [other])


def test_a_row_with_a_wide_spread_is_not_worse_although_a_better_one_is() -> None:
    scores = {
        "snes": (100.0, 101.0, 102.0, 103.0, 104.0),
        "pgpe": (90.0, 91.0, 92.0, 93.0, 94.0),
        "openai_es": (50.0, 60.0, 80.0, 110.0, 130.0),
    }
    changed = [
        with_scores(entry, scores[entry.cell.algorithm])
        for entry in fake_suite("mujoco-mlp", seeds=5)
        if entry.cell.environment == "Hopper-v5" and entry.cell.algorithm in scores
    ]
    rows = suite_results(read_suite("mujoco-mlp", changed), "Hopper-v5")
    assert {each.cell.algorithm: each.standing for each in rows} == {
        "snes": "best",
        "pgpe": "",
        "openai_es": "tied",
    }
    for each, line in zip(rows, environment_table(rows).splitlines()[3:], strict=True):
        assert (" = |" in line) == (each.standing == "tied")
    table = best_table({"Hopper-v5": rows}).splitlines()
    cells = dict(zip(*(re.split(r" \| ", line.strip("| ")) for line in table[1::2]), strict=True))
    assert "snes" in cells["Best"]
    assert "openai_es" in cells["="]
    assert "pgpe" not in cells["="]
    assert cells["P(best)"] == format_share(rows[0].row.chance)


def test_overall_scores_are_those_of_all_environments(suite: Suite) -> None:
    rows = {name: suite_results(suite, name) for name in suite.environments}
    table = overall_table([suite], suite.environments).splitlines()[3:]
    assert len(table) == len(rows["Hopper-v5"])
    for line in table:
        name, pooled, _, *shares, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        own = [
            next(each for each in rows[environment] if f"`{each.entry.cell.algorithm}`" in name)
            for environment in suite.environments
        ]
        assert shares == [format_share(each.cell.normalized(each.cell.score)) for each in own]
        assert min(map(float, shares)) <= float(pooled) <= max(map(float, shares))
    assert overall_table([], suite.environments) == ""


def with_scores(entry: Entry, scores: Sequence[float]) -> Entry:
    """The entry with other scores of its seeds."""
    pairs = zip(entry.cell.trials, scores, strict=True)
    trials = tuple(trial.model_copy(update={"score": score}) for trial, score in pairs)
    return entry.model_copy(update={"cell": entry.cell.model_copy(update={"trials": trials})})


@pytest.mark.parametrize("second", ["a_b", "a b", "A/B"])
def test_two_labels_with_one_page_are_refused(second: str) -> None:
    pages = [(f"algorithms/{safe_name(name)}", name) for name in ("a/b", second)]
    with pytest.raises(UsageError, match="expected labels that differ"):
        results_pages.distinct_pages(pages)
    assert len({*distinct_names(["a/b", second, "c"]).values()}) == 3


def test_the_best_search_is_named_beside_an_agent_that_is_better() -> None:
    names = ("Walker2d-v5-csa_es-b76f0e4c", "Walker2d-v5-ppo-e77f7cf6", "Walker2d-v5-snes-2dbded68")
    csa_es, ppo, snes = (read_entry(LEADERBOARD / f"{name}.json") for name in names)
    texts = [
        f"{format_number(trim_mean(each.scores, 0.25))} `{each.cell.algorithm}`"
        for each in (ppo, csa_es, snes)
    ]
    assert best_words(results([snes, csa_es, ppo], {}, {}), "") == ", ".join(texts[:2])
    assert best_words(results([snes, csa_es], {}, {}), "") == texts[1]
    assert best_words(results([snes], {}, {}, "mujoco"), "control") == f"{texts[2]} (mujoco)"


def cells_of(table: str) -> list[list[str]]:
    """The cells of the rows of a Markdown table."""
    rows = table.removeprefix("{.results}\n").splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_compared_rows_have_their_scores_and_an_exact_p_value() -> None:
    names = {*CHOSEN_ON, *(name for _, *pair in PAIRS for name in pair)}
    entries = [read_entry(LEADERBOARD / f"{name}.json") for name in sorted(names)]
    scores = {each.file_name.removesuffix(".json"): np.array(each.scores) for each in entries}

    lines = cells_of(compared(entries))
    assert len(lines) == len(PAIRS)
    for line, (_, *pair) in zip(lines, PAIRS, strict=True):
        assert line[2:4] == [format_number(trim_mean(scores[name], 0.25)) for name in pair]
        test = permutation_test([scores[name] for name in pair], mean_difference, rng=0)
        printed = 0.0 if line[4].startswith("<") else float(line[4])
        assert printed == pytest.approx(test.pvalue, abs=0.02)

    lines = cells_of(without_chosen(entries))
    assert len(lines) == len(CHOSEN_ON)
    for line, (name, seeds) in zip(lines, CHOSEN_ON.items(), strict=True):
        rest = np.delete(scores[name], seeds)  # whose seeds begin at 0
        assert line[2:] == [format_number(trim_mean(x, 0.25)) for x in (scores[name], rest)]


def mean_difference(first: Floats, second: Floats) -> float:
    return float(first.mean() - second.mean())


def test_expected_scores_name_the_best_rows_of_each_environment() -> None:
    suite = read_suite("mujoco", fake_suite("mujoco"))
    rows = {environment: suite_results(suite, environment) for environment in suite.environments}
    lines = cells_of(expected([suite], suite.environments, rows))
    assert [cells[0] for cells in lines] == list(suite.environments)
    for cells, own in zip(lines, rows.values(), strict=True):
        scores = {each.entry.cell.algorithm: format_number(each.cell.score) for each in own}
        assert cells[3:5] == [scores[name] for name in EXPECTED]
        best = own[0]
        assert cells[5].startswith(f"{format_number(best.cell.score)} `{best.cell.algorithm}`")
