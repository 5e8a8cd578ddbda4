from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_trials import make_records, make_trials, write_scores, write_trial
from rich.console import Console

from esbench.analysis.gate import GateRules, Verdict
from esbench.cli.check_view import check_table
from esbench.errors import UsageError
from esbench.gate import render_check as verdicts
from esbench.gate.baselines import freeze
from esbench.gate.check import CheckReport, check
from esbench.gate.match_baseline import DigestResult
from esbench.gate.second_stage import MARKER, bind, decide, plan, require_apart

GOOD = [480.0, 485.0, 490.0, 491.0, 492.0, 495.0, 498.0, 500.0]
WIDE = [*[300.0] * 2, *[499.0] * 6]  # worse perhaps
RULES = GateRules()


def held(root: Path, base: Path, rules: GateRules = RULES, **options: Any) -> CheckReport:
    return check(root, freeze(base, "esbench baseline"), rules, **options)


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def edit(root: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change a JSON file of every trial below ``root``."""
    for path in root.rglob(name):
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))


def set_digest(root: Path, seed: int, generation: int, digest: str) -> None:
    """Change the digest of one generation of one seed."""
    path = next(root.rglob(f"seed-{seed}/metrics.jsonl"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[generation - 1]["digest"] = digest
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_scores(tmp_path / "base", GOOD)
    return tmp_path / "base"


@pytest.fixture
def same(tmp_path: Path, base: Path) -> Path:
    shutil.copytree(base, tmp_path / "same")
    return tmp_path / "same"


def test_the_same_bits_are_no_worse_even_with_one_seed(tmp_path: Path) -> None:
    write_scores(tmp_path / "base", GOOD[:1])
    write_scores(tmp_path / "one", GOOD[:1])
    report = held(tmp_path / "one", tmp_path / "base")
    (cell,) = report.cells
    assert (cell.verdict, cell.match.digests, report.exit_code) == (
        Verdict.NO_WORSE,
        DigestResult.IDENTICAL,
        0,
    )
    assert cell.stages[0].verdict is Verdict.INCONCLUSIVE  # what its scores alone would say
    assert verdicts.headline(report).startswith("PASSED")


def test_a_drop_fails(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "bad", [score - 100 for score in GOOD])
    report = held(tmp_path / "bad", base)
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (Verdict.REGRESSION, 1)
    assert cell.stages[0].change == pytest.approx(-100 / (500 - 22.63))
    assert verdicts.headline(report).startswith("FAILED")


def test_a_gain_passes(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "bad", [score - 100 for score in GOOD])
    report = held(base, tmp_path / "bad")
    assert (report.cells[0].verdict, report.exit_code) == (Verdict.IMPROVEMENT, 0)


def test_too_few_seeds_are_inconclusive_unless_allowed(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "wide", WIDE)
    report = held(tmp_path / "wide", base)
    assert (report.cells[0].verdict, report.exit_code) == (Verdict.INCONCLUSIVE, 4)
    assert re.search(r"about \d+ seeds", verdicts.sentence(report.cells[0]))
    assert held(tmp_path / "wide", base, allow_inconclusive=True).exit_code == 0


def test_a_drop_just_below_the_margin_is_not_called_a_matter_of_seeds(
    tmp_path: Path, base: Path
) -> None:
    write_scores(tmp_path / "near", [score - 23 for score in GOOD])  # 4.8 %
    (cell,) = held(tmp_path / "near", base).cells
    assert cell.verdict is Verdict.INCONCLUSIVE
    assert math.isnan(cell.stages[0].seeds_needed)


# The exact layer


def test_a_changed_digest_is_reported_and_fails_only_if_exact(base: Path, same: Path) -> None:
    set_digest(same, seed=3, generation=2, digest="f" * 64)
    report = held(same, base)
    (cell,) = report.cells
    assert (cell.match.digests, cell.verdict, report.exit_code) == (
        DigestResult.CHANGED,
        Verdict.NO_WORSE,
        0,
    )
    assert cell.match.digests_detail.startswith("seed 3 differs from generation 2")
    exact = held(same, base, exact=True)
    assert exact.exit_code == 1
    assert verdicts.headline(exact).startswith("FAILED: 1 cell")


def test_a_later_change_is_seen_in_the_last_digest(tmp_path: Path) -> None:
    for name in ("base", "same"):
        for trial in make_trials(tmp_path / name, seeds=[0]):
            write_trial(trial, make_records([1.0] * 9), 400.0)
    set_digest(tmp_path / "same", seed=0, generation=9, digest="f" * 64)
    (cell,) = held(tmp_path / "same", tmp_path / "base").cells
    assert cell.match.digests is DigestResult.CHANGED
    assert numbers_in(cell.match.digests_detail) == [0, 5]


def test_another_scoring_of_the_same_training_is_a_change(base: Path, same: Path) -> None:
    edit(same / "CartPole-v1/openai_es/seed-0", "result.json", lambda c: c.update(score=479.0))
    (cell,) = held(same, base).cells
    assert cell.match.digests is DigestResult.CHANGED
    assert "score" in cell.match.digests_detail


HARDWARE = {
    "cpu": "Test CPU",
    "instructions": "avx avx512f fma",
    "platform": "Linux-5-with-glibc2.36",
}


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"versions": {"numpy": "1.0", "torch": "2.0"}}, "numpy 2.0 then, 1.0 now"),
        ({"hardware": {**HARDWARE, "cpu": "Other"}}, "processor Test CPU then, Other now"),
        (
            {"hardware": {**HARDWARE, "instructions": "avx avx2 fma"}},
            "processor with other instructions (avx2 avx512f)",
        ),
        (
            {"resumed_with": [{"versions": {"numpy": "3.0"}}]},
            "seed 0 was resumed under other versions",
        ),
        (
            {"hardware": {**HARDWARE, "platform": "Linux-6-with-glibc2.40"}},
            "C library glibc2.36 then, glibc2.40 now",
        ),
    ],
    ids=["version", "processor", "instructions", "resumed", "C library"],
)
def test_elsewhere_digests_are_not_comparable(
    base: Path, same: Path, change: dict[str, Any], detail: str
) -> None:
    known = {"versions": {"numpy": "2.0", "torch": "2.0", "jax": "1"}, "hardware": HARDWARE}
    edit(base, "trial.json", lambda content: content.update(known))
    edit(same, "trial.json", lambda content: content.update(known | change))
    set_digest(same, seed=0, generation=1, digest="f" * 64)
    report = held(same, base, exact=True)
    (cell,) = report.cells
    assert (cell.match.digests, cell.match.digests_detail) == (DigestResult.NOT_COMPARABLE, detail)
    assert (cell.verdict, report.exit_code) == (Verdict.NO_WORSE, 0)


def test_versions_that_change_no_digest_are_not_compared(base: Path, same: Path) -> None:
    edit(base, "trial.json", lambda c: c.update(versions={"esbench": "1", "jax": "1"}))
    edit(same, "trial.json", lambda c: c.update(versions={"esbench": "2", "jax": None}))
    assert held(same, base).cells[0].match.digests is DigestResult.IDENTICAL


def test_other_seeds_are_not_comparable(tmp_path: Path, base: Path) -> None:
    trials = make_trials(tmp_path / "more", seeds=[*range(7), 50])
    for trial, score in zip(trials, GOOD, strict=True):
        write_trial(trial, make_records([score / 2, score]), score)
    (cell,) = held(tmp_path / "more", base).cells
    assert cell.match.digests is DigestResult.NOT_COMPARABLE
    assert numbers_in(cell.match.digests_detail) == [50]


def test_one_changed_seed_is_enough_whatever_the_others_are(base: Path, same: Path) -> None:
    other = same / "CartPole-v1/openai_es/seed-0"
    edit(other, "trial.json", lambda content: content.update(hardware={"cpu": "Other"}))
    set_digest(same, seed=5, generation=1, digest="f" * 64)
    report = held(same, base, exact=True)
    assert (report.cells[0].match.digests, report.exit_code) == (DigestResult.CHANGED, 1)


# What is not measured


def not_measured(report: CheckReport) -> str:
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (Verdict.NOT_MEASURED, 3)
    assert cell.reason == verdicts.sentence(cell)
    return cell.reason


def test_a_missing_cell(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "out", GOOD, environments=["Acrobot-v1"])
    report = held(tmp_path / "out", base)
    assert not_measured(report)
    assert report.new == ("openai_es on Acrobot-v1",)
    assert any("openai_es on Acrobot-v1" in note for note in verdicts.notes(report))


def test_another_version_of_the_environment(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "out", GOOD, environments=["CartPole-v0"])
    assert "CartPole-v0" in not_measured(held(tmp_path / "out", base))


def test_other_settings_are_named(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "out", GOOD, algorithms={"openai_es": {"sigma": 0.4}})
    reason = not_measured(held(tmp_path / "out", base))
    assert "algorithm.settings.sigma" in reason
    assert numbers_in(reason) == [0.2, 0.4]


def test_missing_seeds(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "few", GOOD[:7])
    assert numbers_in(not_measured(held(tmp_path / "few", base))) == [7, 8]


def test_a_setting_that_is_gone(base: Path, same: Path) -> None:
    edit(same, "trial.json", lambda c: c["spec"]["algorithm"]["settings"].update(no_such_setting=1))
    reason = not_measured(held(same, base))
    assert "no_such_setting" in reason


def test_a_seed_that_lies_there_twice_is_refused(tmp_path: Path, base: Path) -> None:
    write_scores(base.parent / "both" / "a", GOOD)
    write_scores(base.parent / "both" / "b", [score - 100 for score in GOOD])
    with pytest.raises(UsageError, match=r"both/a/.* and .*both/b/.* hold the same trial"):
        held(tmp_path / "both", base)
    with pytest.raises(UsageError, match="hold the same trial"):
        freeze(tmp_path / "both", "")


def test_the_cell_with_the_same_settings_is_found_among_others(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "out" / "a", GOOD, algorithms={"openai_es": {"sigma": 0.4}})
    write_scores(tmp_path / "out" / "b", GOOD)
    assert held(tmp_path / "out", base).exit_code == 0


def test_a_failed_trial(base: Path, same: Path) -> None:
    (trial,) = make_trials(same, seeds=[9])
    write_trial(trial, error="Traceback")
    reason = not_measured(held(same, base))
    assert "seed-9" in reason
    assert "failed" in reason


def test_a_regression_outranks_what_is_not_measured(tmp_path: Path) -> None:
    both = {"environments": ["CartPole-v1", "Acrobot-v1"]}
    write_scores(tmp_path / "base", GOOD, environments=["CartPole-v1"])
    write_scores(tmp_path / "base", [-90.0] * 8, environments=["Acrobot-v1"])
    write_scores(tmp_path / "bad", [score - 100 for score in GOOD])
    report = held(tmp_path / "bad", tmp_path / "base")
    assert [cell.frozen.environment for cell in report.cells] == sorted(both["environments"])
    assert [cell.verdict for cell in report.cells] == [Verdict.NOT_MEASURED, Verdict.REGRESSION]
    assert report.exit_code == 1


def test_one_cell_that_is_not_measured_is_enough(tmp_path: Path, base: Path, same: Path) -> None:
    write_scores(base, [-90.0] * 8, environments=["Acrobot-v1"])
    report = held(same, base)
    assert [cell.verdict for cell in report.cells] == [Verdict.NOT_MEASURED, Verdict.NO_WORSE]
    assert report.exit_code == 3


def test_runs_that_diverge_are_counted_as_no_better_than_random(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "nan", [*GOOD[:2], *[math.nan] * 6])
    report = held(tmp_path / "nan", base)
    (cell,) = report.cells
    assert list(cell.scores) == [*GOOD[:2], *[22.63] * 6]
    assert (cell.verdict, report.exit_code) == (Verdict.REGRESSION, 1)
    assert "6 runs diverged" in verdicts.sentence(cell)


def test_runs_that_diverge_are_worse_than_a_baseline_below_random(tmp_path: Path) -> None:
    write_scores(tmp_path / "base", [9.0 + seed / 10 for seed in range(8)])  # random: 22.6
    write_scores(tmp_path / "nan", [math.nan] * 8)
    (cell,) = held(tmp_path / "nan", tmp_path / "base").cells
    assert list(cell.scores) == [9.0] * 8
    assert cell.verdict is not Verdict.IMPROVEMENT


# The second stage


def test_the_second_stage_trains_twice_as_many_fresh_seeds_of_what_is_inconclusive(
    tmp_path: Path, base: Path
) -> None:
    write_scores(tmp_path / "wide", WIDE)
    for folder in ("base", "wide"):
        write_scores(tmp_path / folder, [-90.0] * 8, environments=["Acrobot-v1"])
    trials = plan(held(tmp_path / "wide", base, GateRules(stages=2)), tmp_path / "again")
    assert [(trial.spec.environment.id, trial.spec.seed) for trial in trials] == [
        ("CartPole-v1", seed) for seed in range(8, 24)
    ]
    assert trials[0].folder.path == tmp_path / "again/CartPole-v1/openai_es/seed-8"
    assert trials[0].labels["algorithm"] == "openai_es"


def test_seeds_of_the_baseline_are_not_fresh_either(tmp_path: Path) -> None:
    for seed, score in enumerate(GOOD, start=30):
        (trial,) = make_trials(tmp_path / "base", seeds=[seed])
        write_trial(trial, [], score)
    write_scores(tmp_path / "wide", WIDE)
    report = held(tmp_path / "wide", tmp_path / "base", GateRules(stages=2))
    assert next(trial.spec.seed for trial in plan(report, tmp_path / "again")) == 38


def second(tmp_path: Path, base: Path, scores: list[float], first_seed: int = 8) -> CheckReport:
    write_scores(tmp_path / "wide", WIDE)
    report = held(tmp_path / "wide", base, GateRules(stages=2), allow_inconclusive=True)
    for seed, score in enumerate(scores, start=first_seed):
        (trial,) = make_trials(tmp_path / "again", seeds=[seed])
        write_trial(trial, [], score)
    return decide(report, tmp_path / "again")


@pytest.mark.parametrize(
    ("scores", "verdict", "code"),
    [
        ([*GOOD, *GOOD], Verdict.NO_WORSE, 0),
        ([score - 100 for score in (*GOOD, *GOOD)], Verdict.REGRESSION, 1),
        ([*WIDE, *WIDE], Verdict.INCONCLUSIVE, 0),  # which is allowed here
    ],
    ids=["cleared", "confirmed", "still open"],
)
def test_fresh_seeds_decide(
    tmp_path: Path, base: Path, scores: list[float], verdict: Verdict, code: int
) -> None:
    report = second(tmp_path, base, scores)
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code, len(cell.stages)) == (verdict, code, 2)
    assert verdicts.sentence(cell).startswith("fresh seeds: ")


@pytest.mark.parametrize(
    ("seeds", "first", "numbers"),
    [
        (0, 8, []),
        (2, 8, [2, 16]),
        (16, 1, [*range(1, 17), 8, 23]),
    ],
    ids=["none", "some", "others"],
)
def test_without_all_fresh_seeds_a_cell_is_not_measured(
    tmp_path: Path, base: Path, seeds: int, first: int, numbers: list[int]
) -> None:
    report = second(tmp_path, base, [500.0] * seeds, first)
    assert numbers_in(not_measured(report)) == numbers


def test_fresh_seeds_that_failed_leave_a_cell_not_measured(tmp_path: Path, base: Path) -> None:
    report = second(tmp_path, base, [500.0] * 15)
    (trial,) = make_trials(tmp_path / "again", seeds=[23])
    write_trial(trial, error="Traceback")
    assert "failed" in not_measured(decide(report_of(report), tmp_path / "again"))


def report_of(report: CheckReport) -> CheckReport:
    """Return a report as it was before its second stage."""
    cells = [
        dataclasses.replace(cell, verdict=Verdict.INCONCLUSIVE, stages=cell.stages[:1])
        for cell in report.cells
    ]
    return dataclasses.replace(report, cells=tuple(cells))


def test_a_second_stage_belongs_to_one_first_stage(tmp_path: Path, base: Path) -> None:
    bind(base, tmp_path / "again")
    write_scores(tmp_path / "again", GOOD[:1])
    bind(base, tmp_path / "again")  # resumed after an interrupt
    edit(base / "CartPole-v1/openai_es/seed-3", "result.json", lambda c: c.update(score=1.0))
    with pytest.raises(UsageError, match="again"):
        bind(base, tmp_path / "again")
    write_scores(tmp_path / "old", GOOD[:1])
    with pytest.raises(UsageError, match="old"):
        bind(base, tmp_path / "old")
    assert not (tmp_path / "old" / MARKER).exists()


def test_the_folders_of_the_stages_are_apart(tmp_path: Path) -> None:
    require_apart(tmp_path / "a", tmp_path / "b")
    for first, again in (("a", "a"), ("a", "a/b"), ("a/b", "a")):
        with pytest.raises(UsageError, match="--second-stage"):
            require_apart(tmp_path / first, tmp_path / again)


# What it looks like


@pytest.fixture
def all_kinds(tmp_path: Path) -> CheckReport:
    """Return a check with a cell of each verdict."""
    for environment, before, after in (
        ("Acrobot-v1", [-90.0] * 8, [-90.0] * 8),
        ("CartPole-v1", GOOD, [score - 100 for score in GOOD]),
        ("HalfCheetah-v5", [1000.0, 1010.0] * 4, [3000.0, 3020.0] * 4),
        ("Pendulum-v1", [-500.0, -1000.0], [-1000.0, -600.0]),
        ("Swimmer-v5", [300.0] * 8, None),
    ):
        write_scores(tmp_path / "base", before, environments=[environment])
        if after:
            write_scores(tmp_path / "out", after, environments=[environment])
    return held(tmp_path / "out", tmp_path / "base", allow_inconclusive=True)


def test_markdown_has_a_row_a_cell_and_the_outcome_first(all_kinds: CheckReport) -> None:
    lines = verdicts.as_markdown(all_kinds).splitlines()
    assert lines[0].startswith("### esbench check: FAILED")
    rows = [line for line in lines if line.startswith("| ") and "-v" in line]
    assert len(rows) == 5
    assert all(row.count("|") == rows[0].count("|") for row in [*rows, lines[2], lines[3]])
    assert "**regression**: 20.9% of the range lower" in rows[1]


def test_junit_counts_failures_errors_and_skipped(all_kinds: CheckReport) -> None:
    root = ElementTree.fromstring(verdicts.as_junit(all_kinds))
    (suite,) = root
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    kinds = [[child.tag for child in case][:-1] for case in suite]
    assert kinds == [[], ["failure"], [], ["skipped"], ["error"]]
    assert suite[1].get("classname") == "esbench.check.CartPole-v1"
    assert "20.9% of the range lower" in str(suite[1][0].get("message"))


def test_junit_fails_what_changed_if_exact(base: Path, same: Path) -> None:
    set_digest(same, seed=0, generation=1, digest="f" * 64)
    for exact, failures in ((False, "0"), (True, "1")):
        text = verdicts.as_junit(held(same, base, exact=exact))
        assert ElementTree.fromstring(text)[0].get("failures") == failures


def test_json_has_everything_and_no_nan(all_kinds: CheckReport) -> None:
    content = json.loads(verdicts.as_json(all_kinds), parse_constant=pytest.fail)
    assert content["exit_code"] == 1
    assert [cell["verdict"] for cell in content["cells"]] == [
        "no worse",
        "regression",
        "improvement",
        "inconclusive",
        "not measured",
    ]
    assert content["cells"][1]["scores"] == [score - 100 for score in GOOD]
    assert content["cells"][1]["stages"][0]["seeds_needed"] is None
    assert content["cells"][4]["stages"] == []


def test_the_terminal_shows_every_cell_in_80_columns(all_kinds: CheckReport) -> None:
    console = Console(width=80, record=True)
    console.print(check_table(all_kinds))
    text = console.export_text()
    for word in ("regression", "improvement", "inconclusive", "not measured", "-20.9%", "391.4"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())
    about = {
        line.split(":")[0].removeprefix("openai_es on ") for line in verdicts.details(all_kinds)
    }
    assert about == {"CartPole-v1", "HalfCheetah-v5", "Pendulum-v1", "Swimmer-v5"}
