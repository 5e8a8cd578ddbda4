"""A run: one training seed, how its final policy played, and what training cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias, final

import numpy as np

from esbench.core.arrays import Floats
from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.units import format_number
from esbench.results.statistics.curves import WINDOW, first_totals, mean_return, policy_returns
from esbench.results.statistics.estimates import EpisodeStatistic, tail_mean
from esbench.store.origin import Origin, origin_of
from esbench.store.trial_folder import Status, TrialFolder

Variety: TypeAlias = Literal["varied", "equal", "one"]
"""Held-out episodes that vary, that are equal for an unknown reason, or that are one and the same.

"one": they are equal, and the seed of an episode makes no difference to the environment. "equal":
they are equal, and it may make one.
"""

COSTS: Final = ("env_steps", "episodes", "cpu_time_s", "wall_time_s")
_WITH_CENTER: Final = "expected a search with evaluation.center = true"
_SCORED_NOW: Final = "expected a trial that this version has scored"
FIRST_DIGESTS: Final = 5  # generations whose digests tell where two runs part


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """One training seed. What its source does not have is None, NaN or empty.

    Attributes:
        description: the recorded content of ``trial.json``: ``spec``, ``versions``, ``command``...
        done: whether training has ended.
        known_scores: the scores that are recorded, None for one that is not finite. Those of a
            folder that are missing are computed from its episodes or rows.
        returns, lengths: of the held-out episodes, None for one that is not finite.
        variety: of these episodes.
        env_steps, generations, wall_time_s, cpu_time_s: of training.
        stopped: why training ended before its budget.
        known_digests: as ``digests``; None to read them from the folder.
        stored: the folder of the run, if it has one.
    """

    seed: int
    description: Json
    done: bool = True
    known_scores: Mapping[EpisodeStatistic, float | None]
    returns: Sequence[float | None] = ()
    lengths: Sequence[float | None] = ()
    variety: Variety = "varied"
    env_steps: float = math.nan
    generations: float = math.nan
    wall_time_s: float = math.nan
    cpu_time_s: float = math.nan
    stopped: str | None = None
    known_digests: tuple[tuple[str, ...], str | None] | None = None
    stored: TrialFolder | None = None

    @property
    def score(self) -> float | None:
        """The mean return of the final policy over held-out episodes; None if not finite."""
        return self.scored("mean")

    @property
    def is_agent(self) -> bool:
        """Whether an agent was trained, not a search."""
        return bool(self.description["spec"]["policy"] is None)

    @property
    def budget(self) -> float:
        """The steps of its budget; those spent, if all of its ``generations`` have ended it."""
        budget, ends = self.description["spec"]["budget"], self.curve["env_steps"]
        steps = float(budget["env_steps"])
        return min(steps, float(ends[-1])) if len(ends) == budget["generations"] else steps

    @property
    def command(self) -> str:
        """The command that made the run; empty if unknown."""
        return self.description.get("command") or ""

    @cached_property
    def origin(self) -> Origin:
        """Versions, hardware, commit and user code with which the run began."""
        return origin_of(self.description)

    @property
    def folder(self) -> TrialFolder:
        """The folder of a run that has one."""
        assert self.stored is not None, "a run of a file has no folder"
        return self.stored

    @property
    def status(self) -> Status:
        """Where the run stands."""
        return "done" if self.done else self.folder.status

    @property
    def tail(self) -> float:
        """The mean of the worst 10 % of the held-out episodes; NaN if unknown or not finite."""
        if "tail" in self.known_scores:
            known = self.known_scores["tail"]
            return math.nan if known is None else known
        return tail_mean([math.nan if value is None else value for value in self.returns])

    @cached_property
    def curve(self) -> Mapping[str, Floats]:
        """The ``COSTS`` after each generation, and the "center_return", [generations] each."""
        columns = self.folder.columns(*COSTS, "center_return")
        return {name: each.astype(np.float64) for name, each in columns.items()}

    @cached_property
    def digests(self) -> tuple[tuple[str, ...], str | None]:
        """The digests of the first generations, and that of the last one."""
        if self.known_digests is not None:
            return self.known_digests
        found = [str(each) for each in self.folder.columns("generation", "digest")["digest"]]
        return tuple(found[:FIRST_DIGESTS]), found[-1] if found else None

    def scored(self, statistic: EpisodeStatistic) -> float | None:
        """The score, the tail or the area; None if it is not finite, or the run is not done.

        Raises:
            UsageError: the returns of its episodes, or of its unperturbed policy, are missing.
        """
        if statistic in self.known_scores or not self.done:
            return self.known_scores.get(statistic)
        if self.known_scores["mean"] is None:
            return None
        if statistic == "area":
            missing, expected = "return of the unperturbed policy during training", _WITH_CENTER
            is_known = not self.is_agent and self.description["spec"]["evaluation"]["center"]
        else:
            missing, expected = "returns of its held-out episodes", _SCORED_NOW
            is_known = bool(self.returns)
        if not is_known:
            raise UsageError(f"{self.folder.path} has no {missing}, so no {statistic}; {expected}")
        value = self.mean_return(self.budget) if statistic == "area" else self.tail
        return value if math.isfinite(value) else None

    def mean_return(self, budget: float) -> float:
        """The mean return in training up to a budget, which the score fills after the run's end.

        It is the area under the learning curve, divided by the budget; NaN if it is not finite.
        """
        score = math.nan if self.score is None else self.score
        return mean_return(self.curve["env_steps"], self.curve["center_return"], score, budget)

    def first_totals(
        self, targets: Floats, window: int = WINDOW, costs: Sequence[str] = COSTS
    ) -> dict[str, Floats]:
        """The cost at which each target was first reached, [targets]; infinity if it was not."""
        score = math.nan if self.score is None else self.score
        values = policy_returns(self.curve["center_return"], score, window)
        if self.is_agent:  # its rows have the return after their steps, those of searches before
            values = np.concatenate([[math.nan], values[:-1]])
            values[-1] = np.fmax(values[-1], score)
        return {cost: first_totals(self.curve[cost], values, targets) for cost in costs}


def read_run(folder: TrialFolder) -> Run:
    """The run of a trial's folder; UsageError if it cannot be read."""
    description = folder.description()
    done = folder.is_done
    result = folder.result() if done else {}
    return Run(
        seed=description["spec"]["seed"],
        description=description,
        done=done,
        known_scores={"mean": result["score"]} if done else {},
        returns=result.get("returns") or (),
        lengths=result.get("lengths") or (),
        variety=variety(result),
        env_steps=result.get("env_steps", math.nan),
        generations=result.get("generations", math.nan),
        wall_time_s=result.get("wall_time_s", math.nan),
        cpu_time_s=result.get("cpu_time_s", math.nan),
        stopped=result.get("stopped"),
        stored=folder,
    )


def has_equal_episodes(result: Json) -> bool:
    """Whether all of several held-out episodes have one return and one length above one step."""
    returns: list[float | None] = result.get("returns") or []
    lengths: list[float | None] = result.get("lengths") or []
    is_one = len(set(returns)) == 1 == len(set(lengths)) and None not in (*returns, *lengths)
    return is_one and len(returns) > 1 and bool(lengths[0] and lengths[0] > 1)


def variety(result: Json) -> Variety:
    """The variety of the held-out episodes in a ``result.json``.

    Unless the environment is known to be deterministic, equal episodes with a whole number as
    reward per step count as varied: 500 in 500 steps of CartPole is the best return.
    """
    if not has_equal_episodes(result):
        return "varied"
    if result.get("deterministic"):
        return "one"
    per_step: float = result["returns"][0] / result["lengths"][0]
    return "varied" if per_step.is_integer() else "equal"


def score_text(result: Json) -> str:
    """The score of a result, with NaN or None, or the number of episodes that were not finite."""
    score, *returns = [
        math.nan if value is None else value
        for value in (result["score"], *result.get("returns", []))
    ]
    if math.isfinite(score):
        return f"score {format_number(score)}"
    bad = sum(not math.isfinite(value) for value in returns)
    why = f" ({bad} of {len(returns)} held-out episodes not finite)" if bad else ""
    return f"score -{why}"
