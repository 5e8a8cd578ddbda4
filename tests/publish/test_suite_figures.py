from pathlib import Path

import numpy as np
import pytest
from fake_entries import fake_suite
from results_parts import tuning
from suite import draw

from esbench.core.errors import UsageError
from esbench.core.settings import Table
from esbench.core.units import format_number
from esbench.publish.leaderboard.entries import Entry, as_file
from esbench.publish.leaderboard.suite_figures import in_every_scale, suite_drawings
from esbench.publish.leaderboard.suites import SettingsOrigin, Suite, read_suite, suite_names
from esbench.results.statistics.estimates import iqm


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return fake_suite("mujoco-mlp", without=["ars"])


@pytest.fixture(scope="module")
def suite(entries: list[Entry]) -> Suite:
    return read_suite("mujoco-mlp", entries)


def with_spec(entry: Entry, part: str, **changes: object) -> Entry:
    spec: Table = entry.cell.spec or {}
    own = {**spec, part: {**spec[part], **changes}}
    return entry.model_copy(update={"cell": entry.cell.model_copy(update={"spec": own})})


def test_suites_are_the_named_grids_that_say_so() -> None:
    assert {"mujoco", "control", "classic"} <= set(suite_names())
    assert not {"quick", "ci"} & set(suite_names())
    with pytest.raises(UsageError, match="mujoco"):
        read_suite("mujoko", [])


def test_every_cell_of_the_grid_has_its_entry_and_the_origin_of_its_settings(
    suite: Suite,
) -> None:
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


def test_a_profile_has_the_algorithms_that_have_run_everywhere(
    entries: list[Entry], suite: Suite
) -> None:
    assert in_every_scale(suite) == suite.shown
    lost = suite.shown[0].cell
    kept = in_every_scale(read_suite("mujoco-mlp", [e for e in entries if e.cell != lost]))
    assert {entry.cell.environment for entry in kept} == set(suite.environments)
    names = {entry.cell.algorithm for entry in suite.shown}
    assert {entry.cell.algorithm for entry in kept} == names - {lost.algorithm}


def test_a_point_is_the_median_and_the_tail_of_its_cell(suite: Suite) -> None:
    panel = suite_drawings(suite)["tails"].make().axes[0]
    points = {str(line.get_label()): line.get_data() for line in panel.lines}
    for entry in suite.shown[: len(panel.get_legend_handles_labels()[1])]:
        x, y = points[entry.cell.algorithm]
        assert x[0] == pytest.approx(np.mean([run.quantiles[4] for run in entry.runs]))
        assert y[0] == pytest.approx(np.mean([run.tail for run in entry.runs]))


def test_the_script_draws_the_files_of_a_leaderboard(entries: list[Entry], tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    for entry in entries:
        (board / entry.file_name).write_bytes(as_file(entry))
    paths = draw("mujoco-mlp", board, tmp_path)
    assert [path.name for path in paths][:2] == ["mujoco-mlp-curves.png", "mujoco-mlp-ranks.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
