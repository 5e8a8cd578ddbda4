"""Random losses of nodes: the digests must be those of the local engine.

``PYTHONPATH=tests python tests/campaigns/ray_losses.py [KILLS]`` trains OpenAI-ES on HalfCheetah-v5
with three nodes. At random moments a node that has reported episodes and plays others, or the actor
on it, is killed, and a node joins. At last, one node falls silent for a minute, as if its network
were cut, and comes back.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ray_nodes import Nodes

from esbench import RayEngine
from esbench.engine.coordinator import NodeShare
from esbench.engine.engine import Engine
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import grid_trials
from esbench.grids.grid_file import parse_grid
from esbench.integrations.ray_nodes import RayNode

SILENT_SECONDS = 60.0


def half_cheetah(engine: Engine, members: int, steps: int) -> SearchTrainer:
    """A trainer of OpenAI-ES without a budget; episodes have at most ``steps`` steps."""
    grid: dict[str, Any] = {
        "name": "ray",
        "seeds": [0],
        "environments": ["HalfCheetah-v5"],
        "algorithms": {"openai_es": {"population_size": members}},
        "policy": {"template": "linear"},
        "environment": {"HalfCheetah-v5": {"max_episode_steps": steps}},
        "budget": {"env_steps": 10**9},
    }
    (trial,) = grid_trials(parse_grid(grid, "ray"), Path(), "ray")
    return SearchTrainer(trial.spec, engine)


def train(engine: Engine, going_on: Callable[[int], bool]) -> list[str]:
    with half_cheetah(engine, 64, 100) as trainer:
        while going_on(len(trainer.history)):
            trainer.train(env_steps=trainer.progress.env_steps + 1)
        return [record.digest for record in trainer.history]


def main(kills: int) -> None:
    chance, nodes, left = random.Random(0), Nodes(), kills
    struck: list[NodeShare] = []
    nodes.resize(3)

    def kill_one(done: int, total: int) -> None:
        nonlocal left
        shares = [share for share in engine._coordinator.shares.values() if share not in struck]
        playing = [share for share in shares if share.episodes and share.held]
        if left and playing and 0 < done < total and chance.random() < 0.5:
            left -= 1
            struck.append(chance.choice(playing))
            id_ = cast(RayNode, struck[-1].node).place.id
            (node,) = (node for node in nodes.nodes if node.node_id == id_)
            if chance.random() < 0.5:
                nodes.kill_actor(node)
            else:
                nodes.kill(node)
                nodes.add(wait=chance.random() < 0.5)

    with RayEngine(nodes.address) as engine:
        engine.progress = kill_one
        ours = train(engine, lambda _: left > 0 or engine.nodes["losses"] < kills)
        about = engine.nodes
        print(f"{kills} kills in {len(ours)} generations: {about}", flush=True)
        engine.progress = None
        silent, started, count = nodes.nodes[0], time.monotonic(), len(ours)
        nodes.freeze(silent)
        again = train(
            engine, lambda done: done < count or time.monotonic() < started + SILENT_SECONDS
        )
        nodes.freeze(silent, frozen=False)
        nodes.add()
        print(f"silent for {SILENT_SECONDS:.0f} s: {len(again)} generations: {engine.nodes}")
    with WorkerPool() as pool:
        longest = max(ours, again, key=len)
        local = train(pool, lambda count: count < len(longest))
    assert ours == local[: len(ours)]
    assert again == local[: len(again)]
    print("the digests are those of the local engine")
    nodes.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
