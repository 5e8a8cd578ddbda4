"""Steps/s of the Ray engine with one node, beside the local engine: pairs of generations.

``PYTHONPATH=tests python tests/campaigns/ray_cost.py [ROUNDS]`` trains one generation of 256
members on HalfCheetah-v5 (linear, episodes of 1,000 steps) after the other on both engines. It
prints the medians of three figures: steps/s, which depend on what else the machine does, the CPU
time of the workers, and the cores that all other processes of an engine use.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from ray_nodes import read

from esbench import RayEngine
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import grid_trials
from esbench.grids.grid_file import parse_grid

GRID = {
    "name": "cost",
    "seeds": [0],
    "environments": ["HalfCheetah-v5"],
    "algorithms": {"openai_es": {"population_size": 256}},
    "policy": {"template": "linear"},
    "budget": {"env_steps": 10**9},
}


def cpu_seconds(engine: str) -> float:
    """The CPU time of this process and of those that it has started for an engine."""
    times, parents, me = dict[int, float](), dict[int, int](), os.getpid()
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = read(path).rpartition(")")[2].split()
        if fields:  # else, the process has ended
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            times[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def counts(pid: int) -> bool:
        while parents.get(pid, 0) not in {0, me}:
            pid = parents[pid]
        is_ray = "/site-packages/ray/" in read(Path(f"/proc/{pid}/cmdline"))
        return parents.get(pid) == me and is_ray == (engine == "ray")

    return times[me] + sum(time for pid, time in times.items() if pid != me and counts(pid))


def print_medians(name: str, values: dict[str, list[float]]) -> None:
    """Print the median of each engine, and of the ratios."""
    local, ray = (statistics.median(values[engine]) for engine in ("local", "ray"))
    ratios = sorted(ray / local for ray, local in zip(values["ray"], values["local"], strict=True))
    print(
        f"{name}: local {local:,.3f}, ray {ray:,.3f}; ratio {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})",
        flush=True,
    )


def main(rounds: int) -> None:
    (trial,) = grid_trials(parse_grid(GRID, "cost"), Path(), "cost")
    with WorkerPool(2) as pool, RayEngine(workers=2) as ray:
        engines: dict[str, Engine] = {"local": pool, "ray": ray}
        trainers = {name: SearchTrainer(trial.spec, engine) for name, engine in engines.items()}
        names = "steps/s", "CPU seconds of the workers per million steps", "cores for the rest"
        found = {name: {engine: list[float]() for engine in engines} for name in names}
        for number in range(rounds + 1):
            # In turn first, since other programs on the machine come and go.
            for name in sorted(trainers, reverse=bool(number % 2)):
                trainer, engine = trainers[name], engines[name]
                steps, workers = trainer.progress.env_steps, engine.cpu_time_s
                cpu, started = cpu_seconds(name), time.perf_counter()
                trainer.train(env_steps=steps + 1)
                seconds, cpu = time.perf_counter() - started, cpu_seconds(name) - cpu
                steps, workers = trainer.progress.env_steps - steps, engine.cpu_time_s - workers
                figures = steps / seconds, 1e6 * workers / steps, (cpu - workers) / seconds
                for values, figure in zip(found.values(), figures, strict=True):
                    values[name] += [figure] if number else []  # the first generation loads
            assert len({trainer.history[-1].digest for trainer in trainers.values()}) == 1
            print(f"{number} of {rounds} pairs", flush=True)
        for name, values in found.items():
            print_medians(name, values)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
