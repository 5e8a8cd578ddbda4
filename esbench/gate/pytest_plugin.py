"""The gate as a pytest plugin: a library's tests compare its agents' scores with a baseline.

    def test_my_agent(esbench_check):
        esbench_check(MyAgent(), "my_agent", environment="CartPole-v1", seeds=range(8))

``MyAgent().train(seed)`` trains from scratch and returns a score; higher is better. The first run
with ``--esbench-update`` freezes the scores in ``--esbench-baseline FILE``. Later runs compare with
them. Every call is one cell. It fails by the rules of ``esbench check``; all cells of a file share
its level.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final, get_args

import pytest

from esbench.analysis.gate import ALPHA, MARGIN, GateRules, Verdict, judge
from esbench.analysis.permutation import OMNIBUS
from esbench.analysis.statistics import EpisodeStatistic, tail_mean
from esbench.errors import UsageError, require_choice
from esbench.gate.baselines import (
    Baseline,
    FrozenCell,
    FrozenTrial,
    read_baseline,
    write_baseline,
)
from esbench.gate.match_baseline import make_sample
from esbench.gate.render_check import judgment_text
from esbench.grids.environment_files import Scores, environment_names, load_environment
from esbench.grids.trial_spec import DEFAULT_LABEL
from esbench.store.provenance.changes import origin_of
from esbench.store.provenance.record import provenance
from esbench.store.trial_folder import now

DEFAULT_BASELINE = "esbench-baseline.json"


class ScoredAgent(Protocol):
    """An agent whose scores can be compared with a baseline."""

    def train(self, seed: int) -> float | Sequence[float]:
        """Train from scratch with a seed and return the score; higher is better.

        Where the tail is judged, return the returns of episodes that training has not seen.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("esbench", "compare scores with a baseline (esbench)")
    group.addoption(
        "--esbench-baseline",
        metavar="FILE",
        default=DEFAULT_BASELINE,
        help=f"the baseline of the scores (default: {DEFAULT_BASELINE})",
    )
    group.addoption(
        "--esbench-update",
        action="store_true",
        help="write the scores to the baseline instead of comparing them",
    )
    group.addoption(
        "--esbench-allow-inconclusive",
        action="store_true",
        help="pass if there are too few seeds to exclude a drop",
    )


@pytest.fixture
def esbench_check(request: pytest.FixtureRequest) -> Gate:
    """A function that compares an agent's scores with the baseline."""
    update = bool(request.config.getoption("--esbench-update"))
    if update and getattr(request.config, "workerinput", None):  # set by xdist
        raise pytest.UsageError("--esbench-update writes one file; expected one process (-n 0)")
    return Gate(
        request.config.rootpath / str(request.config.getoption("--esbench-baseline")),
        update=update,
        allow_inconclusive=bool(request.config.getoption("--esbench-allow-inconclusive")),
    )


@final
@dataclass(frozen=True)
class Gate:
    """Compares agents' scores with the baseline in one file, or freezes them there."""

    path: Path
    update: bool
    allow_inconclusive: bool

    def __call__(
        self,
        agent: ScoredAgent,
        name: str,
        *,
        environment: str,
        seeds: Iterable[int] = range(8),
        random_score: float | None = None,
        reference_score: float | None = None,
        statistic: EpisodeStatistic = "mean",
        alpha: float = ALPHA,
        margin: float = MARGIN,
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
            margin: The smallest drop that matters, as a share of the range.

        Raises:
            UsageError: An argument is wrong, a score is not a number, or the file cannot be used.
        """
        __tracebackhide__ = True  # read by pytest
        require_choice("statistic", statistic, get_args(EpisodeStatistic))
        scale = _scale(environment, random_score, reference_score)
        if not (self.update or self.path.exists()):  # before anything is trained
            raise UsageError(f"no file {str(self.path)!r}; write it with: pytest --esbench-update")
        trials = tuple(
            FrozenTrial(seed=seed, score=_score(agent.train(seed), name, seed, statistic))
            for seed in _seeds(seeds)
        )
        measured = FrozenCell(
            environment=environment,
            algorithm=name,
            policy=DEFAULT_LABEL,
            episode_statistic=statistic,
            trials=trials,
            **scale,
        )
        if self.update:
            self._freeze(measured)
        elif problem := self._problem(measured, alpha, margin):
            pytest.fail(problem, pytrace=False)

    def _freeze(self, measured: FrozenCell) -> None:
        """Write a cell in place of one with the same name."""
        if all(trial.score is None for trial in measured.trials):
            raise UsageError(f"{measured.name}: no seed has a finite score")
        here = provenance()
        origin = origin_of(here)
        known = read_baseline(self.path) if self.path.exists() else None
        others = [cell for cell in known.cells if cell.name != measured.name] if known else []
        origins = known.origins if known else ()
        if origin not in origins:
            origins = (*origins, origin)
        made = {"origin": origins.index(origin)}
        trials = tuple(trial.model_copy(update=made) for trial in measured.trials)
        cells = (*others, measured.model_copy(update={"trials": trials}))
        baseline = Baseline(
            created=now(),
            command=here["command"],
            statistics=known.statistics if known else OMNIBUS,
            origins=origins,
            cells=cells,
        )
        write_baseline(self.path, baseline, replace=True)

    def _problem(self, measured: FrozenCell, alpha: float, margin: float) -> str:
        """Empty if the test passes."""
        baseline = read_baseline(self.path)
        frozen = next((cell for cell in baseline.cells if cell.name == measured.name), None)
        if frozen is None:
            return f"{measured.name} is not in {self.path}; freeze it with --esbench-update"
        if (declared := frozen.episode_statistic) != measured.episode_statistic:
            raise UsageError(
                f"statistic = {measured.episode_statistic!r}: {self.path} has the {declared} of "
                f"{measured.name}; expected {declared!r}, or freeze it with --esbench-update"
            )
        before = {trial.seed: trial.score for trial in frozen.trials}
        if all(before.get(trial.seed, math.nan) == trial.score for trial in measured.trials):
            return ""  # identical scores
        scores = [trial.score for trial in measured.trials]
        others = [None] * (len(baseline.cells) - 1)
        rules = GateRules(alpha, margin, statistics=baseline.statistics)
        judgment = judge([make_sample(frozen, scores), *others], rules)[0]
        assert judgment is not None
        text = f"{measured.name}: {judgment.verdict.value}: {judgment_text(judgment)}"
        if judgment.verdict is Verdict.REGRESSION:
            return text
        if judgment.verdict is Verdict.INCONCLUSIVE and not self.allow_inconclusive:
            return f"{text} (it passes with --esbench-allow-inconclusive)"
        return ""


def _scale(
    environment: str, random_score: float | None, reference_score: float | None
) -> dict[str, Any]:
    """As fields of a cell."""
    known = environment in environment_names()
    scores = load_environment(environment).scores if known else Scores()
    if random_score is None and scores.random:
        random_score = scores.random.mean
    source = "given by the test"
    if reference_score is None and scores.references:
        reference_score, source = scores.references[0].score, scores.references[0].source
    if random_score is None or reference_score is None:
        raise UsageError(
            f"environment={environment!r} has no random or reference score; expected "
            "random_score= and reference_score="
        )
    span = abs(reference_score - random_score)
    if not 0 < span < math.inf:
        raise UsageError(
            f"random_score = {random_score}, reference_score = {reference_score}: expected finite "
            "numbers that differ"
        )
    return {
        "random_score": float(random_score),
        "reference_score": float(reference_score),
        "reference_source": source,
    }


def _seeds(seeds: Iterable[int]) -> list[int]:
    try:
        found = [operator.index(seed) for seed in seeds]
    except TypeError:
        found = []
    if not found or len(set(found)) < len(found) or not 0 <= min(found) <= max(found) < 2**32:
        raise UsageError(
            f"seeds = {seeds!r}: expected one or more distinct integers from 0 to {2**32 - 1}"
        )
    return found


def _score(value: Any, name: str, seed: int, statistic: EpisodeStatistic) -> float | None:
    """The episode statistic of what an agent returned; None if not finite."""
    expected = "a number" if statistic == "mean" else "the returns of one or more episodes"
    try:
        score = float(value) if statistic == "mean" else tail_mean([float(each) for each in value])
        if statistic == "tail" and not len(value):
            raise ValueError
    except (TypeError, ValueError):
        raise UsageError(f"{name}.train({seed}) returned {value!r}; expected {expected}") from None
    return score if math.isfinite(score) else None
