"""Every process keeps one thread busy: more would compete with the workers for the cores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json
import os
import time
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
        end = time.monotonic() + 3
        while time.monotonic() < end:
            trainer.train(env_steps=trainer.progress.env_steps + 1)
        print(json.dumps([
            {thread: spent - first.get(thread, 0.0) for thread, spent in seconds(pid).items()}
            for pid, first in zip(processes, before)
        ]))


if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_one_thread_of_each_process_is_busy(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    processes = json.loads(done.stdout)
    assert len(processes) == 3
    for threads in processes:
        first, *others = sorted(threads.values(), reverse=True)
        assert first > 0.3
        assert sum(others) <= 0.05 * first
