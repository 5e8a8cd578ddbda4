import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_trials import write_one, write_runs, write_scores

from esbench.publish.figures.across import performance_profile, target_ecdf
from esbench.publish.figures.chart import Chart, Curve, chart_drawing
from esbench.publish.figures.style import cell_styles
from esbench.results.sources import read_folder

BOTH = ("CartPole-v1", "Acrobot-v1")


@pytest.fixture(autouse=True)
def _frozen_scores_of_two(freeze: Callable[..., None]) -> None:
    for name in BOTH:
        freeze(name)
    freeze("MountainCar-v0", 0.0, 0.0)  # a reference no better than random actions
    freeze("Pendulum-v1", text="scores.solved = 1.0")


def write(root: Path, environment: str, scores: list[float], algorithm: str = "openai_es") -> None:
    write_scores(root, scores, environments=[environment], algorithms={algorithm: {}})


def files(shown: Chart | None) -> dict[str, bytes]:
    assert shown is not None
    return chart_drawing(shown).files()


def ecdf_of(root: Path) -> list[Curve]:
    found = read_folder(root)
    shown = target_ecdf(found, cell_styles(found))
    assert shown is not None
    return list(shown.curves)


def profile_of(root: Path) -> list[Curve]:
    found = read_folder(root)
    shown = performance_profile(found, cell_styles(found))
    assert shown is not None
    return list(shown.curves)


def share_at(line: Curve, steps: float) -> float:
    return float(line.y[np.searchsorted(line.x, steps, side="right") - 1])


def share_above(line: Curve, score: float) -> float:
    return float(np.interp(score, line.x, line.y))


def test_the_ecdf_counts_triples_and_environments_weigh_the_same(tmp_path: Path) -> None:
    # The mean of five returns is 50 before the fifth update (400 steps), 60 before the sixth.
    write_runs(tmp_path / "a", [[50.0] * 5 + [100.0] * 5])
    write_runs(tmp_path / "b", [[0.0] * 10] * 3, environments=["Acrobot-v1"])
    (line,) = ecdf_of(tmp_path)
    assert line.label == "openai_es (4 runs)"
    assert line.x[0] == 100
    assert line.x[-1] == pytest.approx(1000)
    expected = {395: 0.0, 405: 0.5, 495: 0.5, 505: 0.6, 605: 0.7, 805: 0.9, 905: 1.0, 1000: 1.0}
    for steps, share in expected.items():
        assert share_at(line, steps) == pytest.approx(share / 2), steps


def test_the_ecdf_ends_with_its_own_budget_and_names_missing_environments(tmp_path: Path) -> None:
    for name in BOTH:
        write_runs(tmp_path / "a", [[100.0] * 10], environments=[name])
    short = {"algorithms": {"random_search": {}}, "budget": {"env_steps": 600}}
    write_runs(tmp_path / "b", [[100.0] * 6], **short)
    full, part = ecdf_of(tmp_path)
    assert (full.label, full.x[-1]) == ("openai_es (2 runs)", pytest.approx(1000))
    assert part.label == "random_search (1 of 2 environments, 1 run)"
    assert part.x[-1] == pytest.approx(600)
    assert part.style != full.style


def test_an_ecdf_needs_an_environment_with_both_frozen_scores(tmp_path: Path) -> None:
    for name in ("Pendulum-v1", "MountainCar-v0"):
        write_runs(tmp_path / "a", [[1.0] * 6] * 3, environments=[name])
    changed = {"CartPole-v1": {"kwargs": {"sutton_barto_reward": True}}}
    write_runs(tmp_path / "b", [[1.0] * 6] * 3, environment=changed)
    assert target_ecdf(read_folder(tmp_path), {}) is None


def test_a_profile_is_the_share_of_runs_and_environments_weigh_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a", "CartPole-v1", [0.0, 50.0, 100.0, 150.0])
    write(tmp_path / "a", "Acrobot-v1", [30.0])
    (line,) = profile_of(tmp_path / "a")
    assert line.label == "openai_es (5 runs)"
    assert (line.x[0], line.x[-1]) == (0.0, 1.5)
    expected = {0.1: 1.75, 0.4: 0.75, 0.6: 0.5, 1.1: 0.25, 1.49: 0.25, 1.5: 0.0}
    for score, total in expected.items():
        assert share_above(line, score) == pytest.approx(total / 2), score
    assert np.isnan(line.low).all()  # of a single run in Acrobot


def test_bands_of_a_profile_hold_the_line(tmp_path: Path) -> None:
    for name in BOTH:
        write(tmp_path / "a", name, [10.0, 40.0, 50.0, 80.0])
    write(tmp_path / "a", "CartPole-v1", [0.0] * 3, "snes")
    both, one = profile_of(tmp_path / "a")
    assert one.label == "snes (1 of 2 environments, 3 runs)"
    assert both.style != one.style
    assert ((both.low <= both.y) & (both.y <= both.high)).all()
    assert (both.low < both.high).any()
    np.testing.assert_array_equal(both.x, one.x)


def test_a_diverged_run_is_above_nothing_and_an_unfinished_one_is_left_out(tmp_path: Path) -> None:
    for name in BOTH:
        write(tmp_path / "a", name, [-10.0, 100.0, math.nan])
    write_one(tmp_path / "a", 7)
    (line,) = profile_of(tmp_path / "a")
    assert line.label == "openai_es (6 runs)"
    assert share_above(line, -0.05) == pytest.approx(1 / 3)
    assert (line.x[0], line.x[-1]) == (pytest.approx(-0.1), 1.0)


def test_a_profile_needs_two_environments_with_both_frozen_scores(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Pendulum-v1"):
        write(tmp_path / "a", name, [50.0] * 3)
    assert performance_profile(read_folder(tmp_path / "a"), {}) is None
    write_one(tmp_path / "a", 0, environments=["Acrobot-v1"])
    assert performance_profile(read_folder(tmp_path / "a"), {}) is None
