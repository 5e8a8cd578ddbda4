"""Margins that fit the spread of a baseline's scores."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import Run
from fake_trials import GOOD, write_scores
from simulated_checks import DISTRIBUTIONS

from esbench.publish.gate.agent_gate import AgentGate
from esbench.publish.gate.choose_margin import MARGINS, margins_needed, smallest
from esbench.results.baselines import read_baseline
from esbench.results.statistics.judgment import MARGIN, GateRules, Sample, Verdict, judge
from esbench.results.statistics.significance import OMNIBUS

WIDE = [200.0, 240.0, 300.0, 330.0, 350.0, 400.0, 450.0, 500.0]


@pytest.mark.parametrize(
    ("name", "least", "bases"), [("normal", 0.75, 16), ("some seeds fail", 0.5, 8)]
)
def test_unchanged_code_passes_most_checks(name: str, least: float, bases: int) -> None:
    draw, rng, count = DISTRIBUTIONS[name], np.random.default_rng(1), 10 * bases
    verdicts: dict[bool, Counter[Verdict]] = {False: Counter(), True: Counter()}
    for _ in range(bases):
        base = draw(rng, 8, 0.0)
        margin = smallest(margins_needed(base, 8, OMNIBUS), 0.8) or MARGINS[-1]
        for _ in range(10):
            scores = draw(rng, 8, 0.0)
            for chosen in verdicts:
                sample = Sample(base, scores, 1.0, margin if chosen else MARGIN)
                (found,) = judge([sample], GateRules(), resamples=1000)
                assert found is not None
                verdicts[chosen][found.verdict] += 1
    assert verdicts[True][Verdict.REGRESSION] <= count / 40  # a lucky baseline makes several
    passed = [count - found[Verdict.INCONCLUSIVE] for found in verdicts.values()]
    assert passed[1] >= max(least * count, passed[0] + count / 8)


@pytest.mark.parametrize(
    ("scores", "options", "least", "most"),
    [
        (GOOD, (), MARGIN, MARGIN),
        ([500.0] * 8, (), MARGIN, MARGIN),
        (WIDE, (), 0.2, 0.45),
        (WIDE, ("--power", "0.95"), 0.3, 0.6),
        (WIDE, ("--margin", "0.1"), 0.1, 0.1),
        (WIDE[::4], (), 1.0, 1.0),  # two seeds: no test can exclude anything
    ],
)
def test_the_baseline_has_a_margin_that_fits_its_scores(
    esbench: Run,
    tmp_path: Path,
    scores: list[float],
    options: tuple[str, ...],
    least: float,
    most: float,
) -> None:
    write_scores(tmp_path / "base", scores)
    code, out, _ = esbench("baseline", "base", "--out", "b.json", *options)
    (cell,) = read_baseline(tmp_path / "b.json").cells
    assert (code, cell.margin is not None and least <= cell.margin <= most) == (0, True)
    units = (cell.margin or 0) * (500 - 22.63)  # of the environment's file
    assert f"{100 * (cell.margin or 0):g}% = {units:.1f}" in out


@pytest.mark.parametrize(
    ("scores", "options", "cautioned"),
    [
        ([489.0, *[500.0] * 7], (), True),  # the spread is 11.0, the margin 23.9
        ([488.0, *[500.0] * 7], (), False),
        ([489.0, *[500.0] * 7], ("--margin", "0.02"), False),
        ([500.0] * 8, (), False),
        ([500.0], (), False),
    ],
)
def test_a_margin_of_several_times_the_spread_is_cautioned(
    esbench: Run, tmp_path: Path, scores: list[float], options: tuple[str, ...], cautioned: bool
) -> None:
    write_scores(tmp_path / "base", scores)
    code, out, _ = esbench("baseline", "base", "--out", "b.json", *options)
    found = [line for line in out.splitlines() if "--margin" in line]
    assert (code, len(found)) == (0, cautioned)
    assert all(number in line for line in found for number in (" 11.0 ", " 23.9,"))


def test_a_check_takes_its_own_margin_or_that_of_the_baseline(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "base", WIDE)
    write_scores(tmp_path / "same", [score + 1 for score in WIDE])
    write_scores(tmp_path / "worse", [score / 10 for score in WIDE])
    assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    content = json.loads((tmp_path / "b.json").read_text())
    del content["cells"][0]["margin"]  # as version 0.3.0 writes it
    (tmp_path / "old.json").write_text(json.dumps(content))
    for file, folder, options, expected in (
        ("b.json", "same", (), 0),
        ("b.json", "same", ("--margin", "0.05"), 4),
        ("old.json", "same", (), 4),
        ("old.json", "same", ("--margin", "0.5"), 0),
        ("b.json", "worse", (), 1),
    ):
        command = "check", folder, "--baseline", file, *options, "--json", "c.json"
        code, out, _ = esbench(*command)
        assert code == expected, command
        (cell,) = json.loads((tmp_path / "c.json").read_text())["cells"]
        used = cell["looks"][0]["margin"]
        assert used == (float(options[1]) if options else cell["margin"])
        assert f"at least its margin ({100 * used:g}%" in out


def test_the_pytest_plugin_keeps_margins_that_fit_all_cells_of_its_file(tmp_path: Path) -> None:
    def gate(update: bool, name: str, first: int = 0, margin: float | None = None) -> None:
        agent = SimpleNamespace(train=lambda seed: WIDE[seed % 8] + seed // 8)
        seeds, own = range(first, first + 8), AgentGate(tmp_path / "b.json", update, False)
        own(agent, name, environment="CartPole-v1", seeds=seeds, margin=margin)

    gate(True, "one")
    gate(False, "one", first=8)
    with pytest.raises(pytest.fail.Exception, match="inconclusive"):
        gate(False, "one", first=8, margin=0.05)
    (alone,) = read_baseline(tmp_path / "b.json").cells
    for name in ("two", "three"):
        gate(True, name)
    together = [cell.margin or 0 for cell in read_baseline(tmp_path / "b.json").cells]
    assert min(together) > (alone.margin or 0)  # each cell may make the session fail
