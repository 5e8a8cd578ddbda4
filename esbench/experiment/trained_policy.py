"""A trained policy, for use in any Gymnasium loop."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, final

import gymnasium
import numpy as np
from threadpoolctl import ThreadpoolController

from esbench.core.errors import TrainingError, UsageError, shown
from esbench.engine.jobs import Job
from esbench.engine.setup import Setup
from esbench.environments.make_environment import make_environment
from esbench.environments.simulator_log import silenced
from esbench.experiment.held_out_score import held_out_seeds
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.policies.normalization import policy_inputs
from esbench.policies.policy import Policy, ReferredBatch, Rows, TorchPolicy
from esbench.policies.spaces import Actions, Observations

if TYPE_CHECKING:
    from esbench.policies.kernels.torch_modules import PolicyModule


@final
class TrainedPolicy:
    """The unperturbed policy of a trial: normalization, network, recurrent state and actions.

    In the recorded environment, with the recorded seeds, it has the recorded returns, bit for bit::

        policy = esbench.load_policy("results/runs/quick/CartPole-v1/openai_es/seed-0")
        env = policy.make_environment()
        observation, _ = env.reset(seed=policy.held_out_seeds[0])
        policy.reset()
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            ended = terminated or truncated

    It can be copied and pickled; a copy begins with a new episode.

    Attributes:
        environment: the environment's name and arguments, and how it was trained.
        generation: the generation after which the policy was stored.
        observation_space, action_space: of the environment.
        held_out_seeds: the environment seeds of the held-out episodes.
        template: the policy template.
        parameters: [P].
        normalizer: of the observations, or None.
    """

    def __init__(self, setup: Setup, job: Job, generation: int) -> None:
        """Prepare the policy of the center of ``job``, the held-out episodes."""
        self.environment: EnvironmentSpec = setup.environment
        self.generation = generation
        with silenced():
            env = self.make_environment()
            env.close()
        self.observation_space: gymnasium.Space[Any] = env.observation_space
        self.action_space: gymnasium.Space[Any] = env.action_space
        self.held_out_seeds = held_out_seeds(job.seed, job.episodes)
        self.parameters = job.center.copy()
        self.template: Policy = setup.make_policy(self.observation_space, self.action_space)
        self.normalizer = job.normalizer
        self._observations = Observations(self.observation_space, self.environment.id)
        self._actions = Actions(self.action_space, self.environment.id)
        self._reference = setup.reference_inputs(job.normalizer)
        self._prepare()

    def _prepare(self) -> None:
        """Make what a copy does not share: the network and the handle of its libraries."""
        self._batch = self.template.batch(slots=1)
        if isinstance(self._batch, ReferredBatch) and self._reference is not None:
            self._batch.refer(self._reference)
        self._libraries = ThreadpoolController()
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in {"_batch", "_libraries"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _one_thread(self) -> AbstractContextManager[object]:
        """A block with one thread, as in a worker: with several, BLAS can round otherwise."""
        block: AbstractContextManager[object] = self._libraries.limit(limits=1)
        return block

    def __repr__(self) -> str:
        return f"<TrainedPolicy of {self.environment.id}, generation {self.generation}>"

    def make_environment(self, **kwargs: Any) -> gymnasium.Env[Any, Any]:
        """The environment of the trial, for example with ``render_mode="human"``.

        Raises:
            UsageError: it cannot be made.
        """
        spec = self.environment
        return make_environment(spec.id, {**spec.kwargs, **kwargs}, spec.wrappers)

    def reset(self) -> None:
        """Forget the episode; call it at the start of every episode."""
        with self._one_thread():
            self._batch.load(0, self.parameters)

    def act(self, observation: Any) -> Any:
        """The action for one observation of ``observation_space``.

        Raises:
            UsageError: the observation has another shape than those of the space.
            TrainingError: the outputs of the policy are not finite, or a discrete observation is
                outside of its space.
        """
        outputs = self.outputs(observation)[np.newaxis]
        if not np.isfinite(outputs).all():
            raise TrainingError(f"the outputs of the policy are not finite: {outputs[0].tolist()}")
        return self._actions.decode(outputs)[0]

    def outputs(self, observation: Any) -> Rows:
        """The outputs [outputs] of the network, in place of the action that they stand for.

        Raises:
            UsageError: the observation has another shape than those of the space.
        """
        seen = self._seen(observation)
        rows = self._observations.encode(
            seen[np.newaxis] if isinstance(seen, np.ndarray) else [seen]
        )
        with self._one_thread(), np.errstate(over="ignore", invalid="ignore"):  # ``act`` reports it
            found: Rows = self._batch.forward(policy_inputs(rows, self.normalizer))[0]
        return found

    def _seen(self, observation: Any) -> Any:
        space = self.observation_space
        if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
            try:
                row = np.asarray(gymnasium.spaces.flatten(space, observation))
            except Exception:  # of a space, which says nothing about the kinds of its errors
                row = np.empty(0)
            if row.shape != (self._observations.size,):
                raise UsageError(f"observation {observation!r}: expected one of {space}")
            return observation
        try:
            seen = np.asarray(observation, dtype=space.dtype)
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"observation {shown(observation)}: expected one of {space}") from None
        if seen.shape != space.shape:
            raise UsageError(
                f"observation of shape {list(seen.shape)}: expected {list(space.shape or ())}, one "
                f"observation of {self.environment.id}"
            )
        return seen

    def module(self) -> PolicyModule:
        """A new torch module from observations [N, ...] to outputs [N, outputs].

        It normalizes the observations and has the outputs of ``outputs`` within 2e-5 of the largest
        one, or within 2e-5 if that is below 1. Discrete observations are one-hot rows, as
        ``gymnasium.spaces.flatten`` makes them. A module of a recurrent template also takes its
        state, None at the start of an episode, and returns outputs and the next state. A user's own
        module keeps its state as it always does.

        Images have the shape of the observation space, and are not scaled. The module raises
        ValueError for observations of another shape.

        Raises:
            UsageError: the template, a plugin's, has no torch layers.
        """
        from esbench.policies.kernels.torch_modules import PolicyModule

        if not isinstance(self.template, TorchPolicy):
            raise UsageError(
                f"the policy template {type(self.template).__name__} has no torch layers; expected "
                "one that is an esbench.policies.policy.TorchPolicy, such as mlp"
            )
        layers = self.template.torch_layers(self.parameters, self._reference)
        space = self.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            space = gymnasium.spaces.flatten_space(space)
        module = PolicyModule(layers, space.shape or (), self.normalizer)
        module.eval()
        return module
