"""Makes the trainer of a trial: from its specification, or in a stored state to score it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from esbench.core.arrays import State
from esbench.core.errors import DamagedTrialError, UsageError
from esbench.core.json_text import Json
from esbench.core.user_code import require_trusted
from esbench.engine.engine import Engine
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.backends.backend import GYMNASIUM
from esbench.experiment.agent_trainer import AgentTrainer
from esbench.experiment.final_policy import HeldOutScore, Which
from esbench.experiment.published_policy import PublishedSearch, load_published, published_policy
from esbench.experiment.search_trainer import SearchTrainer, StartingPolicy
from esbench.experiment.trainer import Ended, Recorder, Trainer
from esbench.grids.trial_spec import StartSpec, TrialSpec
from esbench.results.policy_files import Published, find_policy, is_row_name
from esbench.store.generation_record import GenerationRecord
from esbench.store.trial_folder import TrialFolder, keep_selected_score, recorded_score


def make_trainer(
    spec: TrialSpec,
    pool: Engine | None = None,
    recorder: Recorder | None = None,
    folder: Path | None = None,
    start: bool = True,
    ended: Ended | None = None,
) -> Trainer:
    """The trainer of a trial; the arguments are those of ``Trainer``.

    ``start`` is whether it begins, from the policy of ``spec.init_from`` if that is given; not
    needed before a checkpoint is loaded.

    Raises:
        UsageError: the environment, the policy or a setting is not supported, or the start has
            changed since it was recorded, or has another policy.
    """
    if spec.is_agent:
        return AgentTrainer(spec, pool, recorder, folder, ended)
    source = _source(spec, spec.init_from) if start and spec.init_from is not None else None
    return SearchTrainer(spec, pool, recorder, folder, source, ended)


def require_trusted_trials(specs: Iterable[Json], source: object, trusted: bool) -> None:
    """As ``require_trusted``, also for the trials whose policies training starts from."""
    every = [*specs]
    starts = dict.fromkeys(spec["init_from"]["trial"] for spec in every if spec.get("init_from"))
    for start in starts:
        with contextlib.suppress(UsageError):  # reported by ``make_trainer``
            if is_row_name(start):
                every.append(find_policy(start).entry.spec)
                continue
            every.append(TrialFolder(Path(start)).description()["spec"])
    require_trusted(every, source, trusted)


def _source(spec: TrialSpec, start: StartSpec) -> StartingPolicy:
    """The policy that ``spec`` starts from, in the recorded state."""
    if getattr(spec.algorithm.settings, "center_init", None) is not None:
        raise UsageError("init_from: the algorithm has a center_init too; expected one of them")
    try:
        if is_row_name(start.trial):
            return _of_row(start)
        with (
            WorkerPool(1) as pool,
            stored_trainer(TrialFolder(Path(start.trial)), pool, start.generation) as source,
        ):
            if not isinstance(source, SearchTrainer):
                raise UsageError(f"{source.spec.algorithm.name} is an agent; expected a search")
            if (digest := source.history[-1].digest) != start.digest:
                raise UsageError(
                    f"generation {start.generation} has the digest {digest}; expected the recorded "
                    f"one, {start.digest}"
                )
            return source.as_start()
    except UsageError as error:
        raise UsageError(f"init_from = {start.trial!r}: {error}") from None


def _of_row(start: StartSpec) -> StartingPolicy:
    """The published policy of a row that training starts from."""
    found = find_policy(start.trial)
    if found.digest != start.digest:
        raise UsageError(
            f"the row has the digest {found.digest}; expected the recorded one, {start.digest}"
        )
    spec = found.entry.to_cell().trial_spec(found.seed)
    policy = published_policy(spec, found.arrays, found.generation)
    assert isinstance(policy, PublishedSearch), "latest_start refuses agents"
    return policy.as_start(found.entry.runs[found.run].env_steps)


def backend_of(spec: TrialSpec) -> str:
    """The name of the backend that plays the training episodes of a trial."""
    return GYMNASIUM if spec.policy is None else Setup(spec.environment, spec.policy).backend_name


@final
@dataclass(frozen=True, eq=False)
class StoredScore:
    """The new score of a policy that was stored after a generation, and the recorded one."""

    score: HeldOutScore
    generation: int
    recorded: float | None  # None if not finite, or of another generation or number of episodes
    identical: bool | None  # whether all episodes are the recorded ones, bit for bit
    validated: int | None = None  # the generation that validation has made the final policy


def evaluate_trial(
    path: Path,
    pool: Engine,
    episodes: int | None = None,
    generation: int | None = None,
    which: Which = "last",
) -> StoredScore:
    """Score a checkpoint of the trial in a folder on its held-out episodes.

    By default, that is the latest checkpoint, and as many episodes as the specification says. The
    best center is the best one up to that checkpoint.

    Raises:
        UsageError: the folder holds no trial, a damaged one, or one without that checkpoint or
            without a best center.
    """
    folder = TrialFolder(path)
    with stored_trainer(folder, pool, generation) as trainer:
        score = trainer.evaluate(episodes, which)
        reached = trainer.generation_of(which)
        validated = trainer.validated_generation if which == "last" else None
    result = recorded_score(folder, reached, best=which == "best")
    comparable = result.get("evaluation_episodes") == score.returns.size
    if not comparable:
        return StoredScore(score, reached, None, None, validated)
    return StoredScore(score, reached, result["score"], score.is_identical(result), validated)


def evaluate_row(
    found: Published, pool: Engine, episodes: int | None = None, trusted: bool = False
) -> StoredScore:
    """As ``evaluate_trial``, of the published policy of a row.

    UsageError if it does not fit, or the row names code that is not trusted.
    """
    score = load_published(found, trusted).play(pool, episodes)
    returns, lengths = (found.arrays[name].tolist() for name in ("returns", "lengths"))
    if score.returns.size != len(returns):
        return StoredScore(score, found.generation, None, None)
    recorded = found.entry.cell.trials[found.run].score
    is_same = score.is_identical({"returns": returns, "lengths": lengths})
    return StoredScore(score, found.generation, recorded, is_same)


def keep_best(path: Path, stored: StoredScore) -> None:
    """Keep the score of a finished trial's best policy for tables, unless one is recorded.

    Raises:
        UsageError: the file cannot be written, or another process runs the trial.
    """
    folder = TrialFolder(path)
    planned = folder.description()["spec"]["evaluation"]["episodes"]
    full = stored.score.returns.size == planned
    if folder.is_done and full and stored.recorded is None:
        keep_selected_score(folder, stored.generation, stored.score.as_json)


@contextlib.contextmanager
def stored_trainer(
    folder: TrialFolder, pool: Engine, generation: int | None = None
) -> Iterator[Trainer]:
    """The trainer of a trial in the state of a checkpoint, by default the latest.

    Raises:
        UsageError: as ``evaluate_trial``.
    """
    spec = folder.spec()
    state = folder.load_checkpoint(generation)
    if state is None and spec.is_agent and folder.is_done:
        raise UsageError(
            f"{folder.path} has no stored policy: {spec.algorithm.name} has no state_dict"
        )
    if state is None:
        raise UsageError(f"{folder.path} has no checkpoint yet; expected a trained trial")
    history = folder.records()[: state["progress"]["generation"]]
    with resumed_trainer(folder, spec, pool, state, history) as trainer:
        yield trainer


def resumed_trainer(
    trial: TrialFolder,
    spec: TrialSpec,
    pool: Engine,
    state: State | None,
    history: Sequence[GenerationRecord],
    recorder: Recorder | None = None,
    folder: Path | None = None,
    ended: Ended | None = None,
) -> Trainer:
    """The trainer of a trial in the state after ``history``; a new one if there is no state.

    DamagedTrialError if the state lacks the reference batch of the policy.
    """
    trainer = make_trainer(spec, pool, recorder, folder, state is None, ended)
    if state is None:
        return trainer
    try:
        trainer.load_state_dict(state, history)
    except BaseException as error:
        trainer.close()
        if not isinstance(error, UsageError):
            raise
        remedy = f"remove the folder {trial.path} to train the trial again"
        raise DamagedTrialError(f"{trial.path / 'checkpoint'}: {error}; {remedy}") from None
    return trainer
