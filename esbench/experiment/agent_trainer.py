"""The trainer of an agent: counts its steps and records a row every ``row_steps`` of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.agents.acting import ActingPolicy, Environment, in_space
from esbench.agents.agent import AgentSettings, WeightedAgent, agent_class, make_agent
from esbench.core.arrays import State, float_digest
from esbench.core.errors import (
    USER_CODE_ERRORS,
    TrainingError,
    UsageError,
    require_choice,
    require_integer,
)
from esbench.core.global_streams import STREAMS, seeded_globally
from esbench.core.process import interrupts_delayed
from esbench.core.seeding import Purpose, episode_seed
from esbench.core.settings import MOST_EPISODES
from esbench.engine.engine import Engine
from esbench.engine.jobs import spread
from esbench.environments.episode_check import Step, fingerprint, first_difference, require_end
from esbench.environments.make_environment import make_environment
from esbench.environments.returned_values import ReturnedValues
from esbench.environments.simulator_log import silenced
from esbench.experiment.final_policy import HeldOutScore, Which, held_out_seeds
from esbench.experiment.trained_policy import TrainedAgent, episode
from esbench.experiment.trainer import Ended, Progress, Recorder, Trainer
from esbench.experiment.watchers import Stop
from esbench.grids.trial_spec import TrialSpec
from esbench.store.generation_record import GenerationRecord

UNMEASURED: Final[dict[str, Any]] = {each.name: math.nan for each in fields(GenerationRecord)}


@final
class _TrainingEnds(BaseException):
    """Leaves an agent's training loop, which may catch any ``Exception``."""


@final
class AgentTrainer(Trainer):
    """The trainer of an agent, which learns in the process of the trial."""

    def __init__(
        self,
        spec: TrialSpec,
        pool: Engine | None = None,
        recorder: Recorder | None = None,
        folder: Path | None = None,
        ended: Ended | None = None,
    ) -> None:
        """Prepare a trial; UsageError if the environment or a setting is not supported."""
        super().__init__(spec, pool, recorder, folder, ended)
        name, settings = spec.algorithm.name, spec.algorithm.settings
        assert isinstance(settings, AgentSettings)
        if spec.init_from is not None:
            raise UsageError(f"init_from: {name} is an agent, which starts anew; expected none")
        self._row_steps = settings.row_steps
        self._environments: list[_CountedEnvironment] = []
        self._started: list[int] = []  # the episodes of each environment
        self._episodes: list[tuple[float, int]] = []  # returns and lengths since the last row
        self._limit = 0
        self._learnt = 0  # the total of steps of the last call of ``learn`` that returned
        self._row_at = 0  # the steps of the last row
        self._stage: Environment | None = None  # for evaluation
        self._resources.callback(self._close_environments)
        with contextlib.ExitStack() as failed:
            failed.callback(self._resources.close)
            cls = agent_class(name)
            self.agent = make_agent(cls, settings, self._make_environment, spec.seed, name)
            self._trains_once = self.agent.policy is None
            ends = spec.budget.generations, spec.budget.target_return
            if self._trains_once and ends != (None, None):
                raise UsageError(
                    f"budget: {name} hands over its policy only at the end of train; expected "
                    "env_steps alone, without generations or target_return"
                )
            failed.pop_all()

    def evaluate(self, episodes: int | None = None, which: Which = "last") -> HeldOutScore:
        """As the base class says; UsageError if the policy is not known, or for "best"."""
        self.generation_of(which)
        if episodes is not None:
            require_integer("episodes", episodes, 1, MOST_EPISODES)
        count = self.spec.evaluation.episodes if episodes is None else episodes
        return self._play(held_out_seeds(self.spec.seed, count))

    def generation_of(self, which: Which) -> int:
        """The number of rows; UsageError for "best", which is not kept."""
        require_choice("which", which, ("last", "best"))
        if which == "best":
            raise UsageError(
                f"which = 'best': only the last policy of {self.spec.algorithm.name}, an agent, is "
                "kept; expected which = 'last'"
            )
        return self.progress.generation

    def state_dict(self) -> State | None:
        """As the base class says; None if the agent has no state."""
        state = self.agent.state_dict()
        if state is None:
            return None
        return {
            "agent": state,
            "progress": vars(self.progress).copy(),
            "episodes": list(self._started),
            "learnt": self._learnt,
            "stopped": None if self.stopped is None else self.stopped.reason,
            "told": self._told,
        }

    def load_state_dict(self, state: State, history: Sequence[GenerationRecord] = ()) -> None:
        """Restore what ``state_dict`` returned after the generations of ``history``.

        Episodes that had begun are not continued: the next ones begin.
        """
        self.progress = Progress(**state["progress"])
        self.stopped = None if state["stopped"] is None else Stop(state["stopped"])
        self._told = state.get("told", self.progress.generation)
        self.history = list(history)
        self._row_at, self._learnt = self.progress.env_steps, state["learnt"]
        self._episodes = []
        self._started[:] = state["episodes"]
        self._started += [0] * (len(self._environments) - len(self._started))
        self.agent.load_state_dict(state["agent"])

    def policy(self, which: Which = "last") -> TrainedAgent:
        """As the base class says; UsageError if the policy is not known, or for "best"."""
        generation = self.generation_of(which)
        seeds = held_out_seeds(self.spec.seed, self.spec.evaluation.episodes)
        return TrainedAgent(self.spec.environment, self._acting(), generation, seeds, self.agent)

    def weights(self) -> State | None:
        """The arrays with which the policy acts; None if the agent has none."""
        return self.agent.weights() if isinstance(self.agent, WeightedAgent) else None

    def load_weights(self, weights: State, generation: int) -> None:
        """Act with what ``weights`` returned after a generation; UsageError if it does not fit."""
        if not isinstance(self.agent, WeightedAgent):
            raise UsageError(f"{self.spec.algorithm.name} has no plain weights; expected none")
        self.agent.load_weights(weights)
        self.progress = replace(self.progress, generation=generation)

    def _is_spent(self, env_steps: int) -> bool:
        most = self.spec.budget.generations or math.inf
        reached = max(self._learnt, self.progress.env_steps) >= env_steps
        return reached or self.progress.generation >= most

    def _train(self, env_steps: int) -> None:
        self._limit = env_steps
        if self._is_spent(env_steps):
            return
        if self._trains_once and self.progress.env_steps:
            raise UsageError(
                f"{self.spec.algorithm.name} was trained for {self.progress.env_steps} steps and "
                "cannot go on; expected a new trainer and all steps at once"
            )
        before = [self._fingerprint() for _ in range(2)]
        self._counted = self._clocks()
        self._saved = -math.inf  # an interrupt saves nothing, so the first row does
        self._consistent = False
        try:
            with STREAMS, silenced():  # agents in several threads take turns
                # Schedules go over the whole budget, also if training pauses before its end.
                known = self.agent.policy is not None
                end = max(env_steps, self.spec.budget.env_steps) if known else env_steps
                self.agent.learn(end - self.progress.env_steps)
        except _TrainingEnds:
            if self.agent.policy is None:
                raise TrainingError(
                    f"{self.spec.algorithm.name} was stopped before it handed over a policy"
                ) from None
        else:
            self._learnt = env_steps
        if self.progress.env_steps > self._row_at or not self.progress.generation:
            self._record()
        else:
            self._count_time()
        self._require_unmodified(*before)
        self._consistent = True

    def _fingerprint(self) -> list[Step]:
        """What a new instance of the environment plays in this process."""
        own = self.spec.environment
        with silenced(), seeded_globally(self.spec.seed):
            return fingerprint(own.id, own.kwargs, own.wrappers)

    def _require_unmodified(self, one: list[Step], other: list[Step]) -> None:
        """Raises TrainingError if training has changed what two equal fingerprints were of."""
        if not (one and other) or first_difference(one, other):
            return
        if what := first_difference(other, self._fingerprint() or other):
            raise TrainingError(
                f"training with {self.spec.algorithm.name} has changed the environment "
                f"{self.spec.environment.id!r}: one seed and the same actions give other values "
                f"({what}); expected no change of its class or module or of settings of the "
                "process, since the score is that in the unmodified environment"
            )

    def _close_environments(self) -> None:
        for env in (*self._environments, self._stage):
            if env is not None:
                with contextlib.suppress(*USER_CODE_ERRORS):  # the trial is scored already
                    env.close()

    def _acting(self) -> ActingPolicy:
        if self.agent.policy is None:
            raise UsageError(
                f"the policy of {self.spec.algorithm.name} is known only after training"
            )
        return self.agent.policy

    def _make_environment(self) -> Environment:
        """A training environment, which reports its steps and episodes here."""
        env = _CountedEnvironment(self._plain(), self, len(self._environments))
        self._environments.append(env)
        if len(self._started) < len(self._environments):
            self._started.append(0)
        return env

    def _plain(self) -> Environment:
        spec = self.spec.environment
        with silenced():
            return make_environment(spec.id, spec.kwargs, spec.wrappers)

    def next_seed(self, index: int) -> int:
        """The seed of the next episode of a training environment."""
        self._started[index] += 1
        purpose = Purpose.TRAINING_EPISODE
        return episode_seed(self.spec.seed, purpose, index, self._started[index] - 1)

    def before_step(self) -> None:
        """Ends training if the budget is spent; an agent without a policy must end by itself."""
        if self.progress.env_steps >= self._limit and self.agent.policy is not None:
            raise _TrainingEnds

    def after_step(self, episode: tuple[float, int] | None) -> None:
        """Count a step, which may have ended an episode of this return and length."""
        steps, episodes = self.progress.env_steps + 1, self.progress.episodes
        self.progress = replace(
            self.progress, env_steps=steps, episodes=episodes + (episode is not None)
        )
        if episode is not None:
            self._episodes.append(episode)
        if self._pool.progress is not None:
            done = self.progress.env_steps - self._row_at
            self._pool.progress(done, self._row_steps)
        if self.progress.env_steps % self._row_steps == 0 and self._record():
            self._limit = self.progress.env_steps  # even if the agent catches what follows
            raise _TrainingEnds

    def _record(self) -> bool:
        """Append the record of the steps since the last one; whether training ends."""
        generation = self.progress.generation + 1
        center = self._evaluate_now(generation)
        with interrupts_delayed():
            record = self._append(generation, center)
        self._consistent = True  # between two updates
        ends = self._ends_with(record)
        self._consistent = False
        self._counted = self._clocks()  # after callbacks and checkpoint
        return ends or generation == self.spec.budget.generations

    def _append(self, generation: int, center: HeldOutScore) -> GenerationRecord:
        self._count_time()
        played = self.progress.eval_env_steps + int(center.lengths.sum())
        self.progress = replace(self.progress, generation=generation, eval_env_steps=played)
        returns, lengths = np.array(self._episodes).reshape(-1, 2).T
        measured = {
            **vars(self.progress),
            **spread(returns),
            "population_size": 0,
            "episode_length_mean": float(np.mean(lengths)) if lengths.size else math.nan,
            "center_return": center.mean if center.returns.size else math.nan,
            "max_episode_steps": None,
            "digest": float_digest(self._episodes, center.returns, center.lengths),
        }
        losses = self.agent.losses() if isinstance(self.agent, WeightedAgent) else {}
        record = GenerationRecord(**{**UNMEASURED, **measured, "losses": losses})
        self._row_at, self._episodes = self.progress.env_steps, []
        self.history.append(record)
        if self._recorder is not None:
            self._recorder.append(record, {})
        return record

    def _evaluate_now(self, generation: int) -> HeldOutScore:
        """Episodes of the policy so far; none if it is not known or not to be evaluated."""
        known = self.agent.policy is not None and self.spec.evaluation.center
        count = self.spec.environment.episodes_per_member if known else 0
        seed, purpose = self.spec.seed, Purpose.CENTER_EPISODE
        return self._play([episode_seed(seed, purpose, generation, e) for e in range(count)])

    def _play(self, seeds: Sequence[int]) -> HeldOutScore:
        found = []
        own = self.spec.environment
        for number, seed in enumerate(seeds, start=1):
            self._stage = self._stage or self._plain()
            steps = episode(self._acting(), self._stage, seed, own.id, own.kwargs)
            with seeded_globally(seed):  # some policies draw their actions
                rewards = [reward for reward, _ in steps]
            found.append((np.cumsum(rewards)[-1], len(rewards) - 1))
            if self._pool.progress is not None:
                self._pool.progress(number, len(seeds))
        rows = np.array(found).reshape(-1, 2)
        return HeldOutScore(rows[:, 0], rows[:, 1])


@final
class _CountedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A training environment whose episodes have seeds of their own."""

    def __init__(self, env: Environment, trainer: AgentTrainer, index: int) -> None:
        super().__init__(env)
        self._trainer = trainer
        self._index = index
        self._episode: tuple[float, int] | None = None  # return and length so far
        self._own, self._name = trainer.spec.environment, trainer.spec.algorithm.name
        self._returned = ReturnedValues(self._own.id, env.observation_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin the next episode; ``seed`` is not used."""
        self._episode = (0.0, 0)
        return self.env.reset(seed=self._trainer.next_seed(self._index), options=options)

    def step(self, action: Any) -> Any:
        """One step, which is counted."""
        self._trainer.before_step()
        if self._episode is None:
            raise TrainingError("an agent called step outside of an episode; expected reset first")
        action = in_space(self.action_space, action, f"agent {self._name!r}")
        observation, reward, terminated, truncated, info = self.env.step(action)
        (total, length), returned = self._episode, self._returned
        episode = total + returned.reward(reward), length + 1
        require_end(length + 1, self._own.id, self._own.kwargs)
        ended = returned.flag("terminated", terminated) | returned.flag("truncated", truncated)
        self._episode = None if ended else episode
        self._trainer.after_step(episode if ended else None)
        return observation, reward, terminated, truncated, info
