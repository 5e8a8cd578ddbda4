"""A package of somebody else's adds an algorithm, a policy and a backend."""

from collections.abc import Callable

from command_line import Run

PLUGIN = '''
import gymnasium
import numpy as np

from esbench import register_algorithm, register_backend, register_policy
from esbench.algorithms.base import Algorithm
from esbench.core.population import SampledPopulation
from esbench.algorithms.search_settings import AlgorithmSettings
from esbench.environments.backends.backend import Backend
from esbench.policies.policy import Policy, PolicyBatch, PolicySettings


@register_algorithm("stand_still")
class StandStill(Algorithm[SampledPopulation]):
    """Learns nothing."""

    Settings = AlgorithmSettings
    sigma = 0.1

    def _ask(self):
        return SampledPopulation(
            center=self._center,
            sigma=0.1,
            noise=self.gaussian_noise(),
            size=self.population_size,
            antithetic=False,
        )

    def _tell(self, population, returns, behaviors):
        pass

    def _state_dict(self):
        return {}

    def _load_state_dict(self, state):
        pass


@register_policy("straight")
class Straight(Policy):
    """One weight for each pair of observation and output."""

    Settings = PolicySettings

    @property
    def shapes(self):
        return ((self.num_inputs, self.num_outputs),)

    def initial_parameters(self, generator):
        return generator.standard_normal(self.num_params)

    def batch(self, slots):
        return Weights(slots, self.num_inputs, self.num_outputs)


class Weights(PolicyBatch):
    def __init__(self, slots, inputs, outputs):
        self.weights = np.zeros((slots, outputs, inputs), np.float32)

    def load(self, slot, parameters):
        self.weights[slot] = parameters.reshape(self.weights[slot].shape)

    def forward(self, observations, live=None):
        rows = zip(self.weights, observations)
        return np.stack([(weights * row).sum(axis=1) for weights, row in rows])


@register_backend("tiny")
class Tiny(Backend):
    """Steps its environments, and nothing else."""

    @classmethod
    def serves(cls, environment_id, kwargs):
        return False

    def __init__(self, environment_id, kwargs, slots):
        self.envs = [gymnasium.make(environment_id, **kwargs) for _ in range(slots)]
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.num_envs = slots
        self.live = np.zeros(slots, bool)
        self.observations = np.zeros((slots, *self.single_observation_space.shape))

    def start(self, slot, seed):
        self.observations[slot], _ = self.envs[slot].reset(seed=seed)
        self.live[slot] = True

    def expose(self):
        pass

    def info(self, slot):
        return {}

    def environment(self, slot):
        return self.envs[slot]

    def step(self, actions):
        rewards, ends = np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool)
        for slot in np.flatnonzero(self.live):
            self.observations[slot], rewards[slot], ends[0, slot], ends[1, slot], _ = (
                self.envs[slot].step(actions[slot])
            )
        self.live &= ~ends.any(axis=0)
        return self.observations, rewards, ends[0], ends[1], {}

    def close(self):
        for env in self.envs:
            env.close()
'''

ENTRY_POINTS = """
[esbench.algorithms]
stand_still = tiny_plugin
[esbench.policies]
straight = tiny_plugin
[esbench.backends]
tiny = tiny_plugin
"""


def test_plugins_are_listed_and_run_in_the_workers_too(
    esbench: Run, install: Callable[..., None]
) -> None:
    install({"tiny_plugin": PLUGIN}, ENTRY_POINTS)
    for kind, name in (
        ("algorithms", "stand_still"),
        ("policies", "straight"),
        ("backends", "tiny"),
    ):
        assert name in esbench("list", kind)[1]
    code, out, err = esbench(
        "run", "--env", "CartPole-v1", "--algorithm", "stand_still", "--algorithm", "openai_es",
        "--seeds", "0", "--env-steps", "300", "--workers", "1",
        "--set", "policy.template=straight", "--set", "evaluation.episodes=2",
        "--set", 'environment."CartPole-v1".backend=tiny',
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "done  CartPole-v1 stand_still seed 0" in out
    assert "done  CartPole-v1 openai_es seed 0" in out
