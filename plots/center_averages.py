"""Scores averages of the last centers of trials, and writes ``center_averages.md``.

    esbench run mujoco --env HalfCheetah-v5 --algorithm cma_es --algorithm csa_es \
        --algorithm sep_cma_es --seeds 0-2 --keep 1000
    python plots/center_averages.py results/runs/mujoco

``--keep`` stores the center of every generation. A score with span N is the one that the trial
would have with ``center_average = N``: training is the same, and so are the held-out episodes.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import numpy as np
from error_rates import markdown

import esbench
from esbench.core.arrays import Floats
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.results.statistics.estimates import tail_mean
from esbench.store.trial_folder import TrialFolder

SPANS = (1, 5, 10, 20)


def main(root: Path) -> None:
    """Write the table of the trials below ``root``, two of them at a time."""
    paths = sorted(path.parent for path in root.rglob("trial.json"))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = [row for found in pool.imap(scored, paths) for row in found]
    header = ["algorithm", "seed", "score of", *(f"span {n}" for n in SPANS)]
    text = "\n".join(markdown(header, rows)) + "\n"
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)  # noqa: T201


def scored(path: Path) -> list[list[str]]:
    """Three rows of one trial: means, medians and tails of its held-out episodes, by span."""
    folder = TrialFolder(path)
    algorithm, seed = folder.spec().algorithm.name, str(folder.spec().seed)
    policy = esbench.load_policy(path)
    assert isinstance(policy, TrainedPolicy)
    centers = all_centers(folder)
    played = []
    for span in SPANS:
        policy.parameters = averaged(centers, span)
        played.append(returns_of(policy))
    assert played[0].tolist() == folder.result()["returns"], "the held-out episodes of the trial"
    return [
        [algorithm, seed, name, *(f"{statistic(returns):.0f}" for returns in played)]
        for name, statistic in (("mean", np.mean), ("median", np.median), ("tail", tail_mean))
    ]


def all_centers(folder: TrialFolder) -> Floats:
    """The center after every generation, [generations, P]."""
    last = len(folder.records())
    states = (folder.load_checkpoint(generation) for generation in range(1, last + 1))
    return np.array([state["algorithm"]["center"] for state in states if state is not None])


def averaged(centers: Floats, span: int) -> Floats:
    """The average that ``center_average`` makes of [generations, P]."""
    average = centers[0]
    for generation, center in enumerate(centers[1:], start=2):
        rate = max(2.0 / (span + 1.0), 1.0 / generation)
        average = (1.0 - rate) * average + rate * center
    return average


def returns_of(policy: TrainedPolicy) -> Floats:
    """The returns of the held-out episodes, [episodes]."""
    return np.array([sum(rewards.tolist()) for rewards in played(policy)])


def played(policy: TrainedPolicy) -> list[Floats]:
    """The rewards of the held-out episodes, [steps] each, in a plain Gymnasium loop."""
    env = policy.make_environment()
    episodes = []
    for seed in policy.held_out_seeds:
        observation, _ = env.reset(seed=seed)
        policy.reset()
        rewards, ended = [], False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            rewards.append(float(reward))
            ended = terminated or truncated
        episodes.append(np.array(rewards))
    env.close()
    return episodes


if __name__ == "__main__":
    main(Path(sys.argv[1]))
