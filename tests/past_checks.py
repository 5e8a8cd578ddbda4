"""Files of checks as 'esbench check --json' writes them, made up."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ORIGIN = {"versions": {"numpy": "2.0"}, "hardware": {"cpu": "A"}}


def write_check(folder: Path, number: int, scores: list[float], **more: Any) -> None:
    """Write the file of a check of the commit of a day of 2026, by default with new digests."""
    names = {"commit", "commit_date", "created"} & more.keys()
    file: dict[str, Any] = {key: more.pop(key) for key in names}
    date = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T12:00:00+00:00"
    cell = {
        "environment": "CartPole-v1",
        "algorithm": "openai_es",
        "policy": "default",
        "episode_statistic": "mean",
        "verdict": "no worse",
        "seeds": list(range(len(scores))),
        "scores": scores,
        "speeds": [1000.0] * len(scores),
        "last_digests": [f"{number}-{seed}" for seed in range(len(scores))],
        "origins": [ORIGIN],
        **more,
    }
    check = {"format": 1, "commit": f"{number:040x}", "commit_date": date, "created": date, **file}
    folder.mkdir(exist_ok=True)
    name = f"{100 - number}-{len(list(folder.iterdir()))}.json"  # the order is not that of names
    (folder / name).write_text(json.dumps({**check, "cells": [cell]}))


def write_levels(folder: Path, levels: list[float], repeated: int = 1) -> None:
    """Write checks with scores around levels; each is checked as often as ``repeated``."""
    rng = np.random.default_rng(1)
    number = 0
    for level in levels:
        scores = (level + rng.standard_normal(8)).tolist()
        digests = [f"{number}-{seed}" for seed in range(8)]
        for _ in range(repeated):
            write_check(folder, number, scores, last_digests=digests)
            number += 1


def git(folder: Path, *arguments: str, date: str = "2026-01-01T00:00:00Z") -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a"}
    env = {**who, "GIT_COMMITTER_EMAIL": "a", "GIT_COMMITTER_DATE": date, "PATH": "/usr/bin:/bin"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
