"""The search of the settings of one algorithm in one environment, and the trials that it runs.

Configurations are chosen in batches, from the results of the batches before. All trials of a batch
run side by side up to a rung of the budget; then the configurations are judged together. So the
search depends neither on the number of workers nor on when it was interrupted.

Successive halving (Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016) stops the worse half at each rung of the budget. With few seeds, that
often stops the best configuration because of one unlucky seed. Here, a configuration is judged when
all its seeds have reached a rung, and stopped only if its best seed is below the median of the
others. ``docs/how-to/tune.md`` has the simulated rate of wrong decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.errors import UsageError
from esbench.core.escape import without_passwords
from esbench.core.json_text import digest_of
from esbench.core.search_space import SearchSpace
from esbench.core.settings import Table
from esbench.experiment.run_trial import check_trials
from esbench.experiment.trials import Trial, grid_trials, require_output_folder
from esbench.experiment.watchers import Outcome
from esbench.grids.expand import Labels, with_settings
from esbench.grids.grid_file import Grid
from esbench.grids.trial_spec import BudgetSpec, TrialSpec, cell_name, differences
from esbench.integrations.optuna_study import Configuration, OptunaStudy, Sampler
from esbench.results.sources import VARIANT_DIGITS
from esbench.results.statistics.estimates import iqm
from esbench.store.find_trials import check_format, has_trials
from esbench.store.outputs import only_holder
from esbench.store.trial_folder import TrialFolder
from esbench.tuning.space import is_integer, nested, search_space, values_of

RUNGS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(1))  # of the budget
FEWEST_OTHERS: Final = 4  # a median of fewer says little
BATCH: Final = 4  # configurations

Play: TypeAlias = Callable[[Sequence[Trial], str], Sequence[Outcome]]
"""Runs trials, all that are not done; the text says which ones."""


@final
@dataclass(frozen=True)
class Search:
    """How the settings are searched: the same for all algorithms of a command.

    Attributes:
        seeds: the training seeds of every configuration.
        sampler: how values are drawn: "tpe" learns from the configurations before.
        seed: of the sampler.
        rungs: shares of the budget at which configurations are judged; the last one is 1.
    """

    seeds: tuple[int, ...]
    sampler: Sampler = "tpe"
    seed: int = 0
    rungs: tuple[Fraction, ...] = RUNGS


@final
@dataclass(frozen=True)
class Study:
    """One algorithm in one environment.

    Attributes:
        spec: a trial with the default settings, and any seed.
        labels: the grid's names of its environment, algorithm and policy.
        key: the algorithm's key in the grid, which its label begins with.
        space: the searched settings.
        search: how they are searched.
        folder: has one folder per configuration.
        store: the configurations and their scores.
        lock: a file that the process which runs the search holds.
    """

    spec: TrialSpec
    labels: Labels
    key: str
    space: SearchSpace
    search: Search
    folder: Path
    store: OptunaStudy
    lock: Path

    @property
    def name(self) -> str:
        """Environment, algorithm and policy as text."""
        return study_name(self.labels)

    @property
    def defaults(self) -> Table:
        """The default values of all settings by dotted name."""
        return values_of(self.spec.algorithm.settings)

    def run(self, count: int, play: Play) -> None:
        """Search until ``count`` configurations are complete, pruned or failed.

        Raises:
            UsageError: the default settings are not supported, or another process runs the search
                or one of its trials.
        """
        with only_holder(self.lock, f"another process runs the search of {self.name}", waits=False):
            self._search(count, play)

    def _search(self, count: int, play: Play) -> None:
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            for number in numbers[len(self.store.configurations[first : numbers.stop]) :]:
                model = type(self.spec.algorithm.settings)
                integers = [name for name in self.space if is_integer(model, name)]
                self.store.choose(number, self.space, integers, self.defaults)
            for rung in range(len(self.search.rungs)):
                self._reach(rung, numbers, play)

    def name_of(self, configuration: Configuration) -> str:
        """The name of a configuration in messages."""
        return f"configuration {configuration.number} of {self.name}"

    def trials(self, configuration: Configuration, share: Fraction) -> list[Trial]:
        """The trials of a configuration, one per seed, up to a share of the budget.

        UsageError if the settings do not fit together.
        """
        name = self.name_of(configuration)
        spec = with_settings(self.spec, nested(configuration.settings), name)
        budget = at_rung(spec.budget, share)
        label = f"{self.labels['algorithm']} #{configuration.number}"
        return [
            Trial(
                spec.model_copy(update={"budget": budget, "seed": seed}),
                {**self.labels, "algorithm": label},
                TrialFolder(self.trial_folder(configuration.number, seed)),
                extend=True,
            )
            for seed in self.search.seeds
        ]

    def trial_folder(self, number: int, seed: int) -> Path:
        """The folder of one trial of a configuration."""
        return self.folder / f"configuration-{number:03}" / f"seed-{seed}"

    def _reach(self, rung: int, numbers: range, play: Play) -> None:
        """Train the configurations that are left up to a rung, and judge them."""
        share = self.search.rungs[rung]
        waiting = [c for c in self._running(numbers) if len(c.rungs) == rung]
        ready = [(c, trials) for c in waiting if (trials := self._checked(c, rung))]
        if ready:
            part = f"{share} of the budget" if share < 1 else "all steps"
            listed = ", ".join(str(configuration.number) for configuration, _ in ready)
            every = [trial for _, trials in ready for trial in trials]
            if "elsewhere" in play(every, f"{self.name}: {part} for configurations {listed}"):
                raise UsageError(
                    f"{self.folder}: another process runs a trial of this search; wait for it"
                )
        for configuration, trials in ready:
            scores = tuple(map(_score, trials))
            rungs = (*configuration.rungs, scores)
            self.store.record(configuration.number, rungs, objective(scores))
        for configuration in self._running(numbers):
            self._judge(configuration, rung)

    def _running(self, numbers: range) -> list[Configuration]:
        chosen = self.store.configurations[numbers.start : numbers.stop]
        return [c for c in chosen if c.state == "running"]

    def _checked(self, configuration: Configuration, rung: int) -> list[Trial]:
        """The trials of a configuration; none if its settings are refused, its worst value."""
        try:
            trials = self.trials(configuration, self.search.rungs[rung])
            if not rung:
                check_trials(trials[:1])
        except UsageError as error:
            if not configuration.number:
                raise
            self.store.tell(configuration.number, -math.inf, str(error))
            return []
        return trials

    def _judge(self, configuration: Configuration, rung: int) -> None:
        """End a configuration that has failed, is clearly worse than the others, or is complete.

        The default settings are never pruned: the best ones are compared with them.
        """
        if len(configuration.rungs) <= rung:
            return
        scores = configuration.rungs[rung]
        others = [
            objective(other.rungs[rung])
            for other in self.store.configurations
            if other.number != configuration.number and len(other.rungs) > rung
        ]
        if self.search.rungs[rung] == 1 or objective(scores) == -math.inf:
            self.store.tell(configuration.number, objective(scores))
        elif configuration.number and _is_clearly_worse(scores, others):
            self.store.tell(configuration.number, None)


def study_name(labels: Labels) -> str:
    """Environment, algorithm and policy as text."""
    return f"{labels['environment']} {cell_name(labels['algorithm'], labels['policy'])}"


def _score(trial: Trial) -> float:
    """The score of a trial; minus infinity if it has failed or is not finite."""
    score = trial.folder.result()["score"] if trial.is_done else None
    return -math.inf if score is None else float(score)


def objective(scores: Sequence[float]) -> float:
    """The IQM of the scores of the seeds; minus infinity, the worst value, if one has failed."""
    return float(iqm(scores)) if np.isfinite(scores).all() else -math.inf


def _is_clearly_worse(scores: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the best seed is below the median objective of enough others at a rung."""
    return len(others) >= FEWEST_OTHERS and max(scores) < float(np.median(others))


def at_rung(budget: BudgetSpec, share: Fraction) -> BudgetSpec:
    """The part of a budget that a rung stands for, rounded up."""
    generations = budget.generations and math.ceil(budget.generations * share)
    steps = math.ceil(budget.env_steps * share)
    return budget.model_copy(update={"env_steps": steps, "generations": generations})


def open_studies(
    grid: Grid, source: str, search: Search, out: Path, storage: str | None = None
) -> list[Study]:
    """The studies of a grid, in its order; the default storage is a journal file in ``out``.

    Raises:
        UsageError: a seed of the search is one of the grid or there twice, a search space is wrong,
            Optuna is not installed, or the storage or the folder belong to another search. No trial
            is changed.
    """
    require_output_folder(out)
    trials = grid_trials(grid, out, source)
    seeds, known = {*search.seeds}, {trial.spec.seed for trial in trials}
    if len(seeds) < len(search.seeds) or seeds & known:
        raise UsageError(
            f"the tuning seeds are {', '.join(map(str, search.seeds))}; expected each seed once, "
            f"and none of the grid's seeds {', '.join(map(str, sorted(known)))}, because the best "
            "settings fit the seeds on which they were found"
        )
    firsts: dict[Path, Trial] = {}
    for trial in trials:
        firsts.setdefault(trial.folder.path.parent, trial)
    found = []
    for trial in firsts.values():
        label = f"{trial.labels['algorithm']} "  # has the values of a sweep too
        key = max((key for key in grid.algorithms if label.startswith(f"{key} ")), key=len)
        model = type(trial.spec.algorithm.settings)
        found.append((trial, key, search_space(model, grid.tune.get(key, {}), source, key)))
    check_format(out)
    file = storage or str(out / "study.journal")
    return [_open_study(trial, key, space, search, file) for trial, key, space in found]


def _open_study(trial: Trial, key: str, space: SearchSpace, search: Search, storage: str) -> Study:
    """The study in the folder of ``trial``; errors as ``open_studies``.

    Agents are judged only at the end of the budget, because they cannot be extended.
    """
    if trial.spec.is_agent:
        search = replace(search, rungs=search.rungs[-1:])
    identity = {
        "spec": {**trial.spec.as_json(), "seed": None},
        "space": {name: setting.text for name, setting in space.items()},
        "seeds": list(search.seeds),
        "sampler": search.sampler,
        "sampler_seed": search.seed,
        "rungs": [str(share) for share in search.rungs],
        "batch": BATCH,
    }
    name, folder = study_name(trial.labels), trial.folder.path.parent
    used = has_trials(folder)
    lost = UsageError(
        f"{folder} holds trials of a search that {without_passwords(storage)} lacks; expected the "
        "storage of that search, or another --out"
    )
    if used and "://" not in storage and not Path(storage).exists():
        raise lost
    address = storage.removeprefix("sqlite:///")
    lock = (folder if "://" in address else Path(address)).absolute()
    busy = f"another process opens {without_passwords(storage)}"
    with only_holder(lock.with_name(f".{lock.name}.lock"), busy):  # it may create the tables
        store = OptunaStudy(storage, name, identity, search.sampler, search.seed)
    if changed := differences(store.stored_identity, identity):
        raise UsageError(
            f"{without_passwords(storage)} holds another search of {name}: {'; '.join(changed)}. "
            "Nothing was changed; give another --storage and --out, or undo the edit"
        )
    if used and not store.configurations:
        raise lost
    lock = lock.with_name(f".{lock.name}-{digest_of(identity)[:VARIANT_DIGITS]}.lock")
    return Study(trial.spec, trial.labels, key, space, search, folder, store, lock)
