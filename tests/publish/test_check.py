import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_trials import GOOD, WIDE, edit, set_digest, write_one, write_runs, write_scores
from rich.console import Console

from esbench.cli.printing import check_table
from esbench.core.errors import UsageError
from esbench.publish.gate import render_check as verdicts
from esbench.publish.gate.check import CheckReport, check
from esbench.publish.gate.match_baseline import DigestResult
from esbench.results import baselines
from esbench.results.baselines import freeze
from esbench.results.statistics.judgment import GateRules, Verdict
from esbench.store.origin import CODE

WORSE = [score - 100 for score in GOOD]
NEAR = [490.0 + score / 50 for score in GOOD]
BELOW_RANDOM = [9.0 + seed / 10 for seed in range(8)]
RULES = GateRules()
CELL = "CartPole-v1/openai_es"


def held(root: Path, base: Path, rules: GateRules = RULES, **options: Any) -> CheckReport:
    return check(root, freeze(base, "esbench baseline"), rules, **options)


def numbers_in(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_scores(tmp_path / "base", GOOD)
    return tmp_path / "base"


@pytest.fixture
def same(tmp_path: Path, base: Path) -> Path:
    shutil.copytree(base, tmp_path / "same")
    return tmp_path / "same"


@pytest.mark.parametrize(
    ("before", "scores", "verdict", "code", "words"),
    [
        (GOOD, NEAR, Verdict.NO_WORSE, 0, "a drop of 5%, the margin"),
        (GOOD, [score - 23 for score in GOOD], Verdict.INCONCLUSIVE, 4, "too near the margin"),
        (GOOD, [score + 100 for score in GOOD], Verdict.IMPROVEMENT, 0, "20.9% of the range high"),
        (GOOD, WIDE, Verdict.INCONCLUSIVE, 4, r"about \d+ seeds"),
        # Runs that diverge are counted as no better than random.
        (GOOD, [*GOOD[:2], *[math.nan] * 6], Verdict.REGRESSION, 1, "6 runs diverged"),
        (BELOW_RANDOM, [math.nan] * 8, Verdict.NO_WORSE, 0, "8 runs diverged"),
        (GOOD[:1], GOOD[:1], Verdict.NO_WORSE, 0, "identical bits, 1 seed"),
    ],
    ids=["no worse", "near", "better", "wide", "diverged", "below random", "the same bits"],
)
def test_scores_and_bits_decide(
    tmp_path: Path,
    before: list[float],
    scores: list[float],
    verdict: Verdict,
    code: int,
    words: str,
) -> None:
    write_scores(tmp_path / "base", before)
    write_scores(tmp_path / "now", scores)
    report = held(tmp_path / "now", tmp_path / "base")
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (verdict, code)
    assert re.search(words, verdicts.sentence(cell))
    worst = min(22.63, *before)
    assert list(cell.scores) == [worst if math.isnan(score) else score for score in scores]


def test_the_same_scores_are_no_worse_even_with_other_bits(tmp_path: Path) -> None:
    write_scores(tmp_path / "base", GOOD[:2])
    write_scores(tmp_path / "same", GOOD[:2])
    write_scores(tmp_path / "other", [GOOD[1], GOOD[0]])
    for folder in ("same", "other"):
        for seed in range(2):
            set_digest(tmp_path / folder / CELL / f"seed-{seed}", 2)
    verdicts = [held(tmp_path / folder, tmp_path / "base").cells[0] for folder in ("same", "other")]
    assert [cell.digests for cell in verdicts] == [DigestResult.CHANGED] * 2
    assert [cell.verdict for cell in verdicts] == [Verdict.NO_WORSE, Verdict.INCONCLUSIVE]


# The exact layer

HARDWARE: dict[str, Any] = {
    "cpu": "Test CPU",
    "instructions": "avx avx512f fma",
    "platform": "Linux-5-with-glibc2.36",
}
FIXED = {"processor": "x86-64-v3", "libm": "a", "BLAS": "b"}  # the variants of libraries
KNOWN = {"versions": {"numpy": "2.0", "torch": "2.0", "jax": "1"}, "hardware": HARDWARE}
Change = Callable[[Path], object]


def digest(seed: int, generation: int) -> Change:
    """Another digest of a generation."""
    return lambda root: set_digest(root / CELL / f"seed-{seed}", generation)


def known(**changes: Any) -> Change:
    return lambda root: edit(root, "trial.json", lambda c: c.update(KNOWN | changes))


def on(**hardware: Any) -> Change:
    return known(hardware={**HARDWARE, **hardware})


def code(**versions: str) -> Change:
    return lambda root: edit(root, "trial.json", lambda c: c.update(own_code=versions))


def of_seed(seed: int, file: str, change: Callable[[Any], object]) -> Change:
    return lambda root: edit(root / CELL / f"seed-{seed}", file, change)


def more_seeds(*seeds: int) -> Change:
    """Other trials in place of all."""
    scores = [*GOOD, *GOOD][: len(seeds)]
    return lambda root: (shutil.rmtree(root), write_scores(root, scores, seeds=[*seeds]))


def both(*changes: Change) -> Change:
    return lambda root: [change(root) for change in changes]


MIXED = {"resumed_with": [{"versions": {"numpy": "3.0"}}]}
RECODED = {"versions": {"esbench": "1"}, "resumed_with": [{"versions": {CODE: "sha256:2"}}]}
MOVED = {"resumed_with": [{**KNOWN, "hardware": {**HARDWARE, "cpu": "Other"}}]}
STOPPED = of_seed(0, "result.json", lambda c: c.update(stopped="enough"))
SAME, CHANGED, UNKNOWN = DigestResult.IDENTICAL, DigestResult.CHANGED, DigestResult.NOT_COMPARABLE
# Changes of the baseline's trials and of those that are checked, the result, and what it says.
DIGESTS: dict[str, tuple[Change | None, Change | None, DigestResult, str]] = {
    "same": (None, None, SAME, "^8 seeds$"),
    "early": (None, digest(3, 2), CHANGED, "seed 3 .*generation 2 on"),
    "last": (None, digest(0, 9), CHANGED, "seed 0 .*after generation 5"),
    "last of a callback": (None, both(digest(0, 9), STOPPED), UNKNOWN, "seed 0 .*callback"),
    "last before a callback": (STOPPED, digest(0, 9), UNKNOWN, "seed 0 .*callback"),
    "same of a callback": (STOPPED, STOPPED, SAME, "^8 seeds$"),
    "early of a callback": (STOPPED, both(digest(0, 2), STOPPED), CHANGED, "generation 2 on"),
    "score": (None, of_seed(0, "result.json", lambda c: c.update(score=479.0)), CHANGED, "score"),
    "own code": (
        code(mine="sha256:1", other="sha256:3"),
        both(code(mine="sha256:2", other="sha256:3"), digest(3, 2)),
        CHANGED,
        "on; changed: mine sha256:1 then, sha256:2 now$",
    ),
    "same of other own code": (code(mine="sha256:1"), code(mine="sha256:2"), SAME, ""),
    "version": (known(), known(versions={"numpy": "1.0"}), UNKNOWN, "numpy 2.0 then, 1.0 now"),
    "processor": (known(), on(cpu="B"), UNKNOWN, "Test CPU .*B now"),
    "instructions": (known(), on(instructions="avx avx2 fma"), UNKNOWN, "avx2 avx512f"),
    "another processor of the baseline": (
        on(arithmetic=FIXED),
        on(arithmetic=FIXED, cpu="B", instructions="avx"),
        SAME,
        "",
    ),
    "libm": (
        on(arithmetic=FIXED),
        on(arithmetic={**FIXED, "libm": "d"}),
        UNKNOWN,
        "^libm a then, d now$",
    ),
    "before the baseline": (known(), on(arithmetic=FIXED), UNKNOWN, "CPU then, x86-64-v3 now"),
    "resumed": (known(), known(**MIXED), UNKNOWN, "seed 0 .* numpy 2.0 and 3.0"),
    "resumed elsewhere": (known(), known(**MOVED), UNKNOWN, "seed 0 .* Other now"),
    "resumed by other code": (known(), known(**RECODED), UNKNOWN, "seed 0 .* 1 and sha256:2"),
    "C library": (known(), on(platform="Linux-6-with-glibc2.40"), UNKNOWN, "2.36 .*2.40"),
    "baseline of mixed versions": (known(**MIXED), known(), UNKNOWN, "seed 0 has no digests"),
    "packages without effect": (
        known(versions={"esbench": "1", CODE: "sha256:1", "jax": "1"}),
        known(versions={"esbench": "2", CODE: "sha256:2", "jax": None}),
        SAME,
        "",
    ),
    "another seed": (None, more_seeds(*range(7), 50), UNKNOWN, "seed 50"),
    "one more seed": (None, more_seeds(*range(8), 50), SAME, "^8 seeds$"),
    "one seed elsewhere": (
        None,
        both(of_seed(0, "trial.json", lambda c: c.update(hardware={"cpu": "Other"})), digest(5, 1)),
        CHANGED,
        "seed 5",
    ),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_equal_seeds_have_equal_digests_on_the_same_versions_and_processor(
    base: Path, same: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before, after, digests, words = DIGESTS[name]
    monkeypatch.setattr(baselines, "changed_since", lambda _: [])  # trained with code of today
    for root in (base, same) if name.startswith("last") else ():
        shutil.rmtree(root)
        write_runs(root, [[1.0] * 9] * 8, 400.0)
    for root, change in ((base, before), (same, after)):
        if change:
            change(root)
    edit(same, "result.json", lambda content: content.update(digest="bits"))
    report = held(same, base, exact=True)
    (cell,) = report.cells
    assert (cell.digests, cell.verdict) == (digests, Verdict.NO_WORSE)
    assert re.search(words, cell.digests_detail)
    assert "other bits" not in verdicts.sentence(cell) or digests is CHANGED
    assert report.exit_code == (digests is CHANGED)
    assert held(same, base).exit_code == 0
    junit = ElementTree.fromstring(verdicts.as_junit(report))
    assert junit[0].get("failures") == ("1" if digests is CHANGED else "0")
    assert verdicts.headline(report).startswith("FAILED: 1 cell") is (digests is CHANGED)
    # In a history of checks, too, bits of mixed versions say nothing.
    stored = json.loads(verdicts.as_json(report))["cells"][0]["last_digests"]
    assert all((found is None) == name.startswith("resumed") for found in stored)


# What is not measured


def not_measured(report: CheckReport) -> str:
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (Verdict.NOT_MEASURED, 3)
    assert cell.reason == verdicts.sentence(cell)
    return cell.reason


@pytest.mark.parametrize(
    ("scores", "grid", "words", "new"),
    [
        (GOOD, {"environments": ["Acrobot-v1"]}, "", ("openai_es on Acrobot-v1",)),
        (GOOD, {"algorithms": {"openai_es": {"sigma": 0.4}}}, "settings.sigma was 0.2, .*0.4", ()),
        (GOOD[:7], {}, "7 seeds; expected 8", ()),
    ],
    ids=["missing", "other settings", "missing seeds"],
)
def test_trials_of_another_cell_are_not_compared(
    tmp_path: Path, base: Path, scores: list[float], grid: Any, words: str, new: tuple[str, ...]
) -> None:
    write_scores(tmp_path / "out", scores, **grid)
    report = held(tmp_path / "out", base)
    assert re.search(words, not_measured(report))
    assert report.new == new
    assert all(any(name in note for note in verdicts.notes(report)) for name in new)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: shutil.rmtree(root / CELL / "seed-3"), "7 seeds; expected 8; .*has 3$"),
        (
            lambda root: edit(
                root, "trial.json", lambda c: c["spec"]["algorithm"]["settings"].update(gone=1)
            ),
            "gone",
        ),
        (lambda root: write_one(root, 9, "Traceback"), r"seed-9 the first \(failed\)"),
    ],
    ids=["seed", "setting", "failed"],
)
def test_incomplete_trials_are_not_measured(
    base: Path, same: Path, change: Change, words: str
) -> None:
    change(same)
    assert re.search(words, not_measured(held(same, base)))


def of_defaults(root: Path, names: list[str], **settings: object) -> None:
    """Let trials say which settings were defaults, and what these were."""

    def change(description: Any) -> None:
        description["defaults"] = names
        description["spec"]["algorithm"]["settings"].update(settings)

    edit(root, "trial.json", change)


def test_a_changed_default_is_judged_as_code(base: Path, same: Path) -> None:
    of_defaults(base, ["sigma", "shaping"], sigma=0.5)
    of_defaults(same, ["sigma", "shaping", "added"], sigma=0.25, added=3)
    report = held(same, base)
    (cell,) = report.cells
    assert (cell.verdict, report.exit_code) == (Verdict.NO_WORSE, 0)
    assert numbers_in(cell.reason) == [0.5, 0.25, 3]
    # A setting that one of the sides was given is not the code's.
    of_defaults(same, ["shaping"], sigma=0.25)
    assert numbers_in(not_measured(held(same, base))) == [0.5, 0.25, 3]
    of_defaults(base, [], sigma=0.5)
    of_defaults(same, ["sigma", "added"], sigma=0.25)
    assert numbers_in(not_measured(held(same, base))) == [0.5, 0.25]


def test_user_code_that_is_not_here_is_a_caution(base: Path, same: Path) -> None:
    code(nowhere="sha256:1")(same)
    report = held(same, base)
    assert (report.exit_code, report.cells[0].digests) == (0, SAME)
    assert "nowhere" in " ".join(verdicts.details(report))


def test_a_seed_that_lies_there_twice_is_refused(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "both" / "a", GOOD[:1])
    write_scores(tmp_path / "both" / "b", WORSE[:1])
    write_one(tmp_path / "both" / "0", 0)
    with pytest.raises(UsageError, match=r"both/a/.* and .*both/b/.* hold the same trial"):
        held(tmp_path / "both", base)
    with pytest.raises(UsageError, match="hold the same trial"):
        freeze(tmp_path / "both", "")


def test_the_cell_with_the_same_settings_is_found_among_others(tmp_path: Path, base: Path) -> None:
    write_scores(tmp_path / "out" / "a", GOOD, algorithms={"openai_es": {"sigma": 0.4}})
    write_scores(tmp_path / "out" / "b", GOOD)
    assert held(tmp_path / "out", base).exit_code == 0


# What it looks like


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> CheckReport:
    """Return a check with a cell of each verdict; a regression outranks what is not measured."""
    folder = tmp_path_factory.mktemp("kinds")
    for environment, before, after in (
        ("Acrobot-v1", [-90.0] * 8, [-90.0] * 8),
        ("CartPole-v1", GOOD, WORSE),
        ("HalfCheetah-v5", [1000.0, 1010.0] * 4, [3000.0, 3020.0] * 4),
        ("Pendulum-v1", [-500.0, -1000.0], [-1000.0, -600.0]),
        ("Swimmer-v5", [300.0] * 8, []),
    ):
        write_scores(folder / "base", before, environments=[environment])
        if after:
            write_scores(folder / "out", after, environments=[environment])
    return held(folder / "out", folder / "base", allow_inconclusive=True)


def test_markdown_has_a_row_a_cell_and_the_outcome_first(all_kinds: CheckReport) -> None:
    lines = verdicts.as_markdown(all_kinds).splitlines()
    assert lines[0].startswith("### esbench check: FAILED")
    rows = [line for line in lines if line.startswith("|") and "-v" in line]
    assert len(rows) == 5
    assert len({row.count("|") for row in [*rows, lines[2], lines[3]]}) == 1
    assert "regression: 20.9% of the range lower" in rows[1]


def test_the_headline_counts_verdicts_in_english(all_kinds: CheckReport) -> None:
    twice = replace(all_kinds, cells=all_kinds.cells * 2)
    for report, words in ((all_kinds, "1 regression,"), (twice, "2 regressions,")):
        assert words in verdicts.headline(report)
    assert "2 no worse," in verdicts.headline(twice)


def test_junit_counts_failures_errors_and_skipped(all_kinds: CheckReport) -> None:
    (suite,) = ElementTree.fromstring(verdicts.as_junit(all_kinds))
    counts = {"tests": "5", "failures": "1", "errors": "1", "skipped": "1"}
    assert {key: suite.get(key) for key in counts} == counts
    kinds = [[child.tag for child in case][:-1] for case in suite]
    assert kinds == [[], ["failure"], [], ["skipped"], ["error"]]
    assert suite[1].get("classname") == "esbench.check.CartPole-v1"
    assert "20.9% of the range lower" in str(suite[1][0].get("message"))


def test_json_has_everything_and_no_nan(all_kinds: CheckReport) -> None:
    content = json.loads(verdicts.as_json(all_kinds), parse_constant=pytest.fail)
    assert content["exit_code"] == 1
    found = [cell["verdict"] for cell in content["cells"]]
    assert found == ["no worse", "regression", "improvement", "inconclusive", "not measured"]
    drop = content["cells"][1]
    assert drop["scores"] == WORSE
    assert drop["looks"][0]["change"] == pytest.approx(-100 / (500 - 22.63))
    assert drop["looks"][0]["seeds_needed"] is None
    assert content["cells"][4]["looks"] == []


@pytest.mark.parametrize(
    ("cells", "change", "message", "color"),
    [
        ((0, 2), {}, "no regression", "brightgreen"),
        ((0, 1, 2, 3, 4), {}, "1 of 5 cells dropped", "red"),
        ((0, 4), {}, "1 of 2 cells not measured", "lightgrey"),
        ((3,), {"allow_inconclusive": False}, "1 of 1 cell inconclusive", "yellow"),
        ((3,), {}, "1 of 1 cell inconclusive", "yellow"),  # it passes
        ((0, 5), {"exact": True}, "1 of 2 cells changed", "red"),
    ],
)
def test_a_badge_has_the_outcome_in_the_form_of_shields_io(
    all_kinds: CheckReport, cells: tuple[int, ...], change: dict[str, Any], message: str, color: str
) -> None:
    changed = replace(all_kinds.cells[0], digests=DigestResult.CHANGED)
    every = [*all_kinds.cells, changed]
    report = replace(all_kinds, cells=tuple(every[place] for place in cells), **change)
    badge = json.loads(verdicts.as_badge(report))
    # https://shields.io/badges/endpoint-badge
    expected = {"schemaVersion": 1, "label": "scores", "message": message, "color": color}
    assert badge == {**expected, "isError": color == "red"}


def test_the_terminal_shows_every_cell_in_80_columns(all_kinds: CheckReport) -> None:
    console = Console(width=80, record=True)
    console.print(check_table(all_kinds))
    text = console.export_text()
    for word in ("regression", "improvement", "inconclusive", "not measured", "-20.9%", "391.4"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())
    lines = verdicts.details(all_kinds)
    about = {line.split(":")[0].removeprefix("openai_es on ") for line in lines}
    assert about == {"CartPole-v1", "HalfCheetah-v5", "Pendulum-v1", "Swimmer-v5"}
