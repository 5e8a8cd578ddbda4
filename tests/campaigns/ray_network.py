"""The Ray engine on three hosts behind a slow network that loses frames, and with one cut off.

``python tests/campaigns/ray_network.py [ROUNDS]`` trains OpenAI-ES on HalfCheetah-v5. The driver
and the head of Ray are on a host that plays nothing; three more hosts have one worker each. One
generation after the other is played with each delay, and the steps/s are medians over the rounds.
Then one host is cut off for a few seconds, and for a minute. The digests must be those of the local
engine.
"""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, final

from network import Network, missing

from esbench import RayEngine
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import grid_trials
from esbench.grids.grid_file import parse_grid

HOSTS: Final = 3
SHORT_CUT, LONG_CUT = 10.0, 60.0  # seconds; Ray gives up a node after about half a minute
DELAYS, LOSSES = (0.0, 0.005, 0.05), (0.0, 0.01)  # seconds each way; a share of all frames
NETWORKS: Final = list(itertools.product(DELAYS, LOSSES))
TRIALS: Final = {"64 × 100 steps": (64, 100), "256 × 250 steps": (256, 250)}
STORE_BYTES: Final = 80 * 2**20


def trainer_of(engine: Engine, members: int, steps: int) -> SearchTrainer:
    grid: dict[str, Any] = {
        "name": "network",
        "seeds": [0],
        "environments": ["HalfCheetah-v5"],
        "algorithms": {"openai_es": {"population_size": members}},
        "policy": {"template": "linear"},
        "environment": {"HalfCheetah-v5": {"max_episode_steps": steps}},
        "budget": {"env_steps": 10**9},
    }
    (trial,) = grid_trials(parse_grid(grid, "network"), Path(), "network")
    return SearchTrainer(trial.spec, engine)


def generation(trainer: SearchTrainer) -> float:
    """Train one generation; returns its steps/s."""
    before, started = trainer.progress.env_steps, time.perf_counter()
    trainer.train(env_steps=before + 1)
    return (trainer.progress.env_steps - before) / (time.perf_counter() - started)


@final
class Hosts:
    """A Ray cluster: the head and this process on host 0, and nodes on the others."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network, self._folder = network, folder
        self.address = f"{network.addresses[0]}:6379"
        network.enter(0)
        self._ray(0, "--head", "--port", "6379", "--include-dashboard", "false", cpus=0).wait()
        for host in range(1, HOSTS + 1):
            self.join(host)

    def join(self, host: int) -> None:
        """Start the node of a host, without waiting for it."""
        self._ray(host, "--address", self.address, cpus=1)

    def _ray(self, host: int, *options: str, cpus: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        command += ["--node-ip-address", self._network.addresses[host], "--num-cpus", str(cpus)]
        command += ["--object-store-memory", str(STORE_BYTES), "--disable-usage-stats"]
        if "--head" in options:
            command += ["--temp-dir", str(self._folder)]
        # The other hosts have a folder of this name for themselves.
        private = None if "--head" in options else self._folder
        return subprocess.Popen(
            self._network.command(host, *command, private=private),
            env={**os.environ, "RAY_worker_niceness": "0"},
            stdout=subprocess.DEVNULL,
        )


def await_nodes(engine: RayEngine, trainer: SearchTrainer, count: int) -> None:
    """Train until ``count`` nodes play."""
    while len(engine.nodes["nodes"]) != count:
        generation(trainer)


def measure(network: Network, trainer: SearchTrainer, rounds: int) -> list[float]:
    """The median steps/s with each of ``NETWORKS``, which take turns."""
    speeds: list[list[float]] = [[] for _ in NETWORKS]
    for _ in range(rounds):
        for (delay, loss), found in zip(NETWORKS, speeds, strict=True):
            network.change(delay=delay, loss=loss)
            found.append(generation(trainer))
            print([round(value) for value in found], flush=True)
    network.change(delay=0.0, loss=0.0)
    return [statistics.median(found) for found in speeds]


def cut_off(network: Network, hosts: Hosts, engine: RayEngine, trainer: SearchTrainer) -> None:
    for seconds in (SHORT_CUT, LONG_CUT):
        before, lost = len(trainer.history), engine.nodes["losses"]
        started, noticed = time.monotonic(), "not counted as lost"
        network.change(cut=[HOSTS])
        while time.monotonic() < started + seconds:
            generation(trainer)
            if engine.nodes["losses"] > lost:
                lost += 1
                noticed = f"counted as lost after {time.monotonic() - started:.0f} s"
        network.change(cut=[])
        count = len(trainer.history) - before
        print(f"cut off for {seconds:.0f} s: {count} generations meanwhile, {noticed}", flush=True)
    started = time.monotonic()
    while any("NodeActor" in line or "raylet/" in line for line in network.commands(HOSTS)):
        generation(trainer)
    print(f"its node ended {time.monotonic() - started:.0f} s after it was back", flush=True)
    hosts.join(HOSTS)
    await_nodes(engine, trainer, HOSTS)
    print(f"started again, it plays: {engine.nodes}", flush=True)


def play(network: Network, rounds: int, folder: Path) -> dict[str, list[str]]:
    """Measure and cut; returns the digests of each trial."""
    hosts, digests, table = Hosts(network, folder), dict[str, list[str]](), []
    with RayEngine(hosts.address) as engine:
        engine.notice = lambda text: print(text, flush=True)
        for name, sizes in TRIALS.items():
            with trainer_of(engine, *sizes) as trainer:
                await_nodes(engine, trainer, HOSTS)
                table.append(measure(network, trainer, rounds))
                if name == next(iter(TRIALS)):
                    cut_off(network, hosts, engine, trainer)
                digests[name] = [record.digest for record in trainer.history]
        print(f"| Delay each way | Loss | Round trip | {' | '.join(TRIALS)} |")
        for (delay, loss), *speeds in zip(NETWORKS, *table, strict=True):
            network.change(delay=delay, loss=0.0)
            trip = 1e3 * network.round_trip(1)
            cells = [f"{1e3 * delay:.0f} ms", f"{loss:.0%}", f"{trip:.1f} ms"]
            print(f"| {' | '.join([*cells, *(f'{speed:,.0f}' for speed in speeds)])} |")
        network.change(delay=0.0)
    return digests


def main(rounds: int) -> None:
    if problem := missing():
        sys.exit(problem)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="esbench-ray-"))
    try:
        with Network(HOSTS + 1) as network:
            digests = play(network, rounds, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with WorkerPool() as pool:
        for name, ours in digests.items():
            with trainer_of(pool, *TRIALS[name]) as trainer:
                while len(trainer.history) < len(ours):
                    generation(trainer)
                assert [record.digest for record in trainer.history] == ours
                print(f"{name}: {len(ours)} generations with the digests of the local engine")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
