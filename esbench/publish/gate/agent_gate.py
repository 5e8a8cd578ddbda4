"""The gate for agents that a library's own tests train: their scores against a baseline."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, final, get_args

import numpy as np
import pytest

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError, require_choice, require_finite, require_text
from esbench.core.escape import one_line
from esbench.core.seeding import LARGEST_SEED
from esbench.core.units import counted, format_number, format_percent
from esbench.grids.environment_files import Scores, environment_names, load_environment
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.publish.gate.check import CheckReport
from esbench.publish.gate.choose_margin import with_margins
from esbench.publish.gate.match_baseline import CellReport
from esbench.publish.gate.render_check import judgment_text
from esbench.results.baselines import (
    Baseline,
    FrozenCell,
    FrozenTrial,
    read_baseline,
    write_baseline,
)
from esbench.results.cell import Cell
from esbench.results.statistics.estimates import tail_mean
from esbench.results.statistics.judgment import (
    ALPHA,
    POWER,
    GateRules,
    Verdict,
    judge,
    resamples_needed,
    seeds_to_fail,
)
from esbench.results.statistics.significance import OMNIBUS
from esbench.store.origin import origin_of, place_in
from esbench.store.outputs import only_holder
from esbench.store.provenance import now, provenance

OwnStatistic: TypeAlias = Literal["mean", "tail"]
GIVEN: Final = "given by the test"  # the source of a reference score
NO_NUMBERS: Final = (str, bytes, bool, np.bool_)  # although float() takes them
FEWEST_EQUAL: Final = 3  # seeds whose equal scores are no chance
ALLOWED: Final = "it passes with --esbench-allow-inconclusive"
LOST: Final = "its test has failed before scores were compared"


class ScoredAgent(Protocol):
    """An agent whose scores can be compared with a baseline."""

    def train(self, seed: int) -> float | Sequence[float]:
        """Train from scratch with a seed and return the score; higher is better.

        Where the tail is judged, return the returns of episodes that training has not seen.
        """


@final
@dataclass(frozen=True)
class AgentGate:
    """Compares agents' scores with the baseline in one file, or freezes them there.

    Attributes:
        test: the test that uses it, which has the cells ``names``.
        owners: the cells of the session by the test that has each.
        found: what was found, in words.
        measured: the cells that were compared, as JSON, with alpha and margin of each.
        frozen: such words by the cells that were written, with the seeds and rules of each.
    """

    path: Path
    update: bool
    allow_inconclusive: bool
    test: str = ""
    names: set[str] = field(default_factory=set)
    owners: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    measured: list[tuple[str, float, float | None]] = field(default_factory=list)
    frozen: dict[str, tuple[str, int, GateRules]] = field(default_factory=dict)

    def of_test(self, test: str) -> AgentGate:
        """The gate of one test in the same session."""
        return replace(self, test=test, names=set())

    def lines(self, baseline: Baseline | None) -> list[str]:
        """What was found and written; ``baseline`` is the file in the end."""
        cells = {} if baseline is None else {cell.name: cell for cell in baseline.cells}
        lines = list(self.found)
        for name, (text, seeds, rules) in self.frozen.items():
            fewest = seeds_to_fail(rules, len(cells) or 1)
            margin = cells[name].margin if name in cells else None
            lines.append(
                text
                + (f", margin {format_percent(margin)}" if margin else "")
                + (f"; no drop can fail with fewer than {fewest} seeds" if seeds < fewest else "")
            )
        return lines

    def __call__(
        self,
        agent: ScoredAgent,
        name: str,
        *,
        environment: str,
        seeds: Iterable[int] = range(8),
        random_score: float | None = None,
        reference_score: float | None = None,
        statistic: OwnStatistic = "mean",
        alpha: float = ALPHA,
        margin: float | None = None,
        equal_scores: bool = False,
    ) -> None:
        """Train an agent and fail the test if its scores dropped.

        Args:
            agent: Has ``train(seed) -> score``, or returns of episodes for the tail.
            name: The name of the agent; with ``environment`` it names the cell.
            environment: Where the agent is trained. Those of ``esbench list environments`` have a
                random and a reference score; for any other, give both.
            seeds: Each is trained once.
            random_score: The score of random actions, one end of the range of drops.
            reference_score: The other end of the range.
            statistic: "mean" judges the score; "tail" the mean of the worst 10 % of the returns.
            alpha: The probability of a false alarm over the whole file.
            margin: The smallest drop that matters, as a share of the range; by default that of the
                file, which fits the spread of the scores.
            equal_scores: Accept that all of three seeds or more have the same score. Below the
                reference score, unless it is that of random actions, it is a sign that ``train``
                does not use its seed.

        Raises:
            UsageError: An argument is wrong, a score is not a number, all seeds have the same one,
                or the file cannot be used.
        """
        __tracebackhide__ = True  # read by pytest
        require_choice("statistic", statistic, get_args(OwnStatistic))
        require_text("environment", environment)
        require_text("name", name)
        if isinstance(agent, type) or not callable(getattr(agent, "train", None)):
            raise UsageError(f"{name}: {agent!r}; expected an object with train(seed) -> score")
        rules = GateRules(alpha, margin)
        scale = _scale(environment, random_score, reference_score)
        cell = f"{name} on {environment}"
        self._claim(cell)
        baseline = self._baseline()  # before anything is trained
        frozen = None
        if baseline is not None and not self.update:
            frozen = self._frozen(
                baseline,
                cell,
                episode_statistic=statistic,
                random_score=random_score,
                reference_score=reference_score,
            )
            resamples_needed(rules, len(baseline.cells))
        trials = tuple(
            FrozenTrial(seed=seed, score=_score(agent.train(seed), name, seed, statistic))
            for seed in _seeds(seeds)
        )
        if not equal_scores:
            _require_several_scores(cell, trials, **scale)
        measured = FrozenCell(
            environment=environment,
            algorithm=name,
            policy=DEFAULT_LABEL,
            episode_statistic=statistic,
            trials=trials,
            **scale,
        )
        if baseline is None or frozen is None:
            self._freeze(measured, rules)
        else:
            self.measured.append((measured.model_dump_json(), alpha, margin))
            report = _compared(measured, frozen, baseline, rules)
            if problem := self._problem(report):
                pytest.fail(one_line(problem), pytrace=False)

    def _claim(self, cell: str) -> None:
        """Raises UsageError if this test or another one has a cell of that name."""
        owner = self.owners.setdefault(cell, self.test)
        if owner != self.test or cell in self.names:
            raise UsageError(f"{cell} is already checked by {owner}; expected another name")
        self.names.add(cell)

    def leave(self) -> None:
        """Forget the cells of this test, which is skipped."""
        for name in self.names:
            self.owners.pop(name, None)

    def _baseline(self) -> Baseline | None:
        """The content of the file; None if it is to be written for the first time."""
        if self.path.exists():
            return read_baseline(self.path)
        if not self.update:
            raise UsageError(f"no file {str(self.path)!r}; write it with: pytest --esbench-update")
        return None

    def _frozen(self, baseline: Baseline, cell: str, **given: object) -> FrozenCell:
        """The cell of the file; the test fails without one.

        UsageError if a value that the test gives is not that of the file.
        """
        frozen = next((each for each in baseline.cells if each.name == cell), None)
        if frozen is None:
            problem = f"{cell} is not in {self.path}; freeze it with --esbench-update"
            pytest.fail(one_line(problem), pytrace=False)
        for key, value in given.items():
            if value is not None and value != (used := getattr(frozen, key)):
                raise UsageError(
                    f"{key} = {value!r}: {self.path} has {used!r} for {cell}; expected that, or "
                    "freeze it with --esbench-update"
                )
        return frozen

    def _freeze(self, measured: FrozenCell, rules: GateRules) -> None:
        """Write a cell in place of one with the same name."""
        if all(trial.score is None for trial in measured.trials):
            raise UsageError(f"{measured.name}: no seed has a finite score")
        lock = self.path.with_name(f".{self.path.name}.lock")
        with only_holder(lock, f"another process writes {self.path}"):
            known = self._baseline()  # again, because training takes long
            write_baseline(self.path, _joined(measured, known), replace=True)
        stored = known.cells if known else ()
        shown = [*(cell for cell in stored if cell.name == measured.name), measured]
        cells = [each.to_cell(()) for each in shown]
        means = " -> ".join(_mean_text(cell, np.array(cell.scores)) for cell in cells)
        text = f"frozen: {measured.name}: mean {means}"
        self.frozen[measured.name] = text, len(measured.trials), rules

    def _problem(self, report: CellReport) -> str:
        """Empty if the test passes."""
        ours, theirs, verdict = report.cell, report.frozen, report.verdict
        assert ours is not None
        means = f"mean {_mean_text(ours, report.scores)}"
        means += f", baseline {_mean_text(theirs, report.baseline_scores)}"
        words = "" if _repeats(ours, theirs) else f": {judgment_text(report.looks[-1])}"
        text = f"{ours.title}: {verdict.value}: {means}{words}"
        if verdict is Verdict.REGRESSION:
            return text
        if report.reason and not self.allow_inconclusive:
            return f"{ours.title}: {Verdict.INCONCLUSIVE.value}: {report.reason} ({ALLOWED})"
        if verdict is Verdict.INCONCLUSIVE and not self.allow_inconclusive:
            return f"{text} ({ALLOWED})"
        self.found.append(text)
        return ""

    def report(self, baseline: Baseline) -> CheckReport | None:
        """The check of all cells that tests of the session have; None if it is of none.

        ``baseline`` is the file in the end. A cell whose test has failed too early has no scores.
        """
        frozen = {cell.name: cell for cell in baseline.cells}
        cells, lost = [], {name: frozen[name] for name in self.owners if name in frozen}
        last: dict[str, tuple[FrozenCell, float, float | None]] = {}  # of a test that ran twice
        for content, alpha, margin in self.measured:
            own = FrozenCell.model_validate_json(content)
            last[own.name] = own, alpha, margin
        for own, alpha, margin in last.values():
            if lost.pop(own.name, None):
                rules = GateRules(alpha, margin)
                cells.append(_compared(own, frozen[own.name], baseline, rules))
        cells += [CellReport(cell.to_cell(()), reason=LOST) for cell in lost.values()]
        if not cells:
            return None
        alpha = self.measured[0][1] if self.measured else ALPHA
        rules = GateRules(alpha, statistics=baseline.statistics)
        return CheckReport(tuple(cells), rules, False, self.allow_inconclusive, new=())


def _joined(measured: FrozenCell, known: Baseline | None) -> Baseline:
    """A baseline with a cell in place of one with the same name, and margins that fit."""
    here, stored = provenance(), known.cells if known else ()
    origins = list(known.origins if known else ())
    made = {"origin": place_in(origins, origin_of(here))}
    trials = tuple(trial.model_copy(update=made) for trial in measured.trials)
    others = [cell for cell in stored if cell.name != measured.name]
    baseline = Baseline(
        created=now(),
        command=here["command"],
        statistics=known.statistics if known else OMNIBUS,
        origins=tuple(origins),
        cells=(*others, measured.model_copy(update={"trials": trials})),
    )
    return with_margins(baseline, POWER)


def _compared(
    measured: FrozenCell, frozen: FrozenCell, baseline: Baseline, rules: GateRules
) -> CellReport:
    """What a cell of the baseline and the scores of a test say; the reason is a lack of seeds."""
    ours, theirs = measured.to_cell(()), frozen.to_cell(())
    theirs = replace(theirs, margin=rules.margin or theirs.margin)
    few = len(ours.seeds) < len(theirs.seeds)
    reason = f"{counted(len(ours.seeds), 'seed')}; expected {len(theirs.seeds)}" if few else ""
    report = CellReport(theirs, ours, reason, digests_detail="esbench has not trained it")
    others = [None] * (len(baseline.cells) - 1)
    rules = replace(rules, statistics=baseline.statistics)
    judgment, *_ = judge([report.sample, *others], rules)
    assert judgment is not None
    verdict = judgment.verdict
    if _repeats(ours, theirs):
        verdict = Verdict.NO_WORSE
    if few and verdict is not Verdict.REGRESSION:
        verdict = Verdict.INCONCLUSIVE
    return replace(report, verdict=verdict, looks=(judgment,))


def _repeats(ours: Cell, theirs: Cell) -> bool:
    """Whether every seed has the score of the baseline."""
    return _scores(ours).items() <= _scores(theirs).items()


def _require_several_scores(
    name: str, trials: Sequence[FrozenTrial], reference_score: float, random_score: float, **_: Any
) -> None:
    """Raises UsageError if all seeds have one score that the task does not explain.

    Every seed may reach the best score, or fail: the ends of the range are no sign of an error.
    """
    scores = {trial.score for trial in trials}
    score = min((each for each in scores if each is not None), default=random_score)
    at_end = score == random_score or score >= reference_score
    if len(trials) < FEWEST_EQUAL or len(scores) > 1 or at_end:
        return
    raise UsageError(
        f"{name}: all {len(trials)} seeds gave the same score {score!r}; does train() use its "
        "seed? If each of them is trained by itself, pass equal_scores=True"
    )


def _scores(cell: Cell) -> dict[int, float | None]:
    return {run.seed: run.scored(cell.statistic) for run in cell.runs}


def _mean_text(cell: Cell, scores: Floats) -> str:
    """The mean of a cell's scores, and the numbers of seeds and of those that diverged."""
    note = f", {cell.diverged} diverged, counted as the worst" if cell.diverged else ""
    if len(cell.runs) >= FEWEST_EQUAL and len({*_scores(cell).values()}) == 1:
        note += ", all equal"
    return f"{format_number(float(scores.mean()))} ({counted(len(cell.runs), 'seed')}{note})"


def _scale(environment: str, random: float | None, reference: float | None) -> dict[str, Any]:
    """As fields of a cell."""
    names = environment_names()
    scores = load_environment(environment).scores if environment in names else Scores()
    source = GIVEN
    if random is None and scores.random:
        random = scores.random.mean
    if reference is None and scores.references:
        reference, source = scores.references[0].score, scores.references[0].source
    if random is None or reference is None:
        near = get_close_matches(environment, {*names} - {environment}, n=1, cutoff=0.8)
        meant = f"did you mean {near[0]!r}, or give " if near else "expected "
        raise UsageError(
            f"environment={environment!r} has no random or reference score; {meant}"
            "random_score= and reference_score="
        )
    require_finite("random_score", random)
    require_finite("reference_score", reference)
    if not 0 < reference - random < math.inf:
        raise UsageError(
            f"random_score = {random}, reference_score = {reference}: expected a larger reference "
            "score, because higher is better; a cost needs a minus sign"
        )
    return {
        "random_score": float(random),
        "reference_score": float(reference),
        "reference_source": source,
    }


def _seeds(seeds: Iterable[int]) -> list[int]:
    try:
        found = [operator.index(seed) for seed in seeds]
    except TypeError:
        found = []
    distinct = len(set(found)) == len(found) > 0
    if not distinct or not 0 <= min(found) <= max(found) <= LARGEST_SEED:
        raise UsageError(
            f"seeds = {seeds!r}: expected one or more distinct integers from 0 to {LARGEST_SEED}"
        )
    return found


def _score(value: Any, name: str, seed: int, statistic: OwnStatistic) -> float | None:
    """The episode statistic of what an agent returned; None if not finite."""
    expected = "a number" if statistic == "mean" else "the returns of one or more episodes"
    try:
        values = [value] if statistic == "mean" else [*value]
        if not values or isinstance(value, bytes) or any(isinstance(v, NO_NUMBERS) for v in values):
            raise TypeError
        numbers = [float(each) for each in values]
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name}.train({seed}) returned {value!r}; expected {expected}") from None
    score = numbers[0] if statistic == "mean" else tail_mean(numbers)
    return score if math.isfinite(score) else None
