"""Checks that train more seeds until they have a verdict; fake scores in place of training."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_trials import GOOD, WIDE, edit, make_records, write_scores, write_trial

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial
from esbench.publish.gate.check import CheckReport, Train
from esbench.publish.gate.check import check as check_folder
from esbench.results.baselines import Baseline, freeze
from esbench.results.statistics.judgment import GateRules, Verdict, looks

Check = Callable[..., CheckReport]


class Training:
    """Stores the next of the given scores for each trial, and what was asked for."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = iter(scores)
        self.looks: list[tuple[int, list[int]]] = []

    def __call__(self, seeds: int, trials: Sequence[Trial]) -> None:
        self.looks.append((seeds, [trial.spec.seed for trial in trials]))
        for trial in trials:
            score = next(self.scores)
            write_trial(trial, make_records([score / 2, score]), score)


def look_at(
    folder: Path, baseline: Baseline, rules: GateRules, most: int, train: Train
) -> CheckReport:
    return check_folder(folder, baseline, rules, sequence=looks(most), train=train)


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """A function that checks the trials of a folder with a baseline of sixteen seeds."""
    write_scores(tmp_path / "base", [*GOOD, *GOOD])
    baseline = freeze(tmp_path / "base", "")

    def checked(training: Training, max_seeds: int = 32, **rules: float) -> CheckReport:
        return look_at(tmp_path / "out", baseline, GateRules(**rules), max_seeds, training)

    return checked


EVEN = list(range(0, 16, 2))
SECOND, THIRD = list(range(8, 16)), list(range(16, 32))
# Stored scores, those of trained seeds, looks that train some, the verdict, all looks, and options.
SCENARIOS: dict[str, tuple[Any, ...]] = {
    "a clear verdict is not trained further": (
        [score - 100 for score in GOOD], [], [], Verdict.REGRESSION, 1, {},
    ),
    "a look does not see the seeds of later ones": (
        [490.0] * 8 + [100.0] * 8, [], [], Verdict.NO_WORSE, 1, {},
    ),
    "new seeds clear the first": (
        WIDE, [490.0] * 24, [(16, SECOND), (32, THIRD)], Verdict.NO_WORSE, 3, {"margin": 0.1},
    ),
    "new seeds confirm the first": (
        WIDE, [300.0] * 8, [(16, SECOND)], Verdict.REGRESSION, 2, {"margin": 0.1},
    ),
    "it ends at the largest number of seeds": (
        WIDE, [*WIDE, *WIDE], [(16, SECOND), (20, THIRD[:4])], Verdict.INCONCLUSIVE, 3,
        {"max_seeds": 20},
    ),
    "without trials it begins with the seeds of the baseline": (
        [], GOOD, [(8, list(range(8)))], Verdict.NO_WORSE, 1, {},
    ),
    "missing seeds of the baseline are trained": (
        GOOD[:4], [490.0] * 4, [(8, EVEN[4:])], Verdict.NO_WORSE, 1,
        {"seeds": EVEN[:4], "baseline": EVEN},
    ),
    "a damaged seed of the baseline is trained": (
        [490.0] * 9, [490.0], [(8, [6])], Verdict.NO_WORSE, 1,
        {"seeds": [*EVEN[:3], *EVEN[4:], 15, 16], "baseline": EVEN},
    ),
    "seeds that the baseline lacks stay the first ones": (
        WIDE, WIDE, [(16, [8, 9, *range(20, 26)])], Verdict.INCONCLUSIVE, 2,
        {"baseline": range(10, 20), "max_seeds": 16},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_looks_train_the_seeds_that_they_lack_and_none_again(tmp_path: Path, name: str) -> None:
    stored, trained, trained_looks, verdict, judged, options = SCENARIOS[name]
    seeds = list(options.get("baseline", range(16)))
    write_scores(tmp_path / "base", [*GOOD, *GOOD][: len(seeds)], seeds=seeds)
    if stored:
        write_scores(tmp_path / "out", stored, seeds=options.get("seeds", [*range(len(stored))]))
    baseline = freeze(tmp_path / "base", "")
    rules, most = GateRules(margin=options.get("margin", 0.05)), options.get("max_seeds", 32)
    for expected in (trained_looks, []):
        training = Training(trained)
        report = look_at(tmp_path / "out", baseline, rules, most, training)
        (cell,) = report.cells
        assert training.looks == expected
        assert (cell.verdict, len(cell.looks)) == (verdict, judged)
        assert len(cell.scores) == report.looks[judged - 1]


def test_an_interrupted_check_goes_on_with_the_same_seeds(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", WIDE)
    with pytest.raises(StopIteration):
        check(Training(WIDE[:3]))  # seeds 8 to 10
    training = Training([490.0] * 40)
    check(training)
    assert training.looks[0] == (16, list(range(11, 16)))


def test_it_trains_the_defaults_of_today(tmp_path: Path) -> None:
    trials = write_scores(tmp_path / "base", [*GOOD, *GOOD])
    today = trials[0].spec.algorithm.settings.model_dump()

    def change(description: Any) -> None:
        description["defaults"] = ["sigma_decay"]
        description["spec"]["algorithm"]["settings"]["sigma_decay"] = 0.5

    edit(tmp_path / "base", "trial.json", change)
    trained: list[Trial] = []

    def train(_: int, missing: Sequence[Trial]) -> None:
        trained.extend(missing)
        Training(GOOD)(8, missing)

    frozen = freeze(tmp_path / "base", "")
    (cell,) = look_at(tmp_path / "out", frozen, GateRules(), 8, train).cells
    assert [trial.spec.algorithm.settings.model_dump() for trial in trained] == [today] * 8
    assert "sigma_decay" in cell.reason


def test_nothing_is_added_to_trials_of_other_code(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "esbench.results.baselines.changed_since", lambda c: list(c.get("own_code", ()))
    )
    write_scores(tmp_path / "out", WIDE[:4])
    edit(tmp_path / "out", "trial.json", lambda content: content.update(own_code={"mine": "1"}))
    training = Training([490.0] * 24)
    (cell,) = check(training).cells
    assert training.looks == []
    assert "mine" in cell.reason


def test_only_cells_without_a_verdict_are_trained(tmp_path: Path) -> None:
    names = ["CartPole-v1", "Acrobot-v1"]
    for root, scores in (("base", GOOD), ("wide", WIDE)):
        write_scores(tmp_path / root, scores, environments=names[:1])
        write_scores(tmp_path / root, [-90.0 - i for i in range(8)], environments=names[1:])
    baseline = freeze(tmp_path / "base", "")
    training = Training([490.0] * 24)
    report = look_at(tmp_path / "wide", baseline, GateRules(), 16, training)
    assert training.looks == [(16, list(range(8, 16)))]  # of one cell
    looks = {cell.frozen.environment: len(cell.looks) for cell in report.cells}
    assert looks == {"CartPole-v1": 2, "Acrobot-v1": 1}
    assert report.new == ()
    write_scores(tmp_path / "wide", GOOD, algorithms={"snes": {}})
    report = look_at(tmp_path / "wide", baseline, GateRules(), 16, training)
    assert report.new == ("snes on CartPole-v1",)


def test_a_seed_that_fails_is_not_measured(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", WIDE)

    def fails(seeds: int, trials: Sequence[Trial]) -> None:
        for trial in trials:
            write_trial(trial, [], None, error="Traceback")

    report = check(fails)
    assert (report.cells[0].verdict, report.exit_code) == (Verdict.NOT_MEASURED, 3)


def test_an_alpha_too_small_for_the_smallest_look_is_refused_before_training(check: Check) -> None:
    training = Training(GOOD)  # 36 %, 26 % and 38 % of alpha
    with pytest.raises(UsageError, match=r"alpha = 3e-05 for 1 cell: expected about 3\.8e-05"):
        check(training, alpha=3e-5)
    assert training.looks == []
    check(training, alpha=4e-5)
