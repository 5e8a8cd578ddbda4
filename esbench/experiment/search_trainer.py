"""The training loop of a search: ask, evaluate, tell, record."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from esbench.algorithms.algorithm_checker import check_search
from esbench.algorithms.base import Algorithm, algorithm_class, is_builtin
from esbench.algorithms.search_settings import MOST_MEMBERS
from esbench.core.arrays import State, Vector
from esbench.core.cores import usable_cores, usable_memory
from esbench.core.errors import EsbenchError, TrainingError, UsageError, require_choice
from esbench.core.population import Population, drawing_threads
from esbench.core.process import interrupts_delayed
from esbench.core.seeding import Purpose, stream
from esbench.core.settings import MOST_PARAMS
from esbench.core.toml_text import toml_line
from esbench.engine.engine import Engine
from esbench.engine.jobs import Episodes, Job, digest, fitness_of, summary
from esbench.engine.setup import Setup
from esbench.environments.backends.backend import GYMNASIUM
from esbench.experiment.diagnostics import Gauge
from esbench.experiment.evaluator import Evaluator
from esbench.experiment.final_policy import BestCenter, HeldOutScore, Validation, Which
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.experiment.trainer import Ended, Progress, Recorder, Trainer
from esbench.experiment.watchers import Stop
from esbench.grids.environment_files import is_proven
from esbench.grids.trial_spec import TrialSpec, differences
from esbench.policies.policy import Policy
from esbench.policies.policy_check import check_own
from esbench.results.statistics.curves import WINDOW
from esbench.store.generation_record import GenerationRecord

VECTORS: Final = 4  # of the size of the policy, which every search holds at once
FLOAT_BYTES: Final = 8
STATE: Final = {"algorithm", "progress", "gauge", "best", "stopped"}  # keys of all states


@final
@dataclass(frozen=True, eq=False)
class StartingPolicy:
    """The policy from which a trial starts.

    Attributes:
        spec: the specification that trained it.
        template: the policy template.
        center: its parameters, [P].
        state: of the evaluator: observation statistics by lineage, and the reference batch.
        lineage: that of its statistics.
    """

    spec: TrialSpec
    template: Policy
    center: Vector
    state: State
    lineage: int


@final
class SearchTrainer(Trainer):
    """The trainer of an ask/tell algorithm, whose workers play its populations.

    Attributes:
        algorithm: the search.
    """

    def __init__(
        self,
        spec: TrialSpec,
        pool: Engine | None = None,
        recorder: Recorder | None = None,
        folder: Path | None = None,
        start: StartingPolicy | None = None,
        ended: Ended | None = None,
    ) -> None:
        """Prepare a trial, which may ``start`` from the policy of another one.

        Worker processes start when they are needed. UsageError if the environment, the policy or a
        setting is not supported.
        """
        super().__init__(spec, pool, recorder, folder, ended)
        self._evaluator = Evaluator(spec, self._pool, folder and folder / "log.txt")
        check_own(self.template)
        self._require_memory()
        generator = stream(spec.seed, Purpose.INITIALIZATION)
        cls = algorithm_class(spec.algorithm.name)
        center, shapes = self.template.initial_parameters(generator), self.template.shapes
        if start is not None:
            self._require_same_policy(start)
            center = start.center
            self._evaluator.begin_with(start.state, start.lineage)
        self.algorithm: Algorithm[Any] = cls(spec.algorithm.settings, center, spec.seed, shapes)
        self._require_size(UsageError)
        if self.algorithm.needs_behaviors:
            self._evaluator.setup.make_behavior()  # UsageError if it does not fit
        self._reward_shift = spec.environment.reward_shift + self.algorithm.settings.reward_shift
        self._gauge = Gauge(self.algorithm.center)
        self._best = BestCenter()
        validation = spec.evaluation.validation
        if validation is not None:
            self._validation = Validation(validation)
        is_fast = self._evaluator.setup.backend_name != GYMNASIUM
        self._needs_check = not (is_fast and is_proven(spec.environment))
        self._begun_at: int | None = None  # steps before the validation or probes of a generation

    def _require_same_policy(self, given: StartingPolicy) -> None:
        start, spec = given.spec, self.spec
        own = start.as_json()["policy"]
        changed = differences(own, spec.as_json()["policy"])
        expected = toml_line("policy", {"template": own["template"], **own["settings"]})
        sizes = [(each.num_inputs, each.num_outputs) for each in (given.template, self.template)]
        if not changed and sizes[0] != sizes[1]:
            changed = [f"inputs and outputs were {sizes[0]}, are now {sizes[1]}"]
            expected = "an environment with the same spaces"
        if changed:
            raise UsageError(
                f"init_from: the policy of {start.environment.id} is not that of "
                f"{spec.environment.id}: {'; '.join(changed)}; expected {expected}"
            )

    def as_start(self) -> StartingPolicy:
        """The last policy, for another trial to start from."""
        lineage = self.algorithm.plan.center_lineage
        center, state = self.algorithm.averaged_center, self.state_dict()
        return StartingPolicy(self.spec, self.template, center, state, lineage)

    def policy(self, which: Which = "last") -> TrainedPolicy:
        """As the base class says; its parameters are those of the center."""
        generation = self.generation_of(which)
        if which == "last" and self.validated_generation is not None:
            generation = self.validated_generation
        return TrainedPolicy(self.gathered_setup(), self.held_out_job(which=which), generation)

    @property
    def template(self) -> Policy:
        """The policy template, whose parameters are ``center``."""
        return self._evaluator.policy

    @property
    def center(self) -> Vector:
        """The parameters of the unperturbed policy, [P]."""
        return self.algorithm.center

    def gathered_setup(self) -> Setup:
        """What workers need to know, with the reference batch if the policy needs one."""
        return self._evaluator.gathered_setup()

    def evaluate(self, episodes: int | None = None, which: Which = "last") -> HeldOutScore:
        """Score the last or the best center on held-out episodes."""
        return self._evaluator.score(self.held_out_job(episodes, which))

    def held_out_job(self, episodes: int | None = None, which: Which = "last") -> Job:
        """The episodes that ``evaluate`` plays."""
        require_choice("which", which, ("last", "best"))
        job = self._evaluator.held_out_job(self.algorithm, episodes)
        if which == "best":
            return self._best.job(job)
        return job if self._validation is None else self._validation.final_policy(job)

    def generation_of(self, which: Which) -> int:
        """The generation after which the search had the last or the best center."""
        require_choice("which", which, ("last", "best"))
        return self._best.generation if which == "best" else self.progress.generation

    def next_job(self) -> Job:
        """The episodes of the population that is evaluated next."""
        population = self.algorithm.ask()
        return self._evaluator.population_job(self.algorithm, population, self.progress.env_steps)

    def state_dict(self) -> State:
        """A copy of everything that is needed to continue with the same bits."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "progress": vars(self.progress).copy(),
            "gauge": self._gauge.state_dict(),
            "best": self._best.state_dict(),
            **({} if self._validation is None else {"validation": self._validation.state_dict()}),
            "stopped": None if self.stopped is None else self.stopped.reason,
            "told": self._told,
            **({} if self._begun_at is None else {"begun_at": self._begun_at}),
            **self._evaluator.state_dict(),
        }

    def load_state_dict(self, state: State, history: Sequence[GenerationRecord] = ()) -> None:
        """As the base class says; UsageError if it lacks what the policy needs."""
        if not isinstance(state, dict) or not state.keys() >= STATE:
            raise UsageError("expected what state_dict returned")
        generation = state["progress"]["generation"]
        self._evaluator.load_state_dict(state, generation)
        self.algorithm.load_state_dict(state["algorithm"])
        self.progress = Progress(**state["progress"])
        self._gauge.load_state_dict(state["gauge"])
        self._best.load_state_dict(state["best"])
        if self._validation is not None:
            self._validation.load_state_dict(state["validation"])
        self.stopped = None if state["stopped"] is None else Stop(state["stopped"])
        self._told = state.get("told", self.progress.generation)
        self.history = list(history)
        self._begun_at = state.get("begun_at")
        self._consistent = True

    def _train(self, env_steps: int) -> None:
        if not self._consistent:
            raise TrainingError("an update has failed; load a state or start the trial again")
        if self.progress.generation == 0 and not is_builtin(type(self.algorithm)):
            # A resumed trainer does not read ``spec.init_from`` again.
            knows_start = self.spec.init_from is None
            algorithm = self.algorithm
            check_search(type(algorithm), algorithm.settings, algorithm.shapes, knows_start)
        while not self._is_spent(env_steps):
            self._evaluator.prepare()  # loading is not part of the time of training
            self._counted = self._clocks()
            self.watch.start()
            population, played = self._play()
            self.watch.lap("play")
            with self._update():
                record = self._learn(population, played)
                self.watch.lap("update")
                self._count_time()
                wall, cpu = self.progress.wall_time_s, self.progress.cpu_time_s
                record = replace(record, wall_time_s=wall, cpu_time_s=cpu)
                self.history.append(record)
                if self._recorder is not None:
                    members = {"return": played.returns, "length": played.lengths}
                    self._recorder.append(record, members | self.algorithm.member_data)
            self.watch.lap("store")
            if self._ends_with(record):
                break

    def _is_spent(self, env_steps: int) -> bool:
        most = self.spec.budget.generations or math.inf
        steps = self.progress.env_steps if self._begun_at is None else self._begun_at
        return not (steps < env_steps and self.progress.generation < most)

    @contextlib.contextmanager
    def _update(self) -> Iterator[None]:
        """Complete the block before an interrupt; an error in it leaves no state to save."""
        with interrupts_delayed():
            self._consistent = False
            yield
            self._consistent = True

    def _require_memory(self) -> None:
        """Raises UsageError for a policy that does not fit into memory, before it is made."""
        size, most = self.template.num_params, usable_memory() // (VECTORS * FLOAT_BYTES)
        if size > min(most, MOST_PARAMS):
            raise UsageError(
                f"the policy has {size:,} parameters; expected at most {min(most, MOST_PARAMS):,}, "
                f"because {VECTORS} vectors of that size must fit into memory"
            )

    def _require_size(self, error: type[EsbenchError]) -> None:
        """Raises the error if a generation has more episodes than fit into memory."""
        members = self.algorithm.population_size
        episodes = self.spec.environment.episodes_per_member
        if members * episodes > MOST_MEMBERS:
            raise error(
                f"population_size = {members} with episodes_per_member = {episodes}: expected at "
                f"most {MOST_MEMBERS} episodes per generation"
            )

    def _play(self) -> tuple[Population, Episodes]:
        """Evaluate the population of a generation, and the candidate and probes before it."""
        self._require_size(TrainingError)  # an algorithm may change its size
        begun = self._begun_at
        at = self.progress.env_steps if begun is None else begun
        if begun is None and self._validation is not None and self._validation.is_due(at):
            self._validate(self._validation)
        while self.algorithm.plan.probe:
            probe, played = self._evaluator.play(self.algorithm, self.progress.env_steps)
            with self._update():
                fitness = fitness_of(played, self._reward_shift)
                self.algorithm.tell(probe, fitness, played.behaviors)
                self.progress, self._begun_at = self.progress.with_episodes(played), at
                self._count_time()
        return self._evaluator.play(self.algorithm, self.progress.env_steps)

    def _validate(self, validation: Validation) -> None:
        """Let the center play validation episodes, and keep it if it is the best so far."""
        evaluator, before = self._evaluator, self.progress
        job = validation.job(evaluator.held_out_job(self.algorithm))
        score = evaluator.score(replace(job, episodes=validation.quarter))
        if validation.is_promising(score.returns):
            score = score.joined(evaluator.score(job, validation.quarter))
        with self._update():
            validation.add(job, score.returns, before.generation, before.env_steps)
            steps = int(score.lengths.sum())
            self.progress = replace(before, env_steps=before.env_steps + steps)
            self._begun_at = before.env_steps
            self._count_time()

    def _learn(self, population: Population, played: Episodes) -> GenerationRecord:
        """Tell the algorithm, update the statistics and return the record, without its times."""
        algorithm, evaluator = self.algorithm, self._evaluator
        fitness = fitness_of(played, self._reward_shift)
        plan, cap = algorithm.plan, evaluator.episode_cap(self.progress.env_steps)
        center, normalizer = algorithm.center, evaluator.normalizer(plan.lineage)
        centers_own = evaluator.normalizer(plan.center_lineage)
        with drawing_threads(min(self._pool.size, usable_cores())):  # the workers are idle
            algorithm.tell(population, fitness, played.behaviors)
            if plan.center_is_member and not np.array_equal(algorithm.center, center):
                evaluator.keep_statistics(plan)
            evaluator.learn(played, plan.lineage)
            measures = self._gauge.measure(
                population,
                fitness,
                centers=(center, algorithm.center),
                normalizers=(normalizer, evaluator.normalizer(plan.lineage)),
                ranked=not algorithm.needs_behaviors,
            )
        progress = self.progress.with_episodes(played)
        self.progress = replace(progress, generation=progress.generation + 1)
        self._begun_at = None
        record = GenerationRecord(
            **vars(self.progress),
            **summary(played, fitness, self._reward_shift),
            max_episode_steps=cap,
            sigma=float(algorithm.sigma),
            digest=digest(algorithm.center, played),
            **measures,
        )
        self._best.update([*self.history[1 - WINDOW :], record], center, centers_own)
        return record
