"""Bisection: the first bad commit of a small library of agents, and what is left behind."""

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, python
from fake_trials import GOOD, write_scores
from past_checks import git

import esbench as package
from esbench.app.bisecting import TimeLeft
from esbench.core.errors import UsageError
from esbench.publish.gate import bisect_commits
from esbench.publish.gate.bisect_commits import find_range, worktree

# An agent library of one file. Each commit has a number; from BROKEN on, scores are lower.
LIBRARY = """
import numpy as np
NUMBER = {number}
def score(seed):
    drop = 50 if NUMBER >= {broken} else 0
    return 100 - drop + np.random.default_rng(seed).normal()
"""
TEST = """
import sys, pathlib
try:
    import agents
except SyntaxError:
    sys.exit(3)
pathlib.Path({calls!r}).open("a").write(f"{{agents.NUMBER}}\\n")
pathlib.Path("left_behind.txt").write_text("built")
sys.exit(agents.score(0) < 90)
"""
COMMITS, BROKEN = 9, 6
GRID = """
environments = ["CartPole-v1"]
algorithms = ["openai_es"]
seeds = [0, 1, 2, 3, 4, 5, 6, 7]
[budget]
env_steps = 2_000
"""


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits of a repository in the current folder; number 6 breaks the agents."""
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    git(repository, "init", "-q", "-b", "main")
    (repository / "check.py").write_text(TEST.format(calls=str(tmp_path / "calls")))
    found = []
    for number in range(COMMITS):
        text = LIBRARY.format(number=number, broken=BROKEN)
        (repository / "agents.py").write_text(text)
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", f"change {number}")
        found.append(git(repository, "rev-parse", "HEAD").strip())
    (repository / "agents.py").write_text("what the user is writing")
    return found


def state() -> tuple[str, ...]:
    """What a bisection must not change: files, branches, worktrees and bisections of the user."""
    here = Path()
    files = sorted(str(path) for path in here.iterdir() if path.name not in {".git", "out"})
    words = ("status --porcelain -uno", "worktree list", "for-each-ref", "rev-parse HEAD")
    return (*files, Path("agents.py").read_text(), *(git(here, *w.split()) for w in words))


def numbers_tested(folder: Path) -> list[int]:
    path = folder.parent / "calls"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_the_first_bad_commit_is_found_and_nothing_is_trained_twice(
    esbench: Run, commits: list[str]
) -> None:
    before, here = state(), Path.cwd()
    words = ("bisect", commits[0], "main", "--command", "python -P check.py", "--out", "out")
    code, out, err = esbench(*words)
    assert (code, err) == (0, "")
    assert commits[BROKEN] in out.partition("first bad commit:")[2]
    assert "8 commits" in out
    assert "at most 5 tests" in out
    assert out.count(" for 4 more\n") == 1  # by the time of the first test
    calls = numbers_tested(here)
    assert calls[:2] == [0, 8]
    assert {5, 6} <= {*calls}
    assert len(calls) == len({*calls}) <= 5
    assert state() == before
    again = esbench(*words)
    assert (again[0], numbers_tested(here)) == (0, calls)
    assert commits[BROKEN] in again[1].partition("first bad commit:")[2]
    assert " more\n" not in again[1]  # nothing was measured


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ([("good", 60), ("bad", 70)], ["4 min 0 s for 4 more", ""]),
        ([("skip", 2), ("good", 60)], ["", "4 min 0 s for 4 more"]),  # no build: says nothing
        ([("good", math.nan), ("bad", 60)], ["", "3 min 0 s for 3 more"]),  # known
        ([("good", 1), ("bad", 60)], ["4.0 s for 4 more", "3 min 0 s for 3 more"]),  # resumed
        ([("good", 60)] * 5, ["4 min 0 s for 4 more", "", "", "", ""]),
        ([("good", math.nan)] * 4 + [("bad", 60)], [""] * 5),
    ],
)
def test_the_time_left_is_that_of_the_longest_test_with_a_verdict(
    tests: list[tuple[Any, float]], said: list[str]
) -> None:
    left = TimeLeft(5)
    lines = [left.after(*each) for each in tests]
    assert [line.partition("about ")[2] for line in lines] == said


def test_a_plan_tests_nothing(esbench: Run, commits: list[str]) -> None:
    words = ("--command", "python -P check.py", "--out", "out", "--plan")
    code, out, _ = esbench("bisect", commits[0], *words)
    assert (code, len(out.splitlines()), numbers_tested(Path.cwd())) == (0, 1, [])
    assert not Path("out").exists()


def test_commits_that_cannot_be_tested_are_skipped(esbench: Run, commits: list[str]) -> None:
    failing = "git log -1 --format=%s | grep -q -e 5 -e 6 && echo no compiler && echo && exit 3"
    command = f"{failing}; {{ python -P check.py; }}"
    words = ("--command", command, "--out", "out")
    code, out, _ = esbench("bisect", commits[0], *words)
    left = [commit for commit in commits if commit in out.partition("one of")[2]]
    assert (code, left) == (4, commits[5:8])
    skipped = [line for line in out.splitlines() if line.startswith("skip")]
    assert [line.partition("change ")[2][1:] for line in skipped] == [" (no compiler)"] * 2


SCORES_TEST = """
import agents
class Agent:
    def train(self, seed):
        if agents.NUMBER == 3:
            raise RuntimeError("fixed in the next commit")
        return agents.score(seed)
def test_agent(esbench_check):
    scale = {"random_score": 0.0, "reference_score": 100.0}
    seeds = range(2 if agents.NUMBER in (2, 4) else 8)
    esbench_check(Agent(), "mine", environment="Own-v0", seeds=seeds, **scale)
"""


def test_pytest_that_fails_for_another_reason_than_a_drop_is_no_bad_commit(
    pytester: pytest.Pytester, esbench: Run, commits: list[str]
) -> None:
    test = Path.cwd().parent / "test_scores.py"
    test.write_text(SCORES_TEST)
    (test.parent / "pytest.ini").write_text("[pytest]\npythonpath = repository\n")
    Path("agents.py").write_text(LIBRARY.format(number=0, broken=BROKEN))
    pytester.runpytest_subprocess(str(test), "--esbench-update").assert_outcomes(passed=1)
    baseline = f"--esbench-baseline={test.parent / 'esbench-baseline.json'}"
    words = ("--command", f"python -m pytest -q -c /dev/null {test} {baseline}", "--out", "out")
    code, out, _ = esbench("bisect", commits[0], *words)
    assert code == 0
    assert commits[BROKEN] in out.partition("first bad commit:")[2]
    assert re.search(r"^skip  .*change 4 \(inconclusive\)$", out, re.MULTILINE)


def test_folders_of_the_own_checkout_on_the_import_path_are_those_of_the_commit(
    commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, link = Path.cwd(), Path.cwd().parent / "link"
    link.symlink_to(here)
    (here / "build").mkdir()
    given = [link, here / "build", here.parent]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, given)))
    with worktree(Path(), commits[0]) as tree:
        found = bisect_commits._import_path(tree).split(os.pathsep)
    expected = [tree / "src", tree, tree, here / "build", here.parent]
    assert found == [*map(str, expected)]


def test_an_interruption_leaves_nothing_and_is_resumed(commits: list[str]) -> None:
    before, here = state(), Path.cwd()
    third = f"[ $(wc -l < {here.parent / 'calls'}) = 3 ] && kill -INT {os.getpid()} && sleep 0.1"
    options: dict[str, Any] = {"command": f"python -P check.py; code=$?; {third}; exit $code"}
    with pytest.raises(KeyboardInterrupt):
        package.bisect(commits[0], **options, out="out")
    assert state() == before
    first = numbers_tested(here)
    assert (first[:2], len(first)) == ([0, 8], 3)
    assert package.bisect(commits[0], **options, out="out").commits == [commits[BROKEN]]
    assert state() == before
    assert numbers_tested(here)[3] == first[2]  # only its test was interrupted


KILLED = """
import os, signal
from pathlib import Path
from esbench.publish.gate.bisect_commits import worktree
with worktree(Path(), "HEAD") as place:
    print(place, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_worktree_of_a_killed_bisection_is_removed_by_the_next_one(commits: list[str]) -> None:
    before = state()
    with python("-c", KILLED) as process:
        left = Path(process.communicate()[0].strip())
    assert left.is_dir()
    with worktree(Path(), commits[0]) as own, worktree(Path(), commits[1]):
        assert own.is_dir()  # it is in use
        assert not left.parent.exists()
    assert state() == before


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (7, 8, "the good commit"),
        (0, 3, "the bad commit"),
        (3, 0, "comes after"),
        (3, 3, "comes after"),
        ("nothing", 3, "'nothing'"),
        ("--help", 3, "'--help'"),
    ],
)
def test_ends_that_are_none_are_refused(
    commits: list[str], good: int | str, bad: int, words: str
) -> None:
    before = state()
    name = commits[good] if isinstance(good, int) else good
    with pytest.raises(UsageError, match=words):
        package.bisect(name, commits[bad], command="python -P check.py", out="out")
    assert state() == before


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--grid quick --command true",
        "--command true --until-conclusive",
        "--command true --baseline b.json",
        "--grid quick --max-seeds 9",
        "--grid quick --baseline missing.json",
    ],
)
def test_options_that_do_not_belong_together_are_refused(
    esbench: Run, commits: list[str], words: str
) -> None:
    code, out, err = esbench("bisect", commits[0], *words.split())
    assert (code, out, len(err.splitlines()), Path("results").exists()) == (2, "", 1, False)


def test_outside_of_a_repository_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no repository"):
        find_range(tmp_path, "a", "b")


def test_a_grid_is_trained_and_checked_at_each_commit(
    esbench: Run, commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def run(command: list[str], checkout: Path, log: Path) -> int:
        """Run a command of esbench in this process; what a commit trains is made up."""
        words = command[3:]
        log.parent.mkdir(parents=True, exist_ok=True)
        if words[0] != "run":
            return esbench(*words)[0]
        (number,) = re.findall("NUMBER = (.)", (checkout / "agents.py").read_text())
        assert words[1:] == [str(grid), "--out", words[3], "--quiet", "--workers=1"]
        trained.append(int(number))
        drop = 300 if int(number) >= BROKEN else 0
        write_scores(Path(words[3]), [score - drop for score in GOOD])
        return 0

    grid = Path("gate.toml").absolute()
    grid.write_text(GRID)
    before = state()
    monkeypatch.setattr(bisect_commits, "_run", run)
    options: dict[str, Any] = {"grid": "gate.toml", "workers": 1, "margin": 0.2}
    options["out"] = "out"
    found = package.bisect(commits[0], **options)
    assert found.commits == [commits[BROKEN]]
    assert "8 trials" in found.plan[1]
    assert (trained[:2], state()) == ([0, 8], before)
    checks = (found.folder / "checks").iterdir()
    assert {path.stem for path in checks} == {commits[n] for n in trained[1:]}
    assert package.bisect(commits[0], **options).commits == found.commits
    assert len(trained) == len({*trained})
    grid.write_text(GRID.replace("2_000", "3_000"))  # another question
    assert package.bisect(commits[0], **options, only_plan=True).folder != found.folder


@pytest.mark.parametrize(
    ("scores", "baseline", "code"),
    [
        (GOOD, "b.json", 0),
        ([score - 400 for score in GOOD], "b.json", 1),
        ([80.0, *GOOD[1:]], "b.json", 125),  # inconclusive
        (GOOD[1:], "b.json", 125),  # not measured
        (GOOD, "missing.json", 125),
    ],
)
def test_git_bisect_run_skips_what_has_no_verdict(
    esbench: Run, tmp_path: Path, scores: list[float], baseline: str, code: int
) -> None:
    write_scores(tmp_path / "base", GOOD)
    assert esbench("baseline", "base", "--out", "b.json", "--margin", "0.05")[0] == 0
    write_scores(tmp_path / "out", scores)
    assert esbench("check", "out", "--baseline", baseline, "--git-bisect")[0] == code
