"""Counts the steps at which policies stop earning rewards, and writes ``falls.md``.

    esbench run growing-episodes --algorithm cma_es_growing
    esbench run short-episodes --algorithm ars_short --algorithm openai_es_short
    python plots/falls.py results/runs/growing-episodes results/runs/short-episodes

A held-out episode fails at step t if its sum of rewards is largest at t, and t is more than 100
steps before its end: from there on the robot only pays for its torques.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import numpy as np
from center_averages import played
from error_rates import markdown

import esbench
from esbench.core.arrays import Floats
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.store.trial_folder import TrialFolder

START = 100  # steps to get up to speed
STANDSTILL = 100  # steps without a new maximum that are a failure
HEADER = [
    "algorithm",
    "seed",
    "mean",
    "mean without a failure",
    f"failures before step {START}",
    "later",
]


def main(roots: list[Path]) -> None:
    """Write the table of the trials below the folders, two of them at a time."""
    paths = sorted(path.parent for root in roots for path in root.rglob("result.json"))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.map(row, paths)
    text = "\n".join(markdown(HEADER, rows)) + "\n"
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)  # noqa: T201


def row(path: Path) -> list[str]:
    """The row of one trial."""
    folder = TrialFolder(path)
    policy = esbench.load_policy(path)
    assert isinstance(policy, TrainedPolicy)
    episodes = played(policy)
    returns = np.array([rewards.sum() for rewards in episodes])
    steps = np.array([failure(rewards) for rewards in episodes])
    failed = np.isfinite(steps)
    early = steps < START
    later = int((failed & ~early).sum())
    unbroken = f"{returns[~failed].mean():.0f}" if not failed.all() else "-"
    counts = [f"{early.sum()} of {failed.size}", f"{later} of {(~early).sum()}"]
    label = folder.description()["labels"]["algorithm"]
    return [label, str(folder.spec().seed), f"{returns.mean():.0f}", unbroken, *counts]


def failure(rewards: Floats) -> float:
    """The step at which an episode fails, or infinity."""
    last = int(np.argmax(np.cumsum(rewards)))
    return last if last < rewards.size - STANDSTILL else np.inf


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
