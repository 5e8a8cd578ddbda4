"""A package of somebody else's, really installed, adds an algorithm, a policy and a backend."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PLUGIN = '''
import gymnasium
import numpy as np

from esbench import register_algorithm, register_backend, register_policy
from esbench.algorithms.base import Algorithm
from esbench.algorithms.population import SampledPopulation
from esbench.algorithms.settings import AlgorithmSettings
from esbench.environments.backends.base import Backend
from esbench.policies.base import Policy, PolicyBatch, PolicySettings


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

    def close_extras(self, **kwargs):
        for env in self.envs:
            env.close()
'''

METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: esbench-tiny\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": (
        "[esbench.algorithms]\nstand_still = tiny_plugin\n"
        "[esbench.policies]\nstraight = tiny_plugin\n"
        "[esbench.backends]\ntiny = tiny_plugin\n"
    ),
    "RECORD": "",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip has installed the plugin's wheel."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel = folder / "esbench_tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_plugin.py", PLUGIN)
        for name, content in METADATA.items():
            archive.writestr(f"esbench_tiny-1.0.dist-info/{name}", content)
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
    return target


def esbench(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    return subprocess.run(
        [sys.executable, "-m", "esbench", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_plugins_are_listed(site: Path, tmp_path: Path) -> None:
    listed = esbench(site, tmp_path, "list").stdout
    assert "stand_still" in listed
    assert "Learns nothing." in listed
    assert "straight" in listed
    assert "tiny" in listed


def test_plugins_run_in_the_workers_too(site: Path, tmp_path: Path) -> None:
    done = esbench(
        site, tmp_path, "run", "--env", "CartPole-v1", "--algorithm", "stand_still",
        "--algorithm", "openai_es", "--seeds", "0", "--env-steps", "300", "--workers", "1",
        "--set", "policy.template=straight", "--set", "evaluation.episodes=2",
        "--set", 'environment."CartPole-v1".backend=tiny',
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "done  CartPole-v1 stand_still seed 0" in done.stdout
    assert "done  CartPole-v1 openai_es seed 0" in done.stdout


def test_without_the_plugin_its_name_is_unknown(tmp_path: Path) -> None:
    arguments = ["plan", "--env", "CartPole-v1", "--algorithm", "stand_still"]
    done = esbench(tmp_path, tmp_path, *arguments)
    assert done.returncode == 2
    assert "unknown algorithm 'stand_still'" in done.stderr
