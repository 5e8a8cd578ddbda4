"""Divides the trials of a grid into shards of about equal planned cost.

Every process computes the same shards from the specifications alone. Nothing is measured, and it
does not matter which trials are done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from esbench.core.errors import UsageError
from esbench.core.units import counted
from esbench.environments.registration import SUFFIXES
from esbench.grids.trial_spec import TrialSpec

# Microseconds per environment step, rounded, of one worker (docs/how-to/slurm.md). Another number
# moves trials between shards: arrays that have started must then finish with the old version.
OTHER_ENVIRONMENT: Final = 50
STEP: Final = {
    "Acrobot-v1": 60,
    "Ant-v5": 480,
    "BipedalWalker-v3": 900,
    "CartPole-v1": 30,
    "HalfCheetah-v5": 60,
    "Hopper-v5": 220,
    "Humanoid-v5": 480,
    "HumanoidStandup-v5": 1150,
    "InvertedDoublePendulum-v5": 190,
    "InvertedPendulum-v5": 70,
    "LunarLander-v3": 140,
    "MountainCarContinuous-v0": 15,
    "Pendulum-v1": 25,
    "Pusher-v5": 100,
    "Reacher-v5": 70,
    "Swimmer-v5": 170,
    "Walker2d-v5": 200,
    "esbench/Ellipsoid-v0": 200,
    "esbench/NoisySphere-v0": 200,
    "esbench/Rastrigin-v0": 200,
    "esbench/Rosenbrock-v0": 200,
    "esbench/RotatedEllipsoid-v0": 200,
    "esbench/Sphere-v0": 200,
}
MEMORY_STEP, FRAMES_STEP = 500, 800  # of an Atari game
POLICY: Final = {"openai_conv": 400, "nature_conv": 1000, "conv_lstm": 1300}  # the others are fast
AGENT: Final = {"dqn": 2500, "ppo": 3000, "sac": 20_000, "sb3_ars": 800, "td3": 20_000}
OTHER_AGENT: Final = 2000


@final
@dataclass(frozen=True)
class Shard:
    """Part ``number`` of ``count``; the first one is 1."""

    number: int
    count: int

    def folder(self, grid: str) -> str:
        """The name of its output folder, which no shard of another grid or division has."""
        return f"{grid}-{self.number}-of-{self.count}"


def parse_shard(text: str) -> Shard:
    """The shard "I/N"; UsageError unless 1 <= I <= N."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", str(text))
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(
            f"--shard {text!r}: expected I/N with I from 1 to N, such as 2/4 for the second of four"
        )
    return Shard(int(match[1]), int(match[2]))


def planned_cost(spec: TrialSpec) -> int:
    """The budget of a trial times its planned time per step, in microseconds of one worker."""
    name = spec.environment.id
    if name.startswith("esbench/") and name not in STEP:  # an Atari game
        step = MEMORY_STEP if SUFFIXES["ram"] in name else FRAMES_STEP
    else:
        step = STEP.get(name, OTHER_ENVIRONMENT)
    if spec.policy is None:  # an agent
        step += AGENT.get(spec.algorithm.name, OTHER_AGENT)
    else:
        step += POLICY.get(spec.policy.template, 0)
    return spec.budget.env_steps * step


def describe_shards(specs: Sequence[TrialSpec], count: int) -> str:
    """The sizes of a grid's shards in words; UsageError as ``divide``."""
    costs = [planned_cost(spec) for spec in specs]
    shards = divide(costs, count)
    sizes = [len(shard) for shard in shards]
    shares = [sum(costs[index] for index in shard) / sum(costs) for shard in shards]
    return (
        f"{counted(len(costs), 'trial')} in {counted(count, 'shard')}; smallest and largest: "
        f"{min(sizes)} and {counted(max(sizes), 'trial')}, {100 * min(shares):.1f} and "
        f"{100 * max(shares):.1f} % of the planned cost"
    )


def divide(costs: Sequence[int], count: int) -> list[list[int]]:
    """The indices of the trials of each shard, in order.

    The most expensive trial comes first, then the next one, each to the shard with the least cost
    so far. Integers make ties exact, so a common factor of all costs changes nothing.

    Raises:
        UsageError: there are more shards than trials, or none.
    """
    if not 1 <= count <= len(costs):
        raise UsageError(
            f"{count} shards of a grid of {counted(len(costs), 'trial')}: expected at least one, "
            "and at most one per trial"
        )
    loads, shards = [0] * count, [list[int]() for _ in range(count)]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        lightest = loads.index(min(loads))
        loads[lightest] += costs[index]
        shards[lightest].append(index)
    return [sorted(shard) for shard in shards]
