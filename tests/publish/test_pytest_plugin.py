import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import finished

from esbench.core.errors import UsageError
from esbench.publish.gate import agent_gate
from esbench.publish.gate.agent_gate import AgentGate
from esbench.publish.gate.check import EXIT_NOT_MEASURED
from esbench.publish.gate.render_check import as_markdown
from esbench.publish.history import history
from esbench.results.baselines import read_baseline, write_baseline


@dataclass(frozen=True)
class Agent:
    """Scores 490, 492, 494, 496, 490, ... less ``drop``."""

    drop: float = 0.0

    def train(self, seed: int) -> float:
        return 490.0 + 2.0 * (seed % 4) - self.drop


def freeze(path: Path, agent: Agent = Agent(), name: str = "mine", seeds: int = 8) -> None:
    gate = AgentGate(path, update=True, allow_inconclusive=False)
    gate(agent, name, environment="CartPole-v1", seeds=range(seeds))


def hold(
    path: Path, agent: Agent, first: int = 0, last: int = 8, allow_inconclusive: bool = False
) -> None:
    gate = AgentGate(path, update=False, allow_inconclusive=allow_inconclusive)
    gate(agent, "mine", environment="CartPole-v1", seeds=range(first, last))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    freeze(tmp_path / "b.json")
    return tmp_path / "b.json"


def test_what_is_frozen(path: Path) -> None:
    freeze(path, name="other")
    freeze(path, Agent(drop=5.0))  # in place of the first one
    baseline = read_baseline(path)
    other, mine = baseline.cells
    assert (other.name, mine.name) == ("other on CartPole-v1", "mine on CartPole-v1")
    assert (mine.random_score, mine.reference_score) == (22.63, 500.0)
    assert [trial.score for trial in mine.trials][:4] == [485.0, 487.0, 489.0, 491.0]
    assert other.trials[0].score == 490.0
    assert "numpy" in baseline.origins[0].versions


def test_the_same_scores_other_seeds_and_small_drops_pass(path: Path) -> None:
    hold(path, Agent())  # the same score to the last bit
    hold(path, Agent(), first=20, last=28)
    hold(path, Agent(drop=10.0))  # 2 % of the range


@pytest.mark.parametrize(
    ("drop", "seeds", "words", "when_allowed"),
    [
        (100.0, 8, r"regression: .*20\.9%.*p < 0.001", False),
        (math.inf, 8, "regression", False),  # every seed diverges: no better than random
        (100.0, 1, "inconclusive: .*--esbench-allow-inconclusive", True),
        (0.0, 7, "7 seeds; expected 8", True),  # the one left out may be the one that fails
    ],
)
def test_drops_and_missing_seeds_fail(
    path: Path, drop: float, seeds: int, words: str, when_allowed: bool
) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"mine on CartPole-v1: .*{words}"):
        hold(path, Agent(drop), last=seeds)
    if when_allowed:
        hold(path, Agent(drop), last=seeds, allow_inconclusive=True)


def test_seeds_that_diverge_count_as_the_worst_in_each_mean(tmp_path: Path) -> None:
    diverges: Any = SimpleNamespace(train=lambda seed: math.nan if seed < 6 else 490.0)
    freeze(tmp_path / "b.json")
    worst = r"mean 139\.5 \(8 seeds, 6 diverged, counted as the worst\)"  # random: 22.63
    with pytest.raises(pytest.fail.Exception, match=rf"regression: {worst}, baseline 493\.0.*74"):
        hold(tmp_path / "b.json", diverges)
    gate = AgentGate(tmp_path / "b.json", update=True, allow_inconclusive=False)
    gate(diverges, "mine", environment="CartPole-v1")
    assert re.search(rf"493\.0 \(8 seeds\) -> {worst[5:]}", gate.lines(None)[0])


def test_the_cells_of_a_file_share_the_level(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    freeze(path, seeds=5)
    with pytest.raises(pytest.fail.Exception, match=r"regression: .* p = 0\.004"):
        hold(path, Agent(drop=100.0), last=5)  # 1 in 252
    content = json.loads(path.read_text())
    content["cells"] += [content["cells"][0] | {"algorithm": f"other{n}"} for n in range(3)]
    path.write_text(json.dumps(content))
    with pytest.raises(pytest.fail.Exception, match=r"inconclusive: .* p = 0\.016"):
        hold(path, Agent(drop=100.0), last=5)


def test_an_own_environment_has_the_range_of_the_test(tmp_path: Path) -> None:
    def gate(update: bool = False, **scale: float) -> None:
        AgentGate(tmp_path / "b.json", update, False)(Agent(), "m", environment="Mine-v0", **scale)

    with pytest.raises(UsageError, match="Mine-v0.*random_score="):
        gate(update=True)
    for reference in (1, 0, math.inf):  # the last but one is a scale of costs
        with pytest.raises(UsageError, match="reference"):
            gate(update=True, random_score=1, reference_score=reference)
    assert not (tmp_path / "b.json").exists()
    gate(update=True, random_score=0, reference_score=500)
    (cell,) = read_baseline(tmp_path / "b.json").cells
    assert (cell.random_score, cell.reference_score) == (0.0, 500.0)
    gate(random_score=0, reference_score=500)
    with pytest.raises(UsageError, match=r"reference_score = 5000: .* 500\.0"):
        gate(random_score=0, reference_score=5000)


UNTRAINED: Any = SimpleNamespace(train=lambda seed: pytest.fail("it was trained first"))
RANGE = {"random_score": 0.0, "reference_score": 10.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"random_score": 1.0}, r"random_score = 1\.0: .* 22\.63"),
        ({"random_score": "x"}, "random_score = 'x'"),
        ({"alpha": 1e-6}, "alpha = 1e-06 for 1 cell"),
        ({"margin": 7}, "margin"),
        ({"agent": object()}, "train"),
        ({"agent": Agent}, "Agent'.*expected an object"),
        ({"name": ""}, "name = ''"),
        ({"name": "absent"}, r"absent on CartPole-v1 is not in .*; freeze"),
        ({"environment": 3, **RANGE}, "environment = 3"),
        ({"environment": "CartPol-v1"}, "did you mean 'CartPole-v1'"),
        ({"path": "bad.json"}, r"bad\.json"),
        ({"path": "none.json"}, "no file .*--esbench-update"),
        *(({"seeds": seeds}, "seeds = ") for seeds in ([], [-1], [2**32], [1.5], [3, 3])),
    ],
)
def test_bad_arguments_and_files_are_refused_before_training(
    path: Path, options: dict[str, Any], message: str
) -> None:
    (path.parent / "bad.json").write_text("{")
    given = {"agent": UNTRAINED, "name": "mine", "environment": "CartPole-v1", **options}
    gate = AgentGate(path.parent / given.pop("path", path.name), False, False)
    with pytest.raises((UsageError, pytest.fail.Exception), match=message):
        gate(**given)


def test_what_training_returns_is_checked(path: Path) -> None:
    with pytest.raises(UsageError, match="no seed has a finite score"):
        freeze(path, Agent(drop=math.inf))
    for returned in ("490", None, 10**400, True, np.True_):
        wrong: Any = SimpleNamespace(train=lambda seed, returned=returned: returned)
        with pytest.raises(UsageError, match=rf"mine.train\(0\) returned {repr(returned)[:9]}"):
            freeze(path, wrong)
    for listed in ([], [1.0, True], ["1"], b"12"):
        gate = AgentGate(path, update=True, allow_inconclusive=False)
        wrong = SimpleNamespace(train=lambda seed, listed=listed: listed)
        with pytest.raises(UsageError, match="expected the returns of one or more episodes"):
            gate(wrong, "mine", environment="CartPole-v1", statistic="tail")


def test_what_another_session_freezes_meanwhile_is_kept(path: Path) -> None:
    def train(seed: int) -> float:
        if seed == 0:
            other = AgentGate(path, update=True, allow_inconclusive=False)
            other(Agent(), "other", environment="CartPole-v1")
        return 490.0 + seed

    gate = AgentGate(path, update=True, allow_inconclusive=False)
    gate(SimpleNamespace(train=train), "slow", environment="CartPole-v1")
    names = {cell.algorithm for cell in read_baseline(path).cells}
    assert names == {"mine", "other", "slow"}


def test_sessions_that_freeze_at_once_lose_no_cell(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_late(*args: Any, **options: Any) -> None:
        time.sleep(0.3)  # for the other one to read the file
        write_baseline(*args, **options)

    monkeypatch.setattr(agent_gate, "write_baseline", write_late)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: freeze(path, name=name), ["first", "second"]))
    names = {cell.algorithm for cell in read_baseline(path).cells}
    assert names == {"mine", "first", "second"}
    assert list(path.parent.iterdir()) == [path]


def test_a_name_belongs_to_one_call(path: Path) -> None:
    gates = [*map(AgentGate(path, False, False).of_test, "ab")]
    gates[0](Agent(), "mine", environment="CartPole-v1")
    for gate in gates:
        with pytest.raises(UsageError, match="already checked by a; expected another name"):
            gate(Agent(), "mine", environment="CartPole-v1")


@pytest.mark.parametrize(
    ("drop", "seeds", "allowed", "code", "words"),
    [
        (0.0, 8, False, 0, "no worse: the same score of every seed"),
        (100.0, 8, False, 1, "regression: 20.9% of the range lower"),
        (0.0, 7, False, 4, "7 seeds; expected 8"),
        (0.0, 7, True, 0, "7 seeds; expected 8"),
    ],
)
def test_a_session_is_a_check_of_what_its_tests_have_compared(
    path: Path, drop: float, seeds: int, allowed: bool, code: int, words: str
) -> None:
    freeze(path, name="other")
    gate = AgentGate(path, update=False, allow_inconclusive=allowed)
    baseline = read_baseline(path)
    assert gate.report(baseline) is None
    with contextlib.suppress(pytest.fail.Exception):
        gate(Agent(drop), "mine", environment="CartPole-v1", seeds=range(seeds), margin=0.04)
    report = gate.report(baseline)
    assert report is not None
    assert (report.exit_code, len(report.cells)) == (code, 1)
    assert words in as_markdown(report)
    assert "margin (4%" in as_markdown(report)


def test_a_cell_whose_training_fails_is_not_measured(path: Path) -> None:
    freeze(path, name="other")
    gate = AgentGate(path, update=False, allow_inconclusive=False)
    gate(Agent(), "mine", environment="CartPole-v1")
    with pytest.raises(ZeroDivisionError):
        gate(SimpleNamespace(train=lambda seed: 1 / 0), "other", environment="CartPole-v1")
    report = gate.report(read_baseline(path))
    assert report is not None
    assert (report.exit_code, len(report.cells)) == (EXIT_NOT_MEASURED, 2)
    assert "NOT MEASURED" in as_markdown(report)


def test_the_last_of_several_runs_of_a_test_counts(path: Path) -> None:
    freeze(path)
    gate = AgentGate(path, update=False, allow_inconclusive=False)
    for drop in (100.0, 0.0):
        with contextlib.suppress(pytest.fail.Exception):
            gate.of_test("a")(Agent(drop), "mine", environment="CartPole-v1")
    report = gate.report(read_baseline(path))
    assert report is not None
    assert (report.exit_code, len(report.cells)) == (0, 1)


Suite = Callable[..., pytest.RunResult]
SUITE = """
class Agent:
    def train(self, seed):
        return 490.0 + seed - {drop}

def test_agent(esbench_check):
    esbench_check(Agent(), "mine", environment="CartPole-v1")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Suite:
    """Return a function that runs one test of an agent."""
    below = pytester.mkdir("below")
    os.chdir(below)

    def run(drop: float, *options: str) -> pytest.RunResult:
        (below / "test_agent.py").write_text(SUITE.format(drop=drop))
        return pytester.runpytest_inprocess(*options)

    return run


def test_the_options_reach_the_fixture(pytester: pytest.Pytester, suite: Suite) -> None:
    file = "--esbench-baseline", "../b.json"  # of the current folder
    suite(0.0, *file, "--esbench-update").assert_outcomes(passed=1)
    assert read_baseline(pytester.path / "b.json").cells[0].name == "mine on CartPole-v1"
    result = suite(0.0, *file, "--esbench-update", "-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--esbench-update writes one file; expected one process*"])
    result = suite(22.0, *file, "--esbench-allow-inconclusive")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mine on CartPole-v1: inconclusive: mean 471*"])
    result = suite(1.0, *file, "--esbench-update")
    result.stdout.fnmatch_lines(["frozen: mine on CartPole-v1: mean 493* -> 492*, margin 5%"])
    (pytester.path / "b.json").write_text("{")
    result = suite(0.0, *file)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*b.json: not readable as JSON*"])
    assert "raise UsageError" not in result.stdout.str()


def test_a_file_of_an_option_does_not_move_the_baseline(
    pytester: pytest.Pytester, suite: Suite
) -> None:
    (pytester.path / "below" / "pyproject.toml").touch()
    (pytester.path / "above.json").touch()  # written by a session before
    suite(0.0, "--esbench-json=../above.json", "--esbench-update").assert_outcomes(passed=1)
    (pytester.path / "above.json").touch()
    result = suite(0.0, "--esbench-json", "../above.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*expected --esbench-json=../above.json*"])
    assert (pytester.path / "below" / "esbench-baseline.json").exists()
    assert not (pytester.path / "esbench-baseline.json").exists()
    (pytester.path / "below" / "new.json").touch()
    suite(0.0, "--esbench-json", "new.json").assert_outcomes(passed=1)


def test_a_skipped_test_and_a_later_session_hide_nothing(
    pytester: pytest.Pytester, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite(0.0, "--esbench-update").assert_outcomes(passed=1)
    files = pytester.path / "files"
    monkeypatch.setenv("ESBENCH_FILES", str(files))
    skipped = SUITE.replace("return", "import pytest; pytest.skip('no GPU')\n        return")
    Path("test_skipped.py").write_text(skipped.format(drop=0.0))
    pytester.runpytest_inprocess("test_skipped.py").assert_outcomes(skipped=1)
    assert not files.exists()
    for drop, code in ((200.0, 1), (0.0, 1)):  # pytest a.py || true; pytest b.py
        suite(drop, "test_agent.py")
        assert json.loads((files / "check.json").read_text())["exit_code"] == code


def test_workers_of_xdist_report_in_the_summary(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:hypothesispytest")
    second = SUITE[SUITE.index("def test") :].replace("test_agent", "test_two")
    pytester.makepyfile(SUITE.format(drop=0.0) + second.replace('"mine"', '"other"'))
    pytester.runpytest_subprocess("--esbench-update").assert_outcomes(passed=2)
    pytester.makepyfile(SUITE.format(drop=0.0))
    files = "--esbench-json", "new/c.json", "--esbench-markdown", "new/c.md"
    result = pytester.runpytest_subprocess("-n", "1", *files)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mine on CartPole-v1: no worse*", "not checked: other on*"])
    assert "| mine" in (pytester.path / "new/c.md").read_text()
    (cell,) = history([pytester.path / "new"])
    assert cell.title == "mine on CartPole-v1"
    assert cell.checks[0].scores.tolist() == [490.0 + seed for seed in range(8)]


@pytest.mark.parametrize("options", [["--esbench-update"], []])
def test_a_name_with_a_line_break_is_printed_on_one_line(
    pytester: pytest.Pytester, suite: Suite, options: list[str]
) -> None:
    suite(0.0, "--esbench-update")
    Path("test_second.py").write_text(SUITE.format(drop=0.0).replace("mine", "two\\nlines"))
    lines = suite(0.0, "test_second.py", *options).stdout.lines
    assert any("two lines on CartPole-v1" in line for line in lines)
    assert not any(line.startswith("lines on") for line in lines)


def test_what_cannot_fail_says_so(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    freeze(path, seeds=4)
    with pytest.raises(pytest.fail.Exception, match="no drop can fail.* 5 "):
        hold(path, Agent(drop=300.0), last=4)
    gate = AgentGate(tmp_path / "c.json", True, False)
    for test in "abc":  # five seeds are enough for two cells, and not for three
        before = read_baseline(gate.path) if gate.path.exists() else None
        gate.of_test(test)(Agent(), test, environment="CartPole-v1", seeds=range(5))
    noted = [line.endswith("fewer than 6 seeds") for line in gate.lines(read_baseline(gate.path))]
    assert noted == [True] * 3
    assert not any("fewer" in line for line in gate.lines(before))


def test_sessions_that_do_not_use_the_gate_do_not_import_it() -> None:
    script = (
        "import sys, esbench, esbench.publish.gate.pytest_plugin; "
        "print({'numpy', 'pydantic', 'gymnasium', 'torch'} & set(sys.modules))"
    )
    assert finished("-c", script) == (0, "set()\n", "")
