"""The trained policy of a trial, for use in any Gymnasium loop or as a torch module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import gymnasium
import numpy as np
from threadpoolctl import ThreadpoolController

from esbench.agents.acting import ActingPolicy, Environment, in_space
from esbench.agents.agent import Agent, WeightedAgent
from esbench.core.errors import TrainingError, UsageError, shown
from esbench.core.one_thread import one_thread
from esbench.engine.jobs import Job
from esbench.engine.setup import Setup
from esbench.environments.episode_check import require_end
from esbench.environments.make_environment import make_environment
from esbench.environments.simulator_log import silenced
from esbench.experiment.final_policy import held_out_seeds
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.policies.normalization import policy_inputs
from esbench.policies.policy import Policy, ReferredBatch, Rows, TorchPolicy
from esbench.policies.spaces import Actions, Observations

if TYPE_CHECKING:
    from esbench.policies.kernels.torch_modules import PolicyModule


class Trained(ABC):
    """A trained policy of an environment; ``make_environment``, ``reset`` and ``act`` use it."""

    def __init__(
        self, environment: EnvironmentSpec, generation: int, held_out_seeds: Sequence[int]
    ) -> None:
        self.environment = environment
        self.generation = generation
        self.held_out_seeds = list(held_out_seeds)
        with silenced():
            env = self.make_environment()
            env.close()
        self.observation_space: gymnasium.Space[Any] = env.observation_space
        self.action_space: gymnasium.Space[Any] = env.action_space

    @final
    def make_environment(self, **kwargs: Any) -> Environment:
        """The environment of the trial, for example with ``render_mode="human"``.

        Raises:
            UsageError: it cannot be made.
        """
        spec = self.environment
        return make_environment(spec.id, {**spec.kwargs, **kwargs}, spec.wrappers)

    @abstractmethod
    def reset(self) -> None:
        """Forget the episode; call it at the start of every episode."""

    @abstractmethod
    def act(self, observation: Any) -> Any:
        """The action for one observation of ``observation_space``."""


def episode(
    policy: ActingPolicy, env: Environment, seed: int, name: str, kwargs: dict[str, Any]
) -> Iterator[tuple[float, bool]]:
    """Play an episode of the environment ``name``, made with ``kwargs``.

    Yields 0 and False after the reset, then the reward of every step and whether it is the last.

    Raises:
        UsageError: the episode does not end.
        TrainingError: the policy chose an action outside of the space.
    """
    observation, _ = env.reset(seed=seed)
    policy.reset()
    yield 0.0, False
    masks, steps, ended = getattr(policy, "masks", None), 0, False
    while not ended:
        given = (observation,) if masks is None else (observation, masks(env))
        action = in_space(env.action_space, policy.act(*given), f"the policy of {name}")
        observation, reward, terminated, truncated, _ = env.step(action)
        steps, ended = steps + 1, bool(terminated or truncated)
        yield float(reward), ended
        require_end(steps, name, kwargs)


@final
class TrainedPolicy(Trained):
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
        """Prepare the policy of the center of ``job``, the held-out episodes.

        UsageError if the center or its normalizer is not one of this policy.
        """
        super().__init__(setup.environment, generation, held_out_seeds(job.seed, job.episodes))
        self.parameters = job.center.copy()
        self.template: Policy = setup.make_policy(self.observation_space, self.action_space)
        self.normalizer = job.normalizer
        inputs, normalizer = self.template.num_inputs, job.normalizer
        shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
            "parameters": (self.parameters.shape, (self.template.num_params,))
        }
        if normalizer is not None:
            shapes["mean"] = (normalizer.mean.shape, (inputs,))
            shapes["scale"] = (normalizer.scale.shape, (inputs,))
        if size := self.template.reference_size:
            batch = setup.reference_batch
            shapes["reference"] = (batch.observations.shape if batch else (), (size, inputs))
        for name, (seen, expected) in shapes.items():
            if seen != expected:
                raise UsageError(
                    f"{name} of shape {list(seen)}: the policy of {self.environment.id} has "
                    f"{list(expected)}"
                )
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

    def __repr__(self) -> str:
        return f"<TrainedPolicy of {self.environment.id}, generation {self.generation}>"

    def reset(self) -> None:
        """Forget the episode; call it at the start of every episode."""
        with one_thread(self._libraries):
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
        with (
            one_thread(self._libraries),
            np.errstate(over="ignore", invalid="ignore"),
        ):  # ``act`` reports it
            found: Rows = self._batch.forward(policy_inputs(rows, self.normalizer))[0]
        return found

    def _seen(self, observation: Any) -> Any:
        """The observation as training receives it: an array, unless its space is composite."""
        space = self.observation_space
        is_plain = isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete)
        try:
            if is_plain:
                row = np.asarray(observation, dtype=space.dtype)
            else:
                row = np.asarray(gymnasium.spaces.flatten(space, observation))
        except Exception:  # of a space, which says nothing about the kinds of its errors
            row = np.empty(0)
        if row.shape != (space.shape if is_plain else (self._observations.size,)):
            raise UsageError(f"observation {shown(observation)}: expected one of {space}")
        return row if is_plain else observation

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


@final
class TrainedAgent(Trained):
    """The policy of an agent's trial. It acts without exploration.

    It is used as the policy of any other trial, ``TrainedPolicy``, but has no template and no
    parameters.

    Attributes:
        environment: the environment's name and arguments.
        generation: the generation after which the policy was stored.
        observation_space, action_space: of the environment.
        held_out_seeds: the environment seeds of the held-out episodes.
        model: that of Stable-Baselines3; None for another agent.
    """

    def __init__(
        self,
        environment: EnvironmentSpec,
        policy: ActingPolicy,
        generation: int,
        held_out_seeds: Sequence[int],
        agent: Agent | None = None,
    ) -> None:
        super().__init__(environment, generation, held_out_seeds)
        self._policy, self._agent = policy, agent
        self.model = agent.model if isinstance(agent, WeightedAgent) else None
        self.masks = getattr(policy, "masks", None)
        self.reset()

    def reset(self) -> None:
        """Forget the episode; call it at the start of every episode."""
        self._policy.reset()

    def act(self, observation: Any, action_masks: Any = None) -> Any:
        """The action for one observation of ``observation_space``.

        A model such as MaskablePPO takes ``action_masks``, which are ``masks(env)``.

        Raises:
            TrainingError: the policy chose an action outside of ``action_space``.
        """
        given = (observation,) if self.masks is None else (observation, action_masks)
        action = self._policy.act(*given)
        return in_space(self.action_space, action, f"the policy of {self.environment.id}")

    def outputs(self, observation: Any) -> Rows:
        """The action for one observation as an array [...]."""
        return np.asarray(self.act(observation))

    def module(self) -> Any:
        """A new torch module from observations [N, ...] to actions [N, ...].

        Raises:
            UsageError: the agent is not of Stable-Baselines3, or sees images or no numbers.
        """
        if not isinstance(self._agent, WeightedAgent):
            raise UsageError(
                f"the policy of {self.environment.id} is that of an agent without a torch module; "
                "expected a search or an agent of Stable-Baselines3"
            )
        return self._agent.module()
