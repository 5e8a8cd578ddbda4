"""Threads of a process, and trainers in several of them.

Every process keeps one thread busy: more would compete with the workers for the cores.
"""

import json
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import finished

import esbench
from esbench.engine.setup import Setup
from esbench.engine.worker_pool import WorkerPool
from esbench.grids.trial_spec import TrialSpec

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")

SCRIPT = """
import json
import os
from pathlib import Path

import esbench


def seconds(pid):
    # Return the CPU time of each thread.
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def main():
    with esbench.make_trainer(
        "openai_es",
        env="HalfCheetah-v5",
        workers=2,
        environment={"max_episode_steps": 20},
        policy={"template": "mlp", "hidden": [100, 100], "normalize_observations": True},
        population_size=16,
        optimizer="adamw",  # torch's
    ) as trainer:
        trainer.train(env_steps=1)
        processes = [os.getpid(), *trainer._pool.process_ids]
        before = [seconds(pid) for pid in processes]
        trainer.train(env_steps=30_000)
        print(json.dumps([
            {thread: spent - first.get(thread, 0.0) for thread, spent in seconds(pid).items()}
            for pid, first in zip(processes, before)
        ]))


if __name__ == "__main__":
    main()
"""


@linux
def test_one_thread_of_each_process_is_busy(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code, out, _ = finished(str(script))
    assert code == 0
    processes = json.loads(out)
    assert len(processes) == 3
    for threads in processes:
        first, *others = sorted(threads.values(), reverse=True)
        assert sum(others) <= 0.05 * first


@linux
def test_numerical_libraries_of_workers_use_one_thread(
    make_spec: Callable[..., TrialSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small products would not show it: the libraries use several threads for large ones only."""
    spec = make_spec()
    libraries = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
    for name in libraries:
        monkeypatch.setenv(f"{name}_NUM_THREADS", "7")
    with WorkerPool(1) as pool:
        pool.configure(Setup(spec.environment, spec.policy))
        variables = Path(f"/proc/{pool.process_ids[0]}/environ").read_text().split("\0")
    assert "PYTHONHASHSEED=0" in variables
    for name in libraries:
        assert f"{name}_NUM_THREADS=1" in variables
        assert os.environ[f"{name}_NUM_THREADS"] == "7"


def test_trials_in_several_threads_are_those_of_one(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(NETWORK)
    network = {"template": "threaded:Network"}
    ppo = {"n_steps": 64, "n_envs": 1, "batch_size": 64}
    trials = [
        (name, {"seed": seed, **options})
        for name, options in (
            ("openai_es", {"policy": network, "population_size": 6}),
            ("ppo", ppo),
        )
        for seed in range(2)
    ]

    def digest(trial: tuple[str, dict[str, Any]]) -> str:
        name, options = trial
        options = {"env": "CartPole-v1", "budget": {"env_steps": 200}, "workers": 1, **options}
        with esbench.make_trainer(name, **options) as trainer:
            trainer.train()
            return f"{trainer.history[-1].digest} {trainer.evaluate(episodes=3).mean}"

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        alone = [digest(trial) for trial in trials]
        before = dict(os.environ), *streams()
        with ThreadPoolExecutor(len(trials)) as executor:
            together = list(executor.map(digest, trials))
        assert (dict(os.environ), *streams()) == before
    assert together == alone


NETWORK = """
import torch

class Network(torch.nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs))
"""


def streams() -> list[str]:
    """The states of the process's random streams."""
    return [
        repr(random.getstate()),
        repr(np.random.get_state(legacy=False)["state"]["key"].tolist()),  # noqa: NPY002
        repr(torch.get_rng_state().tolist()),
    ]
