"""Areas and tails instead of mean returns: in runs, tables, comparisons, checks and the plugin."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_trials import edit, write_runs, write_scores
from scipy.stats import permutation_test, trim_mean

from esbench.core.errors import UsageError
from esbench.publish.gate import render_check
from esbench.publish.gate.agent_gate import AgentGate
from esbench.publish.gate.check import CheckReport, check
from esbench.publish.gate.match_baseline import DigestResult
from esbench.publish.tables.comparison_table import compare_sides, outcome, sheet
from esbench.publish.tables.score_table import score_table
from esbench.results.baselines import freeze, read_baseline
from esbench.results.run import read_run
from esbench.results.statistics.estimates import EpisodeStatistic
from esbench.results.statistics.judgment import GateRules, Verdict, looks
from esbench.store.trial_folder import TrialFolder

EPISODES = 40
CELL = "CartPole-v1/openai_es"
SCORE = 500.0
GENERATIONS = 10  # of 100 steps: the budget


def write_episodes(root: Path, returns: np.ndarray, **grid: Any) -> Path:
    """Write one done trial for each row of [seeds, episodes] returns."""
    trials = write_scores(root, returns.mean(axis=1).tolist(), **grid)
    for trial, own in zip(trials, returns, strict=True):
        edit(trial.folder.path, "result.json", partial(dict.update, returns=own.tolist()))
    return root


def write_curves(root: Path, returns: np.ndarray, **grid: Any) -> Path:
    """Write one done trial for each row of [seeds, generations] returns; all scores are equal."""
    write_runs(root, [list(row) for row in returns], SCORE, **grid)
    return root


def steady(seed: int, seeds: int = 8) -> np.ndarray:
    """Returns of about 400 in every episode."""
    rng = np.random.default_rng(seed)
    return 400 + rng.normal(0, 4, (seeds, 1)) + rng.normal(0, 2, (seeds, EPISODES))


def falling(seed: int, seeds: int = 8) -> np.ndarray:
    """The same mean, but a quarter of the episodes ends early, at about 340."""
    returns = steady(seed, seeds) + 20
    returns[:, ::4] -= 80
    return returns


def tails(returns: np.ndarray) -> np.ndarray:
    """The mean of the worst tenth of each row, by sorting."""
    return np.sort(returns, axis=1)[:, : EPISODES // 10].mean(axis=1)


def rising(seed: int, time: float = 2.0) -> np.ndarray:
    """Returns [seeds, generations] that approach the score; ``time`` is in generations."""
    noise = np.random.default_rng(seed).normal(0, 5, (8, GENERATIONS))
    return SCORE * (1 - np.exp(-np.arange(GENERATIONS) / time)) + noise


def areas(returns: np.ndarray) -> np.ndarray:
    return returns.mean(axis=1)


# By statistic: how trials are written, equal ones, worse ones, and the statistic of each seed.
Samples = Callable[[int], np.ndarray]
STATISTICS: dict[EpisodeStatistic, tuple[Callable[..., Path], Samples, Samples, Any, str]] = {
    "tail": (write_episodes, steady, falling, tails, "worst 10 %"),
    "area": (write_curves, rising, partial(rising, time=4.0), areas, "learning curve"),
}


@pytest.fixture(params=STATISTICS)
def statistic(request: pytest.FixtureRequest) -> EpisodeStatistic:
    found: EpisodeStatistic = request.param
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_episodes(tmp_path / "base", steady(0))


# Runs


def one_trial(root: Path, returns: list[float], score: float, **grid: object) -> TrialFolder:
    (trial,) = write_runs(root, [returns], score, **grid)
    return trial.folder


@pytest.mark.parametrize(
    ("returns", "score", "area"),
    [
        # The budget is 1,000 steps and a generation has 100.
        ([float(n) for n in range(10)], 9.0, sum(range(10)) / 10),
        ([float(n) for n in range(12)], 99.0, sum(range(10)) / 10),  # none beyond the budget
        ([10.0, 20.0], 50.0, (10 + 20 + 8 * 50) / 10),  # stopped early: the score holds
        ([10.0, math.nan] + [20.0] * 8, 20.0, None),
        ([10.0] * 10, math.nan, None),
    ],
)
def test_the_area_of_a_run_by_hand(
    tmp_path: Path, returns: list[float], score: float, area: float | None
) -> None:
    found = read_run(one_trial(tmp_path, returns, score)).scored("area")
    assert found == (None if area is None else pytest.approx(area))


def test_the_budget_of_a_run_of_few_generations_is_what_it_has_spent(tmp_path: Path) -> None:
    budget = {"env_steps": 1_000_000, "generations": 10}
    folder = one_trial(tmp_path, [float(n) for n in range(10)], 500.0, budget=budget)
    assert read_run(folder).scored("area") == pytest.approx(4.5)


def test_an_agent_and_a_run_without_evaluations_have_no_area(tmp_path: Path) -> None:
    plain = one_trial(tmp_path / "a", [math.nan] * 3, 1.0, evaluation={"center": False})
    agent = one_trial(tmp_path / "b", [1.0] * 10, 1.0, algorithms=["ars"])
    one_trial(tmp_path / "b", [1.0] * 10, 1.0, algorithms=["snes"])
    edit(agent.path, "trial.json", lambda content: content["spec"].update(policy=None))
    for folder in (plain, agent):
        assert read_run(folder).score == 1.0
        with pytest.raises(UsageError, match=r"evaluation\.center"):
            read_run(folder).scored("area")
    search, other = score_table(tmp_path / "b", statistic="area")
    assert (search.algorithm, search.scores) == ("snes", (1.0,))
    assert (other.algorithm, other.scores, other.diverged) == ("ars", (), 0)


def test_a_run_without_an_area_is_counted(tmp_path: Path) -> None:
    broken = [1.0, math.nan, *[1.0] * 8]
    write_runs(tmp_path / "one", [broken, *[[2.0] * 10] * 2], 100.0)
    (row,) = score_table(tmp_path / "one", statistic="area")
    assert (row.diverged, sorted(row.scores)) == (1, [2.0, 2.0, 2.0])
    write_runs(tmp_path / "all", [broken] * 3, 100.0)
    with pytest.raises(UsageError, match="no seed has a finite area"):
        freeze(tmp_path / "all", "", "area")


def test_a_trial_without_episodes_has_no_tail(tmp_path: Path, base: Path) -> None:
    old = write_episodes(tmp_path / "old", steady(1))
    edit(old / CELL / "seed-5", "result.json", lambda content: content.pop("returns"))
    for act in (
        lambda: freeze(old, "", "tail"),
        lambda: check(old, freeze(base, "", "tail"), GateRules()),
        lambda: compare_sides(str(base), str(old), statistic="tail"),
    ):
        with pytest.raises(UsageError, match="seed-5"):
            act()


# Checks


def test_worse_runs_pass_by_their_mean_and_fail_by_another_statistic(
    tmp_path: Path, statistic: EpisodeStatistic
) -> None:
    write, equal, worse, value, _ = STATISTICS[statistic]
    for name, returns in (("base", equal(0)), ("again", equal(2)), ("worse", worse(1))):
        write(tmp_path / name, returns)
    by_mean, declared = (freeze(tmp_path / "base", "", each) for each in ("mean", statistic))

    def judged(name: str, baseline: Any) -> CheckReport:
        return check(tmp_path / name, baseline, GateRules())

    assert judged("worse", by_mean).cells[0].verdict is Verdict.NO_WORSE
    assert judged("again", declared).cells[0].verdict is Verdict.NO_WORSE
    report = judged("worse", declared)
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (Verdict.REGRESSION, 1)
    np.testing.assert_allclose(cell.baseline_scores, value(equal(0)))
    np.testing.assert_allclose(cell.scores, value(worse(1)))
    change = (value(worse(1)).mean() - value(equal(0)).mean()) / (500 - 22.63)
    assert cell.looks[0].change == pytest.approx(change)
    words = render_check.JUDGED_BY[statistic]
    assert words in render_check.notes(report)
    assert words not in render_check.notes(judged("worse", by_mean))
    mean = judged("worse", by_mean).cells[0].frozen
    (named,) = render_check.judged_notes([cell.frozen, replace(mean, environment="Other-v0")])
    assert named == f"{cell.frozen.title}: {words}"
    (content,) = json.loads(render_check.as_json(report))["cells"]
    assert content["episode_statistic"] == statistic


def test_the_same_bits_are_identical_and_another_tail_is_a_change(
    tmp_path: Path, base: Path
) -> None:
    same, declared = write_episodes(tmp_path / "same", steady(0)), freeze(base, "", "tail")
    assert check(same, declared, GateRules()).cells[0].digests is DigestResult.IDENTICAL
    moved = np.sort(steady(0)[3]) + np.linspace(-1, 1, EPISODES)  # the same mean
    edit(same / CELL / "seed-3", "result.json", lambda content: content.update(returns=list(moved)))
    assert check(same, declared, GateRules()).cells[0].digests is DigestResult.CHANGED
    by_mean = check(same, freeze(base, ""), GateRules())
    assert by_mean.cells[0].digests is DigestResult.IDENTICAL
    edit(same / CELL / "seed-0", "result.json", lambda content: content.update(score=None))
    (cell,) = check(same, declared, GateRules()).cells
    assert cell.scores[0] == min(22.63, *cell.scores[1:])  # it diverged


def test_a_sequential_check_judges_the_tail(tmp_path: Path, base: Path) -> None:
    out = write_episodes(tmp_path / "out", falling(5))
    declared = freeze(base, "", "tail")
    report = check(out, declared, GateRules(), sequence=looks(16), train=lambda seeds, trials: None)
    assert report.cells[0].verdict is Verdict.REGRESSION


def test_a_check_has_the_statistic_of_its_baseline(esbench: Run, base: Path) -> None:
    write_episodes(base.parent / "falls", falling(1))
    assert esbench("baseline", "base", "--out", "mean.json")[0] == 0
    assert esbench("baseline", "base", "--out", "tail.json", "--statistic", "tail")[0] == 0
    old = json.loads(Path("mean.json").read_text())
    old["cells"][0].pop("episode_statistic")  # of an earlier version
    Path("old.json").write_text(json.dumps(old))
    for name, code in (("mean.json", 0), ("old.json", 0), ("tail.json", 1)):
        assert esbench("check", "falls", "--baseline", name)[0] == code
    for name, wanted in (("mean.json", "tail"), ("old.json", "tail"), ("tail.json", "mean")):
        code, _, err = esbench("check", "falls", "--baseline", name, "--statistic", wanted)
        assert (code, f"esbench baseline DIR --statistic {wanted}" in err) == (2, True)


def episodes(returns: np.ndarray) -> Any:
    """An agent that returns the returns of its episodes."""
    return SimpleNamespace(train=lambda seed: returns[seed].tolist())


def test_the_plugin_judges_the_tail(tmp_path: Path) -> None:
    path = tmp_path / "b.json"

    def gate(agent: Any, update: bool = False, statistic: Any = "tail") -> None:
        AgentGate(path, update, False)(
            agent, "mine", environment="CartPole-v1", statistic=statistic
        )

    gate(episodes(steady(0)), update=True)
    (cell,) = read_baseline(path).cells
    np.testing.assert_allclose([trial.score for trial in cell.trials], tails(steady(0)))
    gate(episodes(steady(2)))
    with pytest.raises(pytest.fail.Exception, match="regression"):
        gate(episodes(falling(1)))
    plain = SimpleNamespace(train=lambda seed: 400.0)
    with pytest.raises(UsageError, match=r"statistic = 'mean'.*'tail'"):
        gate(plain, statistic="mean")
    with pytest.raises(UsageError, match=r"mine.train\(0\)"):
        gate(plain)
    with pytest.raises(UsageError, match="statistic = 'tial'"):
        gate(plain, statistic="tial")


# Tables and comparisons


def test_tables_and_comparisons_have_the_statistic(
    tmp_path: Path, esbench: Run, statistic: EpisodeStatistic
) -> None:
    write, equal, worse, value, words = STATISTICS[statistic]
    for name, returns in (("openai_es", equal(0)), ("snes", worse(1) + (statistic == "tail") * 40)):
        write(tmp_path / "out", returns, algorithms={name: {}})
    rows = score_table(tmp_path / "out", statistic=statistic)
    assert [(row.name, row.standing) for row in rows] == [("openai_es", "best"), ("snes", "")]
    assert rows[0].scores == pytest.approx(value(equal(0)))
    assert rows[0].score == pytest.approx(trim_mean(value(equal(0)), 0.25))
    assert "better" in outcome(compare_sides("openai_es", "snes", tmp_path / "out", statistic))
    for command in (("table", "out"), ("compare", "openai_es", "snes", "--in", "out")):
        code, out, _ = esbench(*command, "--statistic", statistic)
        assert (code, words in " ".join(out.split())) == (0, True)
        code, out, _ = esbench(*command, "--statistic", statistic, "--format", "json")
        assert (code, f'"statistic": "{statistic}"' in out) == (0, True)
    for more in (("--tail",), ("--which", "best")):
        code, _, err = esbench("table", "out", "--statistic", statistic, *more)
        assert (code, len(err.splitlines())) == (2, 1)


def test_the_p_value_of_a_comparison_is_that_of_scipy(tmp_path: Path, base: Path) -> None:
    falls = write_episodes(tmp_path / "falls", falling(4) + 40)  # a better mean, a worse tail
    sides = compare_sides(str(base), str(falls), statistic="tail")
    (pair,) = sides.pairs
    expected = permutation_test(
        (tails(steady(0)), tails(falling(4) + 40)),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        n_resamples=np.inf,
        vectorized=True,
    )
    assert pair.p_value == pytest.approx(expected.pvalue)
    assert pair.comparison.first == pytest.approx(trim_mean(tails(steady(0)), 0.25))
    assert pair.tails[0] == pytest.approx(np.mean(tails(steady(0))))
    assert "is better than" in outcome(sides)
    assert "is worse than" in outcome(compare_sides(str(base), str(falls)))
    assert "Tails" not in sheet(sides, tail=True).header
