"""Tails in the gate, ``compare`` and the pytest plugin: fabricated trials with stored episodes."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_trials import edit, make_records, make_trials, write_trial
from scipy.stats import permutation_test, trim_mean

from esbench.core.errors import UsageError
from esbench.publish.gate import render_check
from esbench.publish.gate.agent_gate import AgentGate
from esbench.publish.gate.check import CheckReport, check, check_until_conclusive
from esbench.publish.gate.match_baseline import DigestResult
from esbench.publish.tables.comparison_table import compare_sides, outcome, sheet
from esbench.publish.tables.score_table import score_table
from esbench.results.baselines import Baseline, freeze, read_baseline
from esbench.results.statistics.judgment import GateRules, Verdict

EPISODES = 40
CELL = "CartPole-v1/openai_es"


def write_episodes(root: Path, returns: np.ndarray, **grid: Any) -> Path:
    """Write one done trial for each row of [seeds, episodes] returns."""
    trials = make_trials(root, seeds=list(range(len(returns))), **grid)
    for trial, own in zip(trials, returns, strict=True):
        score = float(own.mean())
        write_trial(trial, make_records([score / 2, score]), score)
        edit(trial.folder.path, "result.json", partial(dict.update, returns=own.tolist()))
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


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_episodes(tmp_path / "base", steady(0))


def judged(folder: Path, baseline: Baseline, *statistics: Any) -> CheckReport:
    if statistics:
        baseline = baseline.model_copy(update={"statistics": statistics})
    return check(folder, baseline, GateRules())


def test_a_policy_that_falls_passes_by_its_mean_and_fails_by_its_tail(
    tmp_path: Path, base: Path
) -> None:
    falls = write_episodes(tmp_path / "falls", falling(1))
    by_mean, by_tail = freeze(base, ""), freeze(base, "", "tail")
    (passed,), (failed,) = judged(falls, by_mean).cells, judged(falls, by_tail).cells
    assert passed.verdict is Verdict.NO_WORSE
    steady_again = write_episodes(tmp_path / "again", steady(2))
    assert judged(steady_again, by_tail).cells[0].verdict is Verdict.NO_WORSE
    assert failed.verdict is Verdict.REGRESSION
    np.testing.assert_allclose(failed.baseline_scores, tails(steady(0)))
    np.testing.assert_allclose(failed.scores, tails(falling(1)))
    assert judged(falls, by_mean).exit_code == 0
    report = judged(falls, by_tail)
    assert report.exit_code == 1
    drop = (tails(falling(1)).mean() - tails(steady(0)).mean()) / (500 - 22.63)
    assert failed.looks[0].change == pytest.approx(drop)
    assert render_check.JUDGED_BY["tail"] in render_check.notes(report)
    assert render_check.JUDGED_BY["tail"] not in render_check.notes(judged(falls, by_mean))
    content = json.loads(render_check.as_json(report))
    assert content["cells"][0]["episode_statistic"] == "tail"


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


def test_a_table_of_tails_has_their_order_and_marks(esbench: Run, tmp_path: Path) -> None:
    better = falling(6) + 40
    write_episodes(tmp_path / "out", steady(0))
    write_episodes(tmp_path / "out", better, algorithms={"snes": {}})
    by_mean, by_tail = (
        score_table(tmp_path / "out"),
        score_table(tmp_path / "out", statistic="tail"),
    )
    assert [(row.algorithm, row.standing) for row in by_mean] == [
        ("snes", "best"),
        ("openai_es", ""),
    ]
    assert [(row.algorithm, row.standing) for row in by_tail] == [
        ("openai_es", "best"),
        ("snes", ""),
    ]
    assert by_tail[1].score == pytest.approx(trim_mean(tails(better), 0.25))
    np.testing.assert_allclose(by_tail[1].scores, tails(better))
    assert by_mean[0].tail == pytest.approx(np.mean(tails(better)))
    for words in ((), ("--wide",), ("--format", "markdown")):
        code, out, _ = esbench("table", "out", "--statistic", "tail", *words)
        assert (code, "worst 10 %" in " ".join(out.split())) == (0, True)
    code, out, _ = esbench("table", "out", "--statistic", "tail", "--format", "json")
    assert {row["statistic"] for row in json.loads(out)["rows"]} == {"tail"}
    for words in (("--tail",), ("--which", "best")):
        code, _, err = esbench("table", "out", "--statistic", "tail", *words)
        assert (code, len(err.splitlines())) == (2, 1)


def test_the_same_bits_are_identical_and_another_tail_is_a_change(
    tmp_path: Path, base: Path
) -> None:
    same, declared = write_episodes(tmp_path / "same", steady(0)), freeze(base, "", "tail")
    assert judged(same, declared).cells[0].digests is DigestResult.IDENTICAL
    moved = np.sort(steady(0)[3]) + np.linspace(-1, 1, EPISODES)  # the same mean
    edit(same / CELL / "seed-3", "result.json", lambda content: content.update(returns=list(moved)))
    (cell,) = judged(same, declared).cells
    assert cell.digests is DigestResult.CHANGED
    assert judged(same, freeze(base, "")).cells[0].digests is DigestResult.IDENTICAL
    edit(same / CELL / "seed-0", "result.json", lambda content: content.update(score=None))
    (cell,) = judged(same, declared).cells
    assert cell.scores[0] == min(22.63, *cell.scores[1:])  # it diverged


def test_a_trial_without_episodes_has_no_tail(tmp_path: Path, base: Path) -> None:
    old = write_episodes(tmp_path / "old", steady(1))
    edit(old / CELL / "seed-5", "result.json", lambda content: content.pop("returns"))
    for act in (
        lambda: freeze(old, "", "tail"),
        lambda: judged(old, freeze(base, "", "tail")),
        lambda: compare_sides(str(base), str(old), statistic="tail"),
    ):
        with pytest.raises(UsageError, match="seed-5"):
            act()


def test_a_sequential_check_judges_the_tail(tmp_path: Path, base: Path) -> None:
    out = write_episodes(tmp_path / "out", falling(5))
    declared = freeze(base, "", "tail")
    report = check_until_conclusive(out, declared, GateRules(), 16, lambda seeds, trials: None)
    assert report.cells[0].verdict is Verdict.REGRESSION


def test_the_commands(esbench: Run, tmp_path: Path) -> None:
    write_episodes(tmp_path / "base", steady(0))
    write_episodes(tmp_path / "falls", falling(1))
    assert esbench("baseline", "base", "--out", "mean.json")[0] == 0
    assert esbench("baseline", "base", "--out", "tail.json", "--statistic", "tail")[0] == 0
    assert esbench("check", "falls", "--baseline", "mean.json")[0] == 0
    for more in ((), ("--statistic", "tail")):
        assert esbench("check", "falls", "--baseline", "tail.json", *more)[0] == 1
    code, out, _ = esbench("compare", "base", "falls", "--statistic", "tail", "--format", "json")
    assert (code, json.loads(out)["statistic"]) == (0, "tail")
    old = json.loads((tmp_path / "mean.json").read_text())
    old["cells"][0].pop("episode_statistic")  # of an earlier version
    (tmp_path / "old.json").write_text(json.dumps(old))
    for name, wanted in (("mean.json", "tail"), ("old.json", "tail"), ("tail.json", "mean")):
        code, _, err = esbench("check", "falls", "--baseline", name, "--statistic", wanted)
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"esbench baseline DIR --statistic {wanted}" in err
    assert esbench("check", "falls", "--baseline", "old.json")[0] == 0


class Episodes:
    """An agent that returns the returns of its episodes."""

    def __init__(self, returns: np.ndarray) -> None:
        self.returns = returns

    def train(self, seed: int) -> list[float]:
        own: list[float] = self.returns[seed].tolist()
        return own


def test_the_plugin_judges_the_tail(tmp_path: Path) -> None:
    path = tmp_path / "b.json"

    def gate(agent: Any, update: bool = False, statistic: Any = "tail") -> None:
        AgentGate(path, update, False)(
            agent, "mine", environment="CartPole-v1", statistic=statistic
        )

    gate(Episodes(steady(0)), update=True)
    (cell,) = read_baseline(path).cells
    np.testing.assert_allclose([trial.score for trial in cell.trials], tails(steady(0)))
    gate(Episodes(steady(2)))
    with pytest.raises(pytest.fail.Exception, match="regression"):
        gate(Episodes(falling(1)))
    plain = SimpleNamespace(train=lambda seed: 400.0)
    with pytest.raises(UsageError, match=r"statistic = 'mean'.*'tail'"):
        gate(plain, statistic="mean")
    for bad in (400.0, [], None, ["a"]):
        with pytest.raises(UsageError, match=r"mine.train\(0\)"):
            gate(SimpleNamespace(train=lambda seed, bad=bad: bad))
    with pytest.raises(UsageError, match="statistic = 'tial'"):
        gate(plain, statistic="tial")
