"""Prints the digests of short trials of every algorithm, policy template and backend, as JSON."""

import json
import sys
from collections.abc import Iterator
from typing import Any

# isort: off
import esbench  # before NumPy is loaded

# isort: on
import gymnasium
import numpy as np
import torch

from esbench.algorithms.base import ALGORITHMS
from esbench.core.processor import arithmetic
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.stored_trainer import make_trainer

CHEETAH, PONG, POLE = "HalfCheetah-v5", "esbench/Pong-v5", "CartPole-v1"
PICTURE = "Picture-v0"
SHORT = {CHEETAH: {"max_episode_steps": 10}, PONG: {"max_episode_steps": 2}}
MLP = {"template": "mlp", "hidden": [16], "normalize_observations": True}
OTHER_LIBRARIES = {"evotorch", "evosax"}


class Picture(gymnasium.Env[Any, Any]):
    """Noise, and a reward of every bit of the action."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.draw(), float(action[0] - action[1] ** 2), False, False, {}

    def draw(self) -> Any:
        return self.np_random.integers(0, 256, (1, 36, 36), np.uint8)


if PICTURE not in gymnasium.registry:
    gymnasium.register(PICTURE, "every_kind:Picture", max_episode_steps=5)


class Network(torch.nn.Sequential):
    """A convolution and two full layers of torch, with functions that MKL computes."""

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        channels, side, _ = shape
        super().__init__(
            torch.nn.Conv2d(channels, 8, 8, 4),
            torch.nn.Tanh(),
            torch.nn.Flatten(),
            torch.nn.Linear(8 * (side // 4 - 1) ** 2, 64),
            torch.nn.GELU(),
            torch.nn.Linear(64, outputs),
        )


def grids() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a title and the algorithm, environment and policy of each trial."""
    for name in ALGORITHMS.names():
        if name not in OTHER_LIBRARIES:
            yield name, {"algorithm": name, "id": CHEETAH, "policy": MLP}
    es = {"algorithm": "openai_es", "id": CHEETAH}
    yield "adamw", {**es, "policy": MLP, "settings": {"optimizer": "adamw"}}
    yield "gymnasium", {**es, "policy": MLP, "environment": {"backend": "gymnasium"}}
    yield "cartpole", {**es, "id": POLE, "policy": MLP}
    yield "atari", {**es, "id": PONG, "policy": {"template": "mlp", "hidden": [4]}}
    yield "linear", {**es, "policy": {"template": "linear"}}
    yield "vector", {**es, "id": "esbench/Rastrigin-v0", "policy": {"template": "vector"}}
    for template in ("small_conv", "openai_conv", "nature_conv", "conv_lstm", "keypoints"):
        yield template, {**es, "id": f"every_kind:{PICTURE}", "policy": {"template": template}}
    module = {"template": "module", "factory": "every_kind:Network"}
    yield "module", {**es, "id": f"every_kind:{PICTURE}", "policy": module}
    yield "ppo", {"algorithm": "ppo", "id": POLE, "settings": {"n_steps": 64}}


def spec_of(trial: dict[str, Any]) -> Any:
    name, environment = trial["algorithm"], trial["id"]
    settings = {} if name == "ppo" else {"population_size": 8}
    grid = {
        "name": "every",
        "seeds": [1],
        "environments": [environment],
        "algorithms": {name: settings | trial.get("settings", {})},
        "budget": {"env_steps": 100},
        "environment": {environment: SHORT.get(environment, {}) | trial.get("environment", {})},
    }
    if "policy" in trial:
        grid["policy"] = trial["policy"]
    (found,) = esbench.expand(grid)
    return found.spec


def main() -> None:
    found: dict[str, Any] = {}
    with WorkerPool(1) as pool:
        for title, trial in grids():
            with make_trainer(spec_of(trial), pool) as trainer:
                trainer.train()
                found[title] = trainer.history[-1].digest
    sys.stdout.write(json.dumps({"digests": found, "arithmetic": arithmetic()}))


if __name__ == "__main__":
    main()
