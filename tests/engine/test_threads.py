"""Every process keeps one thread busy: more would compete with the workers for the cores."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import finished

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
    for name in libraries:
        assert f"{name}_NUM_THREADS=1" in variables
        assert os.environ[f"{name}_NUM_THREADS"] == "7"
