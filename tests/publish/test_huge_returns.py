"""Returns of 1e300 are numbers as others: they have statistics, and no warning is printed."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from fake_trials import edit, make_records, make_trials, write_trial

from esbench.core.arrays import LARGEST_MEAN, LARGEST_RETURN
from esbench.engine.jobs import spread
from esbench.results.statistics.estimates import hedges_g
from esbench.results.statistics.judgment import GateRules, Sample, seeds_needed

SCORES = (1e300, -1e300, 5.0, 1e160)
COMMANDS = (
    "table DIR",
    "table DIR --wide",
    "table DIR --statistic tail",
    "table DIR --statistic area",
    "table DIR --format csv",
    "compare openai_es snes --in DIR",
    "efficiency DIR",
    "diagnose DIR",
    "diagnose DIR/CartPole-v1/snes/seed-0",
    "report DIR",
    "plot DIR --format svg --panels steps",
    "baseline DIR --out b.json --margin 0.5",
    "check DIR --baseline b.json --allow-inconclusive --json checks/c.json",
    "history checks --out plots",
)


def write_folder(root: Path, scores: Sequence[float]) -> None:
    for name in ("openai_es", "snes"):
        trials = make_trials(root, seeds=[*range(len(scores))], algorithms={name: {}})
        for trial, score in zip(trials, scores, strict=True):
            returns = [score / 2] * 6 + [score] * 6
            write_trial(trial, make_records(returns, population=returns), score)
    edit(root, "result.json", lambda c: c.update(returns=[c["score"]] * 20, lengths=[1.0] * 20))


def test_every_command_shows_numbers_without_warnings(esbench: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "runs", SCORES)
    for command in COMMANDS:
        code, out, err = esbench(*command.replace("DIR", "runs").split())  # a warning is an error
        assert (code, err) == (0, ""), command
        assert not {"nan", "inf"} & {*out.replace(",", " ").split()}, command
        assert re.search(r"\d{100}", out) is None, command
    assert "e+299" in (tmp_path / "runs/report.html").read_text()


def test_effect_sizes_and_seeds_do_not_depend_on_the_scale() -> None:
    first, second = np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 3.0])
    small, huge = (
        (
            hedges_g(scale * first, scale * second),
            seeds_needed(Sample(scale * first, scale * second, span=scale), GateRules()),
            spread(scale * first)["population_return_std"] / scale,
        )
        for scale in (1.0, 2.0**990)
    )
    assert small == huge


@pytest.mark.parametrize("value", [1.1 * LARGEST_RETURN, -math.inf, math.nan])
def test_a_return_beyond_the_largest_is_not_finite(value: float) -> None:
    assert max(np.full(n, LARGEST_RETURN).mean() for n in range(1, 2000)) <= LARGEST_MEAN
    found = spread(np.array([1.0, value, LARGEST_RETURN]))
    assert (found["non_finite"], found["population_return_max"]) == (1, LARGEST_RETURN)


@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json"])
def test_a_file_with_a_return_beyond_the_largest_is_damaged(
    esbench: Run, tmp_path: Path, name: str
) -> None:
    write_folder(tmp_path / "runs", [1.0, 2.0, 3.0])
    path = tmp_path / "runs/CartPole-v1/snes/seed-0" / name
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    row = json.loads(lines.pop()) | {"center_return": 1e303, "score": 1e303}
    row.pop("sha256", None)
    path.write_text("\n".join([*lines, json.dumps(row)]) + "\n")
    code, out, err = esbench("efficiency", "runs")
    assert (code, out) == (2, "")
    assert name in err
    assert "2e300" in err.replace("+", "")
