"""Measures a detail of another study's code, and writes ``wong_differences.md`` beside it.

    python plots/wong_differences.py

CSA-ES with the settings of the suite ``wong-2024`` on HalfCheetah-v5. In the code of the study, the
evolution path starts as ones. Seeds are paired: both variants of a seed draw the same noise.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np

import esbench
from esbench.core.arrays import Floats, Vector

ENV_STEPS = 180_000
SEEDS = (0, 1, 2)
MEMBERS = 18
SIGMA = 0.05
LENGTH = 1000  # of every episode of HalfCheetah
HELD_OUT = 20
EARLY = 5  # the generation after which the table shows the step size
ROBOTS = [gymnasium.make("HalfCheetah-v5").unwrapped for _ in range(max(MEMBERS, HELD_OUT))]
VARIANTS = {
    "as in esbench": False,
    "path starts as ones": True,
}


class Statistics:
    """Running mean and deviation of observations [n], from n observations of 0 and no spread."""

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.squares = size, np.zeros(size), np.zeros(size)
        self.deviation = np.ones(size)

    def observe(self, observation: Vector) -> None:
        """Add one observation."""
        self.count += 1
        delta = observation - self.mean
        self.mean += delta / self.count
        self.squares += delta * (observation - self.mean)

    def update(self) -> None:
        """Take the deviation of all observations so far; a constant one counts as 0."""
        self.deviation = np.sqrt(self.squares / (self.count - 1))
        self.deviation[self.deviation < 1e-7] = np.inf


def returns_of(weights: Floats, seeds: Floats, statistics: Statistics, learns: bool) -> Floats:
    """The returns of policies [members, n] with an episode each, which the statistics may see."""
    robots = ROBOTS[: len(weights)]
    observations = [
        robot.reset(seed=int(seed))[0] for robot, seed in zip(robots, seeds, strict=True)
    ]
    matrices = weights.reshape(len(weights), 6, -1)
    mean, deviation = statistics.mean.copy(), statistics.deviation.copy()
    returns = np.zeros(len(weights))
    for _ in range(LENGTH):
        for member, robot in enumerate(robots):
            seen = observations[member]
            action = np.tanh(matrices[member] @ ((seen - mean) / deviation))
            if learns:
                statistics.observe(seen)
            observations[member], reward, *_ = robot.step(action)
            returns[member] += reward
    if learns:
        statistics.update()
    return returns


def run(seed: int, ones: bool) -> tuple[float, float, float]:
    """Held-out score of the center, and the step size early and at the end."""
    size = ROBOTS[0].observation_space.shape[0]
    algorithm = esbench.make_algorithm(
        "csa_es", num_params=6 * size, seed=seed, population_size=MEMBERS, sigma=SIGMA
    )
    if ones:
        state = algorithm.state_dict()
        algorithm.load_state_dict({**state, "path": np.ones(6 * size)})
    statistics = Statistics(size)
    generator = np.random.default_rng([seed, 1])
    sigmas = []
    for _ in range(ENV_STEPS // (MEMBERS * LENGTH)):
        population = algorithm.ask()
        seeds = generator.integers(2**31, size=MEMBERS)
        returns = returns_of(population.members(), seeds, statistics, True)
        algorithm.tell(population, returns)
        sigmas.append(float(algorithm.sigma))
    seeds = np.random.default_rng([seed, 2]).integers(2**31, size=HELD_OUT)
    centers = np.tile(algorithm.center, (HELD_OUT, 1))
    score = float(returns_of(centers, seeds, statistics, False).mean())
    return score, sigmas[EARLY - 1], sigmas[-1]


def main() -> None:
    """Write the table."""
    seeds = ", ".join(map(str, SEEDS))
    header = f"variant | scores of seeds {seeds} | mean | sigma after {EARLY} generations | last"
    lines = [f"| {header} |", "| :-- | --: | --: | --: | --: |"]
    for name, variant in VARIANTS.items():
        found = [run(seed, variant) for seed in SEEDS]
        scores, early, late = zip(*found, strict=True)
        cells = [name, ", ".join(f"{score:.0f}" for score in scores), f"{np.mean(scores):.0f}"]
        cells += [f"{np.mean(early):.3f}", f"{np.mean(late):.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)  # noqa: T201
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
