"""A study of Optuna (the extra ``tune``): it chooses configurations and stores what they scored.

Every value is drawn by a sampler with a seed of its own, that of (study, configuration, setting).
So a search that was killed and resumed draws the same values as one that was not.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from esbench.core.errors import UsageError
from esbench.core.escape import without_passwords
from esbench.core.json_text import Json
from esbench.core.search_space import SearchSpace, SettingSpace
from esbench.core.seeding import Purpose, stream
from esbench.integrations.library import optional, sqlite_address

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

Sampler: TypeAlias = Literal["tpe", "random"]
ConfigurationState: TypeAlias = Literal["running", "complete", "pruned"]

DATABASES: Final = (".db", ".sqlite", ".sqlite3")
IDENTITY: Final = "esbench"  # attributes
SAMPLED: Final = "sampled"
MIN_COMPLETE: Final = 10  # configurations for importances
RUNGS: Final = "rungs"
PROBLEM: Final = "problem"


@final
@dataclass(frozen=True)
class Configuration:
    """One configuration of a study, as the storage has it.

    Attributes:
        number: from 0; configuration 0 has the default settings.
        settings: the searched settings by dotted name; those of the default are incomplete if some
            of them lie outside of the space.
        state: "running" until its scores are stored, even if the search was killed.
        rungs: the scores of the seeds at each rung that it reached; minus infinity for a failure.
        value: the objective, or None.
        problem: why the settings were refused, if they were.
    """

    number: int
    settings: Json
    state: ConfigurationState
    rungs: tuple[tuple[float, ...], ...]
    value: float | None
    problem: str


@final
class OptunaStudy:
    """A stored search of the settings that maximize an objective."""

    def __init__(
        self, storage: str, name: str, identity: Json, sampler: Sampler, seed: int
    ) -> None:
        """Open or create a study; ``identity`` is what its results depend on.

        ``stored_identity`` is that of an opened study, which the caller compares.

        Raises:
            UsageError: Optuna is not installed, or the storage cannot be opened.
        """
        self._storage, self._sampler, self._seed = storage, sampler, seed
        with self._using():
            self._study = _optuna().create_study(
                storage=_storage(storage),
                study_name=name,
                direction="maximize",
                load_if_exists=True,
            )
            stored = self._study.user_attrs.get(IDENTITY)
            if stored is None:
                self._study.set_user_attr(IDENTITY, json.dumps(identity))
        self.stored_identity: Json = identity if stored is None else json.loads(stored)

    @property
    def configurations(self) -> list[Configuration]:
        """All configurations that were completely chosen, by number."""
        trials = self._study.get_trials(deepcopy=False)
        return [_configuration(trial) for trial in trials if SAMPLED in trial.user_attrs]

    def choose(
        self, number: int, space: SearchSpace, integers: Sequence[str], defaults: Json
    ) -> None:
        """Draw the values of configuration ``number``, the first one that is not completely chosen.

        Configuration 0 has the default values that lie in the space. ``integers`` are the settings
        with whole numbers, ``defaults`` the default values of all settings, by dotted name.

        Raises:
            UsageError: another process chooses configurations at the same time.
        """
        active = {
            name: _as_parameter(defaults[name])
            for name, setting in space.items()
            if setting.is_active(defaults) and setting.contains(defaults.get(name))
        }
        with self._using():
            if not self._study.get_trials(deepcopy=False):
                self._study.enqueue_trial(active)
            trial = self._unfinished(number)
            values: Json = {}
            for index, (name, setting) in enumerate(space.items()):
                wanted = setting.is_active({**defaults, **values}) if number else name in active
                if wanted:
                    self._seed_sampler(number, index + 1)
                    values[name] = _suggest(trial, name, setting, name in integers)
            trial.set_user_attr(SAMPLED, True)

    def record(self, number: int, rungs: Sequence[Sequence[float]], objective: float) -> None:
        """Store the scores of the seeds at all rungs so far, and the objective at the last one."""
        # JSON has no infinity.
        scores = [[s if math.isfinite(s) else str(s) for s in one] for one in rungs]
        with self._using():
            trial = self._running(number)
            trial.report(objective, len(rungs) - 1)
            trial.set_user_attr(RUNGS, json.dumps(scores))

    def tell(self, number: int, value: float | None, problem: str = "") -> None:
        """End a configuration with its objective; None if it was pruned."""
        state = _optuna().trial.TrialState.PRUNED if value is None else None
        with self._using():
            if problem:
                self._running(number).set_user_attr(PROBLEM, problem)
            self._study.tell(number, value, state=state)

    def importances(self) -> dict[str, float]:
        """The share of each setting in being among the best tenth, by PED-ANOVA.

        Empty with fewer than ``MIN_COMPLETE`` complete configurations, which have no best tenth.
        One that has failed is not complete.
        """
        complete = [
            c for c in self.configurations if c.value is not None and math.isfinite(c.value)
        ]
        if len(complete) < MIN_COMPLETE:
            return {}
        importance = _optuna().importance
        with self._using():
            evaluator = importance.PedAnovaImportanceEvaluator()
            return dict(importance.get_param_importances(self._study, evaluator=evaluator))

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Turn errors of the storage into a UsageError, without warnings about new functions."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="optuna")
                warnings.filterwarnings("ignore", category=_optuna().exceptions.ExperimentalWarning)
                yield
        except UsageError:
            raise
        except Exception as error:  # of the file system, of SQLAlchemy or of a database driver
            reason = str(error.__cause__ or error).partition("\n")[0]
            raise UsageError(
                f"--storage {without_passwords(self._storage)}: cannot be read or written "
                f"({type(error).__name__}: {reason}); expected a new file, or one that 'esbench "
                "tune' has written"
            ) from error

    def _unfinished(self, number: int) -> Trial:
        """A new trial, or the one that was begun when a process was killed."""
        trials = self._study.get_trials(deepcopy=False)
        if number < len(trials) and trials[number].state.name == "RUNNING":
            return self._running(number)
        self._seed_sampler(number, 0)
        trial = self._study.ask()
        if trial.number != number:
            raise UsageError("another process chooses configurations of this study; wait for it")
        return trial

    def _running(self, number: int) -> Trial:
        trial = self._study.get_trials(deepcopy=False)[number]
        return _optuna().trial.Trial(self._study, trial._trial_id)

    def _seed_sampler(self, number: int, draw: int) -> None:
        """Let the next value be drawn from a stream of its own."""
        samplers = _optuna().samplers
        seed = int(stream(self._seed, Purpose.TUNING, number, draw).integers(2**32))
        self._study.sampler = (
            samplers.RandomSampler(seed=seed)
            if self._sampler == "random"
            else samplers.TPESampler(seed=seed, multivariate=False, constant_liar=True)
        )


def _optuna() -> Any:
    optuna = optional("optuna", "tune", "tuning")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _storage(name: str) -> BaseStorage:
    """A database by its URL or suffix, else a journal file."""
    storages = _optuna().storages
    if "://" in name:
        return storages.RDBStorage(name)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in DATABASES:
        return storages.RDBStorage(sqlite_address(path, "tune", "tuning"))
    # Optuna would append to the incomplete line, and never read the file again.
    if path.is_file() and path.read_bytes()[-1:] not in {b"", b"\n"}:
        raise UsageError(
            f"--storage {name}: the last line is incomplete; expected a file that 'esbench tune' "
            "has written: remove that line, and the same command continues the search"
        )
    return storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))


def _suggest(trial: Trial, name: str, space: SettingSpace, integer: bool) -> Any:
    if space.choices:
        return _as_setting(trial.suggest_categorical(name, [*map(_as_parameter, space.choices)]))
    assert space.low is not None
    assert space.high is not None
    if integer:
        return trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
    return trial.suggest_float(name, space.low, space.high, log=space.log)


def _as_parameter(value: Any) -> Any:
    """A choice as Optuna stores it: a list as text."""
    return json.dumps(value) if isinstance(value, list) else value


def _as_setting(value: Any) -> Any:
    """The inverse of ``_as_parameter``."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _configuration(trial: FrozenTrial) -> Configuration:
    states: Mapping[str, ConfigurationState] = {"COMPLETE": "complete", "PRUNED": "pruned"}
    rungs = json.loads(trial.user_attrs.get(RUNGS, "[]"))
    state = states.get(trial.state.name, "running")
    return Configuration(
        number=trial.number,
        settings={name: _as_setting(value) for name, value in trial.params.items()},
        state=state,
        rungs=tuple(tuple(map(float, rung)) for rung in rungs),
        value=trial.value if state == "complete" else None,
        problem=trial.user_attrs.get(PROBLEM, ""),
    )
