"""Checks that train more seeds until they have a verdict; fake scores in place of training."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_trials import edit, make_records, make_trials, write_scores, write_trial

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial
from esbench.publish.gate.check import CheckReport, check_until_conclusive
from esbench.results.baselines import Baseline, freeze
from esbench.results.statistics.judgment import GateRules, Verdict

GOOD = [480.0, 485.0, 490.0, 491.0, 492.0, 495.0, 498.0, 500.0]
WIDE = [*[300.0] * 2, *[499.0] * 6]  # worse perhaps
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


@pytest.fixture
def baseline(tmp_path: Path) -> Baseline:
    write_scores(tmp_path / "base", [*GOOD, *GOOD])
    return freeze(tmp_path / "base", "")


@pytest.fixture
def check(tmp_path: Path, baseline: Baseline) -> Check:
    def checked(training: Training, max_seeds: int = 32, **rules: float) -> CheckReport:
        return check_until_conclusive(
            tmp_path / "out", baseline, GateRules(**rules), max_seeds, training
        )

    return checked


def test_a_folder_with_a_clear_verdict_is_not_trained_further(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", [score - 100 for score in GOOD])
    training = Training([])
    report = check(training)
    assert (report.cells[0].verdict, report.exit_code) == (Verdict.REGRESSION, 1)
    assert (training.looks, len(report.cells[0].looks)) == ([], 1)


@pytest.mark.parametrize(
    ("more", "verdict", "numbers"),
    [([490.0] * 24, Verdict.NO_WORSE, [16, 32]), ([300.0] * 8, Verdict.REGRESSION, [16])],
    ids=["cleared", "confirmed"],
)
def test_new_seeds_decide_together_with_the_first(
    tmp_path: Path, check: Check, more: list[float], verdict: Verdict, numbers: list[int]
) -> None:
    write_scores(tmp_path / "out", WIDE)
    training = Training(more)
    (cell,) = check(training, margin=0.1).cells
    assert [seeds for seeds, _ in training.looks] == numbers
    assert training.looks[0][1] == list(range(8, 16))
    assert cell.verdict is verdict
    assert (len(cell.looks), len(cell.scores)) == (1 + len(numbers), numbers[-1])
    again = Training([])
    assert check(again, margin=0.1).cells[0].verdict is verdict
    assert again.looks == []


def test_it_ends_at_the_largest_number_of_seeds(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", WIDE)
    training = Training([*WIDE, *WIDE])
    report = check(training, max_seeds=20)
    assert [seeds for seeds, _ in training.looks] == [16, 20]
    assert (report.cells[0].verdict, report.exit_code) == (Verdict.INCONCLUSIVE, 4)
    assert report.looks == (8, 16, 20)


def test_an_interrupted_check_goes_on_with_the_same_seeds(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", WIDE)
    with pytest.raises(StopIteration):
        check(Training(WIDE[:3]))  # seeds 8 to 10
    training = Training([490.0] * 40)
    check(training)
    assert training.looks[0] == (16, list(range(11, 16)))


def write_seeds(root: Path, seeds: Sequence[int], scores: Sequence[float]) -> None:
    for trial, score in zip(make_trials(root, seeds=list(seeds)), scores, strict=False):
        write_trial(trial, make_records([score / 2, score]), score)


def test_an_interrupted_check_trains_the_missing_seeds_of_the_baseline(tmp_path: Path) -> None:
    even = list(range(0, 16, 2))
    write_seeds(tmp_path / "base", even, GOOD)
    baseline = freeze(tmp_path / "base", "")
    write_seeds(tmp_path / "stopped", even[:4], GOOD)
    write_seeds(tmp_path / "damaged", [*even[:3], *even[4:], 15, 16], [490.0] * 9)
    for folder, missing in (("stopped", even[4:]), ("damaged", [6]), ("empty", even)):
        training = Training([490.0] * 8)
        root = tmp_path / folder
        (cell,) = check_until_conclusive(root, baseline, GateRules(), 16, training).cells
        assert training.looks == [(8, missing)]
        assert ([run.seed for run in cell.runs], cell.verdict) == (even, Verdict.NO_WORSE)


def test_looks_at_seeds_that_the_baseline_lacks_stay_the_same(tmp_path: Path) -> None:
    write_seeds(tmp_path / "base", range(10, 20), [*GOOD, *GOOD])
    baseline = freeze(tmp_path / "base", "")
    write_seeds(tmp_path / "out", range(8), WIDE)
    for looks in ([(16, [8, 9, *range(20, 26)])], []):
        training = Training(WIDE)
        (cell,) = check_until_conclusive(
            tmp_path / "out", baseline, GateRules(), 16, training
        ).cells
        assert training.looks == looks
        assert [run.seed for run in cell.runs][:11] == [*range(10), 20]
        assert len(cell.looks) == 2


def test_without_trials_it_begins_with_the_seeds_of_the_baseline(check: Check) -> None:
    training = Training(GOOD)
    (cell,) = check(training).cells
    assert training.looks == [(8, list(range(8)))]
    assert cell.verdict is Verdict.NO_WORSE  # the same bits


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
    (cell,) = check_until_conclusive(tmp_path / "out", frozen, GateRules(), 8, train).cells
    assert [trial.spec.algorithm.settings.model_dump() for trial in trained] == [today] * 8
    assert "sigma_decay" in cell.reason


def test_only_cells_without_a_verdict_are_trained(tmp_path: Path) -> None:
    names = ["CartPole-v1", "Acrobot-v1"]
    for root in ("base", "out"):
        write_scores(tmp_path / root, GOOD, environments=names[:1])
        write_scores(tmp_path / root, [-90.0 - i for i in range(8)], environments=names[1:])
    baseline = freeze(tmp_path / "base", "")
    write_scores(tmp_path / "wide", WIDE, environments=names[:1])
    write_scores(tmp_path / "wide", [-90.0 - i for i in range(8)], environments=names[1:])
    training = Training([490.0] * 24)
    report = check_until_conclusive(tmp_path / "wide", baseline, GateRules(), 16, training)
    assert training.looks == [(16, list(range(8, 16)))]  # of one cell
    looks = {cell.frozen.environment: len(cell.looks) for cell in report.cells}
    assert looks == {"CartPole-v1": 2, "Acrobot-v1": 1}
    assert report.new == ()
    write_scores(tmp_path / "wide", GOOD, algorithms={"snes": {}})
    report = check_until_conclusive(tmp_path / "wide", baseline, GateRules(), 16, training)
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


def test_a_look_does_not_see_seeds_of_later_ones(tmp_path: Path, check: Check) -> None:
    write_scores(tmp_path / "out", [*[490.0] * 8, *[100.0] * 8])
    (cell,) = check(Training([])).cells
    assert (cell.verdict, len(cell.looks), len(cell.scores)) == (Verdict.NO_WORSE, 1, 8)
