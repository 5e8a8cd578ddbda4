import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import finished

from esbench.core.errors import UsageError
from esbench.publish.gate.agent_gate import AgentGate, AgentSession
from esbench.publish.gate.baselines import read_baseline


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


def test_a_drop_fails_with_the_numbers(path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"mine on CartPole-v1: .*20.9%.*p = 7.8e-05"):
        hold(path, Agent(drop=100.0))
    with pytest.raises(pytest.fail.Exception, match="regression"):
        hold(path, Agent(drop=math.inf))  # every seed diverges: no better than random


def test_seeds_that_diverge_count_as_the_worst_in_each_mean(tmp_path: Path) -> None:
    diverges: Any = SimpleNamespace(train=lambda seed: math.nan if seed < 6 else 490.0)
    freeze(tmp_path / "b.json")
    worst = r"mean 139\.5 \(8 seeds, 6 diverged, counted as the worst\)"  # random: 22.63
    with pytest.raises(pytest.fail.Exception, match=rf"regression: {worst}, baseline 493\.0.*74"):
        hold(tmp_path / "b.json", diverges)
    gate = AgentGate(tmp_path / "b.json", update=True, allow_inconclusive=False)
    gate(diverges, "mine", environment="CartPole-v1")
    assert re.search(rf"493\.0 \(8 seeds\) -> {worst[5:]}", gate.session.lines(cells=1)[0])


def test_too_few_seeds_fail_unless_allowed(path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="inconclusive: .*--esbench-allow-inconclusive"):
        hold(path, Agent(drop=100.0), last=1)
    hold(path, Agent(drop=100.0), last=1, allow_inconclusive=True)
    with pytest.raises(pytest.fail.Exception, match="7 seeds; expected 8"):
        hold(path, Agent(), last=7)  # the one left out may be the one that fails
    hold(path, Agent(), last=7, allow_inconclusive=True)


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


def test_an_environment_of_ones_own_has_its_range(tmp_path: Path) -> None:
    gate = AgentGate(tmp_path / "b.json", update=True, allow_inconclusive=False)
    with pytest.raises(UsageError, match="Mine-v0.*random_score="):
        gate(Agent(), "mine", environment="Mine-v0")
    for reference in (1, 0, math.inf):  # the last but one is a scale of costs
        scale = {"random_score": 1, "reference_score": reference}
        with pytest.raises(UsageError, match="reference"):
            gate(Agent(), "mine", environment="Mine-v0", **scale)
    assert not (tmp_path / "b.json").exists()
    gate(Agent(), "mine", environment="Mine-v0", random_score=0, reference_score=500)
    (cell,) = read_baseline(tmp_path / "b.json").cells
    assert (cell.random_score, cell.reference_score) == (0.0, 500.0)
    gate = AgentGate(tmp_path / "b.json", update=False, allow_inconclusive=False)
    gate(Agent(), "mine", environment="Mine-v0", random_score=0, reference_score=500)
    gate = AgentGate(tmp_path / "b.json", update=False, allow_inconclusive=False)
    with pytest.raises(UsageError, match=r"reference_score = 5000\.0: .* 500\.0"):
        gate(Agent(), "mine", environment="Mine-v0", random_score=0, reference_score=5000)


UNTRAINED: Any = SimpleNamespace(train=lambda seed: pytest.fail("it was trained first"))


RANGE = {"random_score": 0.0, "reference_score": 10.0}


def test_bad_arguments_and_files_are_refused_before_training(path: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(pytest.fail.Exception, match=r"absent on CartPole-v1 is not in .*; freeze"):
        AgentGate(path, False, False)(UNTRAINED, "absent", environment="CartPole-v1", seeds=[0])
    bad: list[tuple[dict[str, Any], str]] = [
        ({"random_score": 1.0}, r"random_score = 1\.0: .* 22\.63"),
        ({"random_score": "x"}, "random_score = 'x'"),
        ({"alpha": 1e-6}, "alpha = 1e-06 for 1 cell"),
        ({"margin": 7}, "margin"),
        ({"agent": object()}, "train"),
        ({"agent": Agent}, "Agent is a class"),
        ({"name": ""}, "name = ''"),
        ({"environment": 3, **RANGE}, "environment = 3"),
        ({"environment": "CartPol-v1"}, "did you mean 'CartPole-v1'"),
        ({"path": tmp_path / "bad.json"}, r"bad\.json"),
        ({"path": tmp_path / "none.json"}, "no file .*--esbench-update"),
        *(({"seeds": seeds}, "seeds = ") for seeds in ([], [-1], [2**32], [1.5], [3, 3])),
    ]
    for options, message in bad:
        given = {"agent": UNTRAINED, "name": "mine", "environment": "CartPole-v1", **options}
        with pytest.raises(UsageError, match=message):
            AgentGate(given.pop("path", path), False, False)(**given)


def test_what_training_returns_is_checked(path: Path) -> None:
    with pytest.raises(UsageError, match="no seed has a finite score"):
        freeze(path, Agent(drop=math.inf))
    for returned in ("490", None, 10**400):
        wrong: Any = SimpleNamespace(train=lambda seed, returned=returned: returned)
        with pytest.raises(UsageError, match=rf"mine.train\(0\) returned {repr(returned)[:9]}"):
            freeze(path, wrong)


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


def test_a_name_belongs_to_one_call(path: Path) -> None:
    session = AgentSession()
    gates = [AgentGate(path, False, False, test=test, session=session) for test in "ab"]
    gates[0](Agent(), "mine", environment="CartPole-v1")
    for gate in gates:
        with pytest.raises(UsageError, match="already checked by a; expected another name"):
            gate(Agent(), "mine", environment="CartPole-v1")


SUITE = """
class Agent:
    def train(self, seed):
        return 490.0 + seed - {drop}

def test_agent(esbench_check):
    esbench_check(Agent(), "mine", environment="CartPole-v1")
"""


def test_the_options_reach_the_fixture(pytester: pytest.Pytester) -> None:
    # In processes of their own: within this one, pytester would import NumPy a second time.
    pytester.makeini("[pytest]\naddopts = -p no:hypothesispytest")  # slow to import

    def run(drop: float, *options: str) -> pytest.RunResult:
        pytester.makepyfile(SUITE.format(drop=drop))
        return pytester.runpytest_subprocess("--esbench-baseline", "deep/b.json", *options)

    run(0.0, "--esbench-update").assert_outcomes(passed=1)
    assert read_baseline(pytester.path / "deep" / "b.json").cells[0].name == "mine on CartPole-v1"
    result = run(0.0, "--esbench-update", "-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--esbench-update writes one file; expected one process*"])
    result = run(22.0, "--esbench-allow-inconclusive")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mine on CartPole-v1: inconclusive: mean 471*"])
    result = run(1.0, "--esbench-update")
    result.stdout.fnmatch_lines(["frozen: mine on CartPole-v1: mean 493* -> 492*(8 seeds)"])
    (pytester.path / "bad.json").write_text("{")
    result = pytester.runpytest_subprocess("--esbench-baseline", "bad.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bad.json: not readable as JSON*"])
    assert "raise UsageError" not in result.stdout.str()


def test_workers_of_xdist_report_in_the_summary(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:hypothesispytest")
    second = SUITE[SUITE.index("def test") :].replace("test_agent", "test_two")
    pytester.makepyfile(SUITE.format(drop=0.0) + second.replace('"mine"', '"other"'))
    pytester.runpytest_subprocess("--esbench-update").assert_outcomes(passed=2)
    pytester.makepyfile(SUITE.format(drop=0.0))
    result = pytester.runpytest_subprocess("-n", "1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["mine on CartPole-v1: no worse*", "not checked: other on*"])


def test_a_file_is_relative_to_the_current_folder(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:hypothesispytest")
    pytester.makepyfile(SUITE.format(drop=0.0))
    below = pytester.mkdir("below")
    pytester.path.joinpath("tests").mkdir()
    test = next(pytester.path.glob("test_*.py"))
    test.rename(below / test.name)
    pytester.chdir()
    os.chdir(below)
    for options in (["--esbench-update"], []):
        result = pytester.runpytest_subprocess("--esbench-baseline", "../b.json", *options)
        result.assert_outcomes(passed=1)
    written = [
        (folder / "b.json").exists() for folder in (below, pytester.path, pytester.path.parent)
    ]
    assert written == [False, True, False]


def test_what_cannot_fail_says_so(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    freeze(path, seeds=4)
    with pytest.raises(pytest.fail.Exception, match="no drop can fail.* 5 "):
        hold(path, Agent(drop=300.0), last=4)
    session = AgentSession()
    for test in "abc":  # five seeds are enough for two cells, and not for three
        gate = AgentGate(tmp_path / "c.json", True, False, test=test, session=session)
        gate(Agent(), test, environment="CartPole-v1", seeds=range(5))
    noted = [line.endswith("fewer than 6 seeds") for line in session.lines(cells=3)]
    assert noted == [True] * 3
    assert not any("fewer" in line for line in session.lines(cells=2))


def test_sessions_that_do_not_use_the_gate_do_not_import_it() -> None:
    script = (
        "import sys, esbench, esbench.publish.gate.pytest_plugin; "
        "print({'numpy', 'pydantic', 'gymnasium', 'torch'} & set(sys.modules))"
    )
    assert finished("-c", script) == (0, "set()\n", "")
