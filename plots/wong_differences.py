"""Measures two details of another study's code, and writes ``wong_differences.md`` beside it.

    python plots/wong_differences.py

CSA-ES with the settings of the suite ``wong-2024`` on HalfCheetah-v5. In the code of the study
(jacobdenobel/rl-es), the evolution path starts as ones, and the statistics that normalize
observations grow at every step: a member acts on those of all members before it in the same step.
The four variants of a seed draw the same noise and the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

import numpy as np

import esbench
from esbench.core.arrays import Floats, Vector
from esbench.core.seeding import Purpose, episode_seed
from esbench.environments.backends.mujoco import MujocoBackend
from esbench.policies.normalization import ObservationStatistics

SEEDS = (0, 1, 2, 3, 4)
MEMBERS = 18
SIGMA = 0.05
CLIP = 1000.0
LENGTH = 1000  # of every episode of HalfCheetah
GENERATIONS = (14, 28)  # after which the center is scored, 18,000 steps each
HELD_OUT = 20  # episodes of each score
SIZE, ACTIONS = 17, 6
NORMALIZERS = ("after each generation", "at every step")
PATHS = ("zeros", "ones")

Inputs: TypeAlias = Callable[[Floats], Floats]
"""The inputs of the policies of all members for their observations [members, n]."""


class EveryStep:
    """The normalizer of the study: n observations of 0 without spread, then every one that is seen.

    A deviation below 1e-7 counts as infinite.
    """

    def __init__(self) -> None:
        self.count, self.mean, self.squares = SIZE, np.zeros(SIZE), np.zeros(SIZE)
        self.deviation = np.ones(SIZE)

    def fixed(self, observations: Floats) -> Floats:
        """Normalize with the statistics so far."""
        return (observations - self.mean) / self.deviation

    def growing(self, observations: Floats) -> Floats:
        """Normalize each member's by the statistics before it, and add all of them."""
        counts = self.count + np.arange(len(observations) + 1)[:, None]
        centered = observations - self.mean
        none = np.zeros((1, SIZE))
        totals = np.concatenate([none, np.cumsum(centered, axis=0)])
        squares = np.concatenate([none, np.cumsum(centered**2, axis=0)])
        means = self.mean + totals / counts
        squares = np.maximum(self.squares + squares - totals**2 / counts, 0.0)
        deviations = np.sqrt(squares / (counts - 1))
        deviations[deviations < 1e-7] = np.inf
        deviations[0] = self.deviation
        self.count, self.mean = self.count + len(observations), means[-1]
        self.squares, self.deviation = squares[-1], deviations[-1]
        return (observations - means[:-1]) / deviations[:-1]


class EachGeneration:
    """The normalizer of esbench, which is fixed during a generation."""

    def __init__(self) -> None:
        self._statistics = ObservationStatistics(SIZE)
        self._seen = list[Floats]()

    def fixed(self, observations: Floats) -> Floats:
        """Normalize with the statistics so far."""
        inputs = np.zeros_like(observations)
        normalizer = self._statistics.normalizer(CLIP)
        normalizer.scale_into(inputs, observations - normalizer.mean)
        return inputs

    def growing(self, observations: Floats) -> Floats:
        """Normalize as ``fixed``, and add all episodes after their last step."""
        inputs = self.fixed(observations)
        self._seen.append(observations.copy())
        if len(self._seen) == LENGTH:
            shift = self._statistics.mean
            for episode in np.stack(self._seen, axis=1):
                shifted = episode - shift
                moments = len(episode), shifted.sum(axis=0), (shifted**2).sum(axis=0)
                self._statistics.merge(moments, shift)
            self._seen.clear()
        return inputs


def returns_of(robots: MujocoBackend, weights: Floats, seeds: list[int], inputs: Inputs) -> Vector:
    """The returns of policies [members, n] in an episode each."""
    matrices = weights.reshape(len(weights), ACTIONS, SIZE)
    for slot, seed in enumerate(seeds):
        robots.start(slot, seed)
    returns = np.zeros(len(weights))
    for _ in range(LENGTH):
        seen = inputs(robots.observations[: len(weights)])
        actions = np.tanh(np.einsum("man,mn->ma", matrices, seen))
        returns += robots.step(actions)[1][: len(weights)]
    for slot in range(len(weights)):
        robots.retire(slot)
    return returns


def run(seed: int, normalizer: str, path: str) -> tuple[list[float], float]:
    """The scores of the center after ``GENERATIONS``, and the last step size."""
    robots = MujocoBackend("HalfCheetah-v5", {}, max(MEMBERS, HELD_OUT))
    size = ACTIONS * SIZE
    algorithm = esbench.make_algorithm(
        "csa_es", num_params=size, seed=seed, population_size=MEMBERS, sigma=SIGMA
    )
    if path == "ones":
        algorithm.load_state_dict({**algorithm.state_dict(), "path": np.ones(size)})
    statistics = EveryStep() if normalizer == "at every step" else EachGeneration()
    seed_of = partial(episode_seed, seed)
    held_out = [seed_of(Purpose.EVALUATION_EPISODE, episode) for episode in range(HELD_OUT)]
    scores = []
    for generation in range(1, GENERATIONS[-1] + 1):
        population = algorithm.ask()
        training = Purpose.TRAINING_EPISODE
        seeds = [seed_of(training, generation, member, 0) for member in range(MEMBERS)]
        algorithm.tell(
            population, returns_of(robots, population.members(), seeds, statistics.growing)
        )
        if generation in GENERATIONS:
            centers = np.tile(algorithm.center, (HELD_OUT, 1))
            scores.append(float(returns_of(robots, centers, held_out, statistics.fixed).mean()))
    return scores, float(algorithm.sigma)


def main() -> None:
    """Write the table."""
    steps = [f"{each * MEMBERS * LENGTH / 1e6:.2f} M" for each in GENERATIONS]
    last = f"scores of seeds {', '.join(map(str, SEEDS))} after {steps[-1]}"
    header = ["normalizer", "path", *steps, last, "sigma"]
    variants = list(product(NORMALIZERS, PATHS))
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = {(seed, *each): pool.submit(run, seed, *each) for seed in SEEDS for each in variants}
        for key, job in jobs.items():
            print(*key, *job.result(), flush=True)  # noqa: T201
    lines = [f"| {' | '.join(header)} |", "| :-- | :-- |" + " --: |" * (len(header) - 2)]
    for variant in variants:
        scores, sigmas = zip(*(jobs[seed, *variant].result() for seed in SEEDS), strict=True)
        cells = [*variant, *(f"{mean:.0f}" for mean in np.mean(scores, axis=0))]
        cells += [", ".join(f"{each[-1]:.0f}" for each in scores), f"{np.mean(sigmas):.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
