"""An environment of a user's own is refused if its episodes depend on more than their seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Run

import esbench
from esbench.core.errors import EsbenchError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.episode_check import check_episodes
from esbench.environments.make_environment import WrapperSettings
from esbench.experiment.stored_trainer import make_trainer
from esbench.grids.trial_spec import EnvironmentSpec

MODULE = """
import os, random, secrets, time, uuid
import gymnasium
import numpy as np
from doubles import Walk
from gymnasium import spaces
{module}

class Mine(Walk):
    {attribute}

    def __init__(self, gain=1.0):
        super().__init__()
        {constructor}

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        {reset}
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        {step}
        return observation, reward, terminated, truncated, info

gymnasium.register("{name}-v0", entry_point=Mine, max_episode_steps=100, kwargs={kwargs})
"""
EMPTY = dict.fromkeys(("module", "attribute", "constructor", "reset", "step"), "pass")
RARELY = "terminated = terminated or {} < 1e-9"
names = (f"own_code_{number}" for number in itertools.count())


def write(folder: Path, kwargs: str = "{}", **lines: str) -> str:
    """Write a module with an environment that has these lines; returns its name."""
    name = next(names)
    code = MODULE.format(**{**EMPTY, **lines}, name=name, kwargs=kwargs)
    (folder / f"{name}.py").write_text(code)
    return f"{name}:{name}-v0"


NORMALIZE = "gymnasium.wrappers:Normalize"
BEST = """
class Best(gymnasium.RewardWrapper):
    best = -np.inf

    def reward(self, reward):
        self.best = max(self.best, reward)
        return self.best

def doubled(env):
    return gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)
"""
REFUSED: list[tuple[dict[str, str], list[str], str]] = [
    ({}, [f"{NORMALIZE}Reward"], "wrapper NormalizeReward keeps state .* rank-based shaping"),
    ({"module": BEST}, [":doubled", f"{NORMALIZE}Observation"],
     "NormalizeObservation keeps .*normalize_observations = true"),
    ({"module": BEST}, [":doubled", ":Best"], "the wrapper Best keeps state"),
    ({"attribute": "drift = 0.0", "step": "self.drift += 1e-9; reward -= self.drift"}, [],
     "class Mine keeps state .* the reward of step 1 .*wrappers:NewInstance"),
    ({"attribute": "number = 0", "reset": "self.number += 1; self.left += self.number"}, [],
     "the class Mine keeps state .* the termination of "),
    ({"attribute": "steps = 0", "reset": "Mine.steps = 0",
      "step": "Mine.steps += 1; reward += Mine.steps"}, [],
     "shares state .* the reward of step 1 .* attributes of self"),
    ({"step": "return observation, reward, terminated, info"}, [],
     r"step\(\) returned 4 values; expected .*info\)"),
    ({"step": "reward = np.nan"}, [], "the reward of step 1 is nan"),
]  # fmt: skip
DRAWS: list[tuple[dict[str, str], str]] = [
    ({"step": RARELY.format("np.random.rand()")}, "numpy.random"),
    ({"step": RARELY.format("random.random()")}, "random"),
    ({"step": RARELY.format("torch.rand(1)"), "module": "import torch"}, "torch"),
    ({"reset": "random.choice('ab')"}, "random"),
    ({"reset": "torch.manual_seed(seed)", "step": "torch.rand(1)", "module": "import torch"},
     "torch"),
    ({"step": RARELY.format("rng.random()"), "module": "rng = np.random.default_rng(3)"},
     r"own_code_\d+.rng"),
    ({"step": RARELY.format("self.rng.rand()"), "attribute": "rng = np.random.RandomState(3)"},
     "Mine.rng"),
    ({"step": RARELY.format("self.rng.random()"), "constructor": "self.rng = random.Random()"},
     "Mine.rng"),
    ({"step": RARELY.format("self.rng.random()"), "constructor": "self.rng = random.Random(3)"},
     "Mine.rng"),
    ({"step": "self.parts[0]['a'].random()",
      "constructor": "self.parts = [{'a': np.random.default_rng()}]"}, "Mine.parts.0..'a'."),
    ({"step": "self.action_space.sample()"}, "Mine.action_space._np_random"),
]  # fmt: skip
REFUSED += [(lines, [], f"class Mine .* of the generator {name} of step ") for lines, name in DRAWS]


@pytest.mark.parametrize(("lines", "wrappers", "words"), REFUSED)
def test_an_episode_that_depends_on_more_than_its_seed_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: dict[str, str],
    wrappers: list[str],
    words: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = write(tmp_path, **lines)
    own = name.partition(":")[0]
    named = [f"{own}{each}" if each.startswith(":") else each for each in wrappers]
    with pytest.raises(UsageError, match=words) as raised:
        check_episodes(name, {}, tuple(WrapperSettings(wrapper=each) for each in named))
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    """Two workers that import modules from the folder ``pool.folder``."""
    with pytest.MonkeyPatch.context() as patch, WorkerPool(2) as pool:
        folder = tmp_path_factory.mktemp("modules")
        patch.syspath_prepend(folder)
        patch.setattr(WorkerPool, "folder", folder, raising=False)
        yield pool


ADDS = "reward += gain"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"module": "LEVEL = random.choice('ab')"}, "the generator random after an import"),
        ({"module": "gain = np.random.rand()", "step": ADDS}, "the generator numpy.random after"),
        ({"module": "gain = secrets.randbelow(10**9)", "step": ADDS}, "the reward"),
        ({"module": "gain = uuid.uuid4().int % 10**9", "step": ADDS}, "the reward"),
        ({"module": "gain = time.time()", "step": ADDS}, "the reward"),
        ({"module": "gain = np.random.default_rng().random()", "step": ADDS}, "the reward"),
        ({"step": "reward += os.getpid()"}, "the reward"),
        ({"reset": "observation[:] = os.getpid()"}, "the observation"),
        ({"step": "terminated = bool(MAP[int(-1e6 * reward) % 999])",
          "module": "MAP = np.random.default_rng().integers(0, 2, 999)"}, "the termination"),
        ({"module": "rng = np.random.default_rng()", "step": RARELY.format("rng.random()")},
         "class Mine does not depend on its seed"),
        ({"kwargs": "{'gain': secrets.randbelow(10**9)}"}, "the argument 'gain'"),
        ({"kwargs": "{'gain': [np.random.default_rng().random()]}"}, "the argument 'gain'"),
    ],
)  # fmt: skip
def test_an_environment_that_differs_between_processes_is_refused(
    pool: WorkerPool, lines: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        pool.check(EnvironmentSpec(id=write(vars(WorkerPool)["folder"], **lines)))


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"step": "reward = np.nan if self.left == 9 else reward"},  # the worst episode
        {"module": "np.random.seed(3); gain = np.random.rand()", "step": ADDS},
        {"reset": "random.seed(seed); self.position += random.random()"},
        {"constructor": "random.random(); self.unused = np.random.default_rng()"},
        {"reset": "self.action_space = spaces.Box(-1, 1, (3,)); self.action_space.np_random"},
        {"constructor": "self.rng = random.Random()", "reset": "self.rng.seed(seed)",
         "step": "reward += self.rng.random()"},
        {"step": "reward += np.random.default_rng(self.left).random()"},
    ],
)  # fmt: skip
def test_what_the_seed_determines_is_trained(
    pool: WorkerPool, make_spec: Any, lines: dict[str, str]
) -> None:
    name = write(vars(WorkerPool)["folder"], **lines)
    pool.check(EnvironmentSpec(id=name))
    with make_trainer(make_spec(name), pool) as trainer:
        trainer.train(env_steps=100)


class Sampled(torch.nn.Linear):
    """Draws near one state only."""

    def forward(self, x):
        y = super().forward(x)
        if abs(float(x[0, 0])) > 0.02:
            return y
        return y + torch.randn(y.shape, generator=torch.Generator().manual_seed(self.seed()))

    def seed(self):
        return int(torch.randint(2**60, ()))


class Fresh(Sampled):
    """Likewise, by generators that no other code has."""

    def seed(self):
        return int(np.random.default_rng().integers(2**60))


class Held(Sampled):
    """Likewise, by a generator of the class."""

    rng = np.random.default_rng(3)

    def seed(self):
        return int(self.rng.integers(2**60))


class Wasteful(Sampled):
    """Draws a number that has no effect."""

    def seed(self):
        return len(np.random.rand(3))  # noqa: NPY002


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Sampled, "draws from the generator torch; expected no random numbers in forward"),
        (Fresh, "returns other outputs .* no random numbers in forward"),
        (Held, "draws from the generator Held.rng"),
        (Wasteful, "draws from the generator numpy.random; expected no random numbers"),
    ],
)
def test_a_network_that_is_random_in_some_states_is_refused(cls: type, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        esbench.check_policy(cls)


def test_a_draw_that_no_check_has_seen_fails_the_trial(
    esbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one in a state that only a trained policy reaches."""
    monkeypatch.syspath_prepend(tmp_path)
    late = "Mine.count += 1; Mine.count > 3000 and random.random()"
    name = write(tmp_path, attribute="count = 0", step=late)
    command = ["run", "--env", name, "--algorithm", "snes", "--seeds", "0", "--env-steps", "9000"]
    assert esbench(*command, "--workers", "1", "--out", "out")[0] == 1
    (error,) = Path("out").rglob("error.txt")
    assert f"generator random was drawn from while environment '{name}'" in error.read_text()


def test_an_environment_is_checked_in_new_and_in_used_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = write(tmp_path, module="np.random.seed(3)")
    with WorkerPool(1) as alone:
        for gain in (1.0, 2.0):
            alone.check(EnvironmentSpec(id=name, kwargs={"gain": gain}))
        alone.check(EnvironmentSpec(id="FrozenLake-v1"))  # of ``envs/``: in one process
    with pytest.raises(EsbenchError, match="the reward .*, so results would depend on"):
        esbench.check_environment(write(tmp_path, step="reward += os.getpid()"))
