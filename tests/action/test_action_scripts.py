"""The scripts behind the steps of ``action.yml``, with the variables that a runner sets."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import PathDistribution
from pathlib import Path

import end_with_verdict
import install
import keep_history
import pytest
import run_gate
import update_comment
from command_line import Run, execute
from composite_action import ROOT, parse_outputs
from fake_trials import write_scores
from github_double import GitHub
from runner import shortened

from esbench.publish.history import history

MARKER = "<!-- esbench gate: mine -->"


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets variables; those of a gate "mine" and its files are set."""

    def set_variables(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "check.md").write_text("### esbench check: PASSED")
    (tmp_path / "event.json").write_text("{}")
    set_variables(
        ESBENCH_NAME="mine",
        ESBENCH_FILES=tmp_path / "files",
        GITHUB_EVENT_PATH=tmp_path / "event.json",
        GITHUB_OUTPUT=tmp_path / "output",
        GITHUB_STEP_SUMMARY=tmp_path / "summary",
        GITHUB_REPOSITORY="o/r",
        GITHUB_SHA="a" * 40,
        RUNNER_TEMP=tmp_path,
    )
    return set_variables


# The comment


@pytest.fixture
def comment(
    tmp_path: Path, variables: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return a function that updates the comment of pull request 5 and returns what it prints."""

    def update(github: GitHub, repository: str = "o/r", token: str = "secret") -> str:
        github.pull_request(tmp_path / "event.json", 5, repository)
        author = "github-actions[bot]"
        variables(**github.variables, ESBENCH_TOKEN=token, ESBENCH_AUTHOR=author)
        update_comment.main()
        return capsys.readouterr().out

    return update


def test_a_pull_request_has_one_comment_with_the_last_check(
    tmp_path: Path, comment: Callable[..., str]
) -> None:
    with GitHub() as github:
        assert comment(github).startswith("wrote https://github.test/o/r/pull/5")
        (tmp_path / "files" / "check.md").write_text("### esbench check: FAILED")
        assert comment(github).startswith("updated https://github.test/o/r/pull/5")
    (own,) = github.comments.values()
    assert own["body"].startswith(f"{MARKER}\n### esbench check: FAILED")
    assert "actions/runs/9" in own["body"]
    assert [method for method, _ in github.requests] == ["GET", "POST", "GET", "PATCH"]


@pytest.mark.parametrize(
    ("body", "login", "is_updated"),
    [
        (f"{MARKER}\nold", "github-actions[bot]", True),
        (f"{MARKER}\nold", "somebody", False),  # who could edit it again, to say what he likes
        (f"quoted {MARKER}", "github-actions[bot]", False),
        ("<!-- esbench gate: other -->", "github-actions[bot]", False),
    ],
)
def test_only_the_own_comment_of_the_gate_is_replaced(
    comment: Callable[..., str], body: str, login: str, is_updated: bool
) -> None:
    with GitHub() as github:
        for number in range(120):  # more than a page
            github.add(f"comment {number}", "somebody")
        found = github.add(body, login)
        comment(github)
    assert (github.comments[found]["body"] != body) == is_updated
    assert len(github.comments) == 122 - is_updated


@pytest.mark.parametrize(
    ("refused", "repository", "token", "words"),
    [
        (403, "fork/r", "secret", "::notice title=esbench::no comment: the token of a pull re"),
        (403, "o/r", "secret", "the job needs the permission 'pull-requests: write'"),
        (0, "o/r", "expired", "::warning title=esbench::no comment: the token may not"),
        (0, "fork/r", "", "::notice title=esbench::no comment: there is no token"),
        (502, "o/r", "secret", "::warning title=esbench::no comment: GitHub answered with HTTP"),
    ],
)
def test_where_no_comment_can_be_written_the_step_says_so_and_goes_on(
    comment: Callable[..., str], refused: int, repository: str, token: str, words: str
) -> None:
    with GitHub(refused) as github:
        assert words in comment(github, repository, token)
    assert not github.comments


def test_a_server_that_is_gone_and_a_push_are_no_failures(
    tmp_path: Path, comment: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with GitHub() as github:
        pass
    assert "::warning title=esbench::no comment: <urlopen error" in comment(github)
    (tmp_path / "event.json").write_text('{"ref": "refs/heads/main"}')
    update_comment.main()
    assert "this run is not of a pull request" in capsys.readouterr().out


@pytest.mark.parametrize("fence", ["````", "`````"])
@pytest.mark.parametrize("length", [150, 300, 5000])
def test_text_that_is_cut_within_a_block_ends_the_block(fence: str, length: int) -> None:
    text = "\n".join(["### title", "", f"{fence}text", "```", *["x" * 100] * 80, fence])
    short = shortened(text, length + 1100, "cut here")
    assert len(short) <= length + 1100
    lines = short.splitlines()
    assert lines.count(fence) == (1 if f"{fence}text" in lines else 0)
    assert lines[-1] == "cut here"


def test_a_long_comment_is_cut_between_lines(tmp_path: Path, comment: Callable[..., str]) -> None:
    rows = "\n".join(f"| {number} | {'x' * 90} |" for number in range(2000))
    (tmp_path / "files" / "check.md").write_text(rows)
    with GitHub() as github:
        comment(github)
    (own,) = github.comments.values()
    assert 60_000 < len(own["body"]) < 65_536
    assert "the files have all of it" in own["body"]
    assert all(line.endswith("x |") for line in own["body"].splitlines() if line.startswith("|"))


# The gate

SCORES = [480.0, 485.0, 490.0, 491.0, 492.0, 495.0, 498.0, 500.0]


def test_a_grid_is_trained_checked_and_reported(
    esbench: Run, tmp_path: Path, variables: Callable[..., None]
) -> None:
    called = []

    def execute_check(words: list[str]) -> run_gate.Output:
        """Run ``esbench check``; the other two commands take long."""
        called.append(words)
        if words[0] == "run":
            write_scores(Path(words[words.index("--out") + 1]), SCORES)
        return run_gate.Output(execute(*words) if words[0] == "check" else 0)

    write_scores(tmp_path / "base", SCORES)
    assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    given = {"UNTIL_CONCLUSIVE": "true", "MAX_SEEDS": 8, "ALPHA": 0.02, "MARGIN": 0.2}
    variables(ESBENCH_GRID="gate.toml", ESBENCH_BASELINE="b.json")
    variables(**{f"ESBENCH_{name}": value for name, value in given.items()})
    run_gate.main(execute_check)
    outputs = parse_outputs((tmp_path / "output").read_text())
    assert (outputs["verdict"], outputs["exit-code"]) == ("passed", "0")
    assert outputs["headline"].startswith("PASSED")
    made = {path.name for path in Path(outputs["files"]).iterdir()}
    assert made == {"check.md", "check.json", "check.xml", "badge.json"}
    summary = (tmp_path / "summary").read_text()
    assert "Cells are judged at 8 seeds" in summary
    assert "false alarms: at most 2 % of checks" in summary
    trials = outputs["trials"]
    assert called[0] == ["run", "gate.toml", "--out", trials, "--quiet"]
    assert called[2] == ["report", trials, "--out", f"{outputs['files']}/report.html"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "expected either the input 'grid' or the input 'command'"),
        ({"GRID": "g", "COMMAND": "c"}, "expected either the input 'grid' or the input 'command'"),
        ({"GRID": "g"}, "the input 'baseline' is missing"),
        ({"GRID": "g", "BASELINE": "none.json"}, "baseline: no file 'none.json'"),
        ({"GRID": "g", "EXACT": "yes"}, "exact: 'yes'; expected false or true"),
        ({"GRID": "g", "INCONCLUSIVE": "pass"}, "inconclusive: 'pass'; expected fail or warn"),
        ({"GRID": "g", "ALPHA": "7"}, "alpha: '7'; expected a number above 0, at most 1"),
        ({"GRID": "g", "MARGIN": "0.0"}, "margin: '0.0'; expected a number above 0, at most 1"),
        ({"GRID": "g", "MARGIN": "0e-5"}, "margin: '0e-5'; expected a number above 0, at most 1"),
        ({"GRID": "g", "MARGIN": "1.1"}, "margin: '1.1'; expected a number above 0, at most 1"),
        ({"GRID": "g", "MAX_SEEDS": "0"}, "max-seeds: '0'; expected a whole number"),
        ({"GRID": "g", "MAX_SEEDS": "16"}, "max-seeds: expected together with until-conclusive"),
        ({"GRID": "g", "BASELINE": "text"}, "baseline: 'text' is not JSON"),
        ({"GRID": "g", "INSTALLED": "failure"}, "the installation has not succeeded"),
        ({"GRID": "g", "NAME": "a b"}, "name: 'a b'; expected letters"),
        ({"COMMAND": "c", "MARGIN": "0.1"}, "margin: expected together with 'grid'"),
        ({"COMMAND": "c", "INCONCLUSIVE": "warn"}, "inconclusive: expected together with 'grid'"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_trained(
    tmp_path: Path,
    variables: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    words: str,
) -> None:
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "text").write_text("no JSON")
    monkeypatch.chdir(tmp_path)
    every = {"BASELINE": "b.json"} if given != {"GRID": "g"} else {}
    variables(**{f"ESBENCH_{name}": value for name, value in (every | given).items()})
    run_gate.main(lambda _: pytest.fail("it was run"))
    outputs = parse_outputs((tmp_path / "output").read_text())
    assert (outputs["verdict"], outputs["exit-code"]) == ("error", "2")
    assert words in outputs["headline"]
    (title,) = (Path(outputs["files"]) / "check.md").read_text().splitlines()
    assert title.startswith("### esbench check: ERROR: ")


def written(code: int) -> str:
    """Words of the shell that write the files of a check with an exit code."""
    check = json.dumps({"exit_code": code, "headline": f"check {code}"})
    files = {"json": check, "md": f"### esbench check: check {code}", "badge": '{"color": "red"}'}
    names = {"json": "check.json", "md": "check.md", "badge": "badge.json"}
    return "".join(
        f"echo '{text}' > $ESBENCH_FILES/{names[kind]}; " for kind, text in files.items()
    )


@pytest.mark.parametrize(
    ("command", "verdict", "headline"),
    [
        ("true", "not-measured", "NOT MEASURED: the command has compared no scores"),
        ("echo ended; false", "error", "ERROR: the command has ended with exit code 1"),
        ("exit 4", "error", "exit code 4"),  # pytest's code of wrong options
        ("false | true", "error", "exit code 1"),
        (written(0), "passed", "check 0"),
        (f"{written(1)} false", "regression", "check 1"),
        (f"{written(4)} false", "inconclusive", "check 4"),
        (f"{written(0)} false", "error", "exit code 1, but check 0"),  # another test has failed
        (f"{written(1)} false || true", "error", "exit code 0, but check 1"),
        (f"{written(1)} exit 1", "regression", "check 1"),  # esbench check
    ],
)
def test_a_command_has_the_verdict_of_its_check_and_no_other_than_its_exit_code(
    tmp_path: Path, variables: Callable[..., None], command: str, verdict: str, headline: str
) -> None:
    variables(ESBENCH_COMMAND=command)
    run_gate.main()
    outputs = parse_outputs((tmp_path / "output").read_text())
    assert outputs["verdict"] == verdict
    assert headline in outputs["headline"]
    assert (outputs["exit-code"] == "0") == (verdict == "passed")
    files = Path(outputs["files"])
    title = (files / "check.md").read_text().splitlines()[0]
    assert title == f"### esbench check: {outputs['headline']}"
    assert (tmp_path / "summary").read_text().startswith(title)
    if verdict == "error":  # nothing says that it has passed, and no history keeps it
        assert not (files / "check.json").exists()
        assert json.loads((files / "badge.json").read_text())["message"] == "error"


@pytest.mark.parametrize(
    ("ended", "written", "verdict"),
    [(1, 1, "regression"), (0, 0, "passed"), (1, None, "error"), (1, 0, "error"), (0, 1, "error")],
)
def test_a_check_that_crashes_is_no_verdict(
    tmp_path: Path, variables: Callable[..., None], ended: int, written: int | None, verdict: str
) -> None:
    def execute_check(words: list[str]) -> run_gate.Output:
        if words[0] == "check" and written is not None:
            file = Path(words[words.index("--json") + 1])
            file.write_text(json.dumps({"exit_code": written, "headline": "as it was written"}))
        return run_gate.Output(ended if words[0] == "check" else 0)

    (tmp_path / "b.json").write_text("{}")
    variables(ESBENCH_GRID="gate.toml", ESBENCH_BASELINE=tmp_path / "b.json")
    run_gate.main(execute_check)
    assert parse_outputs((tmp_path / "output").read_text())["verdict"] == verdict


def test_output_of_a_command_is_no_markup_and_no_output_of_the_step(
    tmp_path: Path, variables: Callable[..., None]
) -> None:
    variables(ESBENCH_COMMAND="printf '```\\n# @all <img>\\nverdict=passed\\n'; exit 3")
    run_gate.main()
    outputs = parse_outputs((tmp_path / "output").read_text())
    assert outputs["verdict"] == "error"
    summary = (tmp_path / "summary").read_text().splitlines()
    assert [line for line in summary if line.startswith("````")] == ["````text", "````"]
    first, last = (summary.index(fence) for fence in ("````text", "````"))
    assert first < summary.index("# @all <img>") < last


@pytest.mark.parametrize(
    ("code", "inconclusive", "ends", "kind"),
    [("0", "fail", 0, "notice"), ("1", "warn", 1, "error"), ("4", "fail", 4, "error"),
     ("4", "warn", 0, "warning"), ("", "warn", 2, "error")],
)  # fmt: skip
def test_the_last_step_ends_as_the_check_and_can_let_an_inconclusive_one_pass(
    variables: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    code: str,
    inconclusive: str,
    ends: int,
    kind: str,
) -> None:
    variables(ESBENCH_EXIT_CODE=code, ESBENCH_INCONCLUSIVE=inconclusive, ESBENCH_HEADLINE="50 %\nx")
    with pytest.raises(SystemExit) as ended:
        end_with_verdict.main()
    assert ended.value.code == ends
    assert capsys.readouterr().out == f"::{kind} title=esbench::50 %25%0Ax\n"


# What is installed


@pytest.mark.parametrize(
    ("system", "pinned", "calls"), [("linux", "true", 2), ("darwin", "true", 1), ("linux", "no", 1)]
)
def test_on_linux_torch_comes_first_without_cuda(
    variables: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    pinned: str,
    calls: int,
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    variables(ESBENCH_ACTION=ROOT, ESBENCH_INSTALL=".[test]\n\n pytest ")
    variables(ESBENCH_CONSTRAINTS=pinned)
    found = install.commands()
    assert len(found) == calls
    assert found[-1][-3:] == [str(ROOT), ".[test]", "pytest"]
    assert ("-c" in found[-1]) == (pinned == "true")
    if calls == 2:
        assert found[0][-2:] == [install.CPU_BUILDS, found[0][-1]]
        assert found[0][-1].startswith("torch==")


@pytest.mark.parametrize(
    ("light", "branch", "is_light"),
    [("", "", True), ("true", "", True), ("false", "", False), ("true", "checks", False)],
)
def test_a_command_needs_no_torch_unless_it_says_so_or_keeps_a_history(
    variables: Callable[..., None], light: str, branch: str, is_light: bool
) -> None:
    variables(ESBENCH_ACTION=ROOT, ESBENCH_COMMAND="pytest", ESBENCH_LIGHT=light)
    variables(ESBENCH_HISTORY=branch)
    found = install.commands()
    assert (found[0] == ["-m", "pip", "install", "--no-deps", str(ROOT)]) == is_light
    script = [str(ROOT / "action" / "light.py"), str(ROOT / "gate-requirements.txt")]
    assert (script in found) == is_light
    assert (str(ROOT / "gate-requirements.txt") in found[-1]) == is_light


def test_code_that_requires_esbench_gets_no_torch_with_the_light_one(tmp_path: Path) -> None:
    """Run pip on two packages without a network: the light esbench and one that requires it."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--quiet"]
    site = tmp_path / "site"
    folder, code = site / "esbench_rl-9.dist-info", tmp_path / "mine-1-py3-none-any.whl"
    folder.mkdir(parents=True)
    (folder / "RECORD").write_text("esbench_rl-9.dist-info/METADATA,,\n")
    head = "Metadata-Version: 2.1\nName: esbench-rl\nVersion: 9\n"
    needs = ["no-such-torch<9", "numpy[no-such-extra]", "no-such-plots>=1; extra == 'plots'"]
    text = head + "".join(f"Requires-Dist: {need}\n" for need in needs)
    (folder / "METADATA").write_text(text + "\nRequires-Dist: is a word of the text\n")
    with zipfile.ZipFile(code, "w") as wheel:
        about = "Metadata-Version: 2.1\nName: mine\nVersion: 1\nRequires-Dist: esbench-rl\n"
        wheel.writestr("mine-1.dist-info/METADATA", about)
        wheel.writestr("mine-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("mine-1.dist-info/RECORD", "")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    light = [sys.executable, ROOT / "action" / "light.py", ROOT / "gate-requirements.txt"]
    installs = [*pip, str(code)]
    codes = [
        subprocess.run(words, env=environment, capture_output=True, check=False).returncode
        for words in (installs, light, installs)
    ]
    assert codes == [1, 0, 0]  # the first one misses no-such-torch
    listed = (ROOT / "gate-requirements.txt").read_text().splitlines()
    light_needs = [needs[2], *(line for line in listed if not line.startswith("#"))]
    changed = PathDistribution(folder)
    assert changed.requires == light_needs
    assert (folder / "METADATA").read_text().endswith("\n\nRequires-Dist: is a word of the text\n")


def test_an_option_of_pip_is_refused(variables: Callable[..., None]) -> None:
    variables(ESBENCH_ACTION=ROOT, ESBENCH_INSTALL=".\n--index-url=https://example.com")
    with pytest.raises(SystemExit):
        install.commands()


# The history


@pytest.fixture
def origin(tmp_path: Path, variables: Callable[..., None]) -> Path:
    """Return a repository without a commit, and write the file of a check."""
    path = tmp_path / "o" / "r"
    subprocess.run(["git", "init", "--bare", "--quiet", str(path)], check=True)
    variables(GITHUB_SERVER_URL=f"file://{tmp_path}", ESBENCH_HISTORY="checks")
    base = tmp_path / "base"
    write_scores(base, [480.0, 485.0, 490.0])
    assert execute("baseline", str(base), "--out", str(tmp_path / "b.json")) == 0
    check = str(tmp_path / "files" / "check.json")
    execute("check", str(base), "--baseline", str(tmp_path / "b.json"), "--json", check)
    return path


def kept_in(origin: Path) -> list[str]:
    words = ["git", "-C", str(origin), "ls-tree", "--name-only", "checks"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_each_check_is_kept_on_the_branch_also_when_another_one_is_pushed_meanwhile(
    tmp_path: Path, origin: Path, variables: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[list[str]] = []

    def esbench(words: list[str]) -> run_gate.Output:
        pages.append(words)
        (cell,) = history([Path(words[1])])
        return run_gate.Output(len(cell.checks) - len(pages) if len(pages) < 3 else 0)

    for run in (1, 2):
        variables(GITHUB_RUN_ID=run)
        keep_history.main(esbench)
    assert kept_in(origin) == [f"{'a' * 40}-{run}-1-mine.json" for run in (1, 2)]
    outputs = parse_outputs((tmp_path / "output").read_text())
    assert outputs["page"] == str(tmp_path / "files" / "history.html")
    assert pages[0][2:] == ["--html", outputs["page"], "--repository", f"file://{tmp_path}/o/r"]

    git = keep_history.git

    def late(folder: Path, *words: str) -> str:
        if words[0] == "push":
            monkeypatch.setattr(keep_history, "git", git)
            variables(GITHUB_RUN_ID=3)
            keep_history.main(esbench)
            variables(GITHUB_RUN_ID=4)
        return git(folder, *words)

    variables(GITHUB_RUN_ID=4)
    monkeypatch.setattr(keep_history, "git", late)
    keep_history.main(esbench)
    assert len(kept_in(origin)) == 4

    variables(ESBENCH_NAME="other")  # of the same run
    keep_history.main(esbench)
    assert len(kept_in(origin)) == 5


@pytest.mark.parametrize("branch", ["", "-f", "a..b", "a b", "refs:main", "x.lock"])
def test_a_branch_that_is_none_is_refused(
    variables: Callable[..., None], capsys: pytest.CaptureFixture[str], branch: str
) -> None:
    variables(ESBENCH_HISTORY=branch)
    with pytest.raises(SystemExit):
        keep_history.main(lambda _: pytest.fail("it was run"))
    assert f"history: {branch!r}; expected the name of a branch" in capsys.readouterr().out


def test_a_repository_that_refuses_the_push_is_named_without_the_token(
    origin: Path, variables: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    variables(ESBENCH_TOKEN="secret-token", GITHUB_REPOSITORY="o/none")
    with pytest.raises(SystemExit):
        keep_history.main(lambda _: pytest.fail("it was run"))
    text = "".join(capfd.readouterr())
    assert "'contents: write'" in text
    assert "secret" not in text


def test_the_reason_of_a_refused_push_of_a_new_branch_is_shown(
    origin: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (origin / "hooks" / "pre-receive").write_text("#!/bin/sh\necho protected >&2\nexit 1\n")
    (origin / "hooks" / "pre-receive").chmod(0o755)
    with pytest.raises(SystemExit):
        keep_history.main(lambda _: pytest.fail("it was run"))
    text = "".join(capfd.readouterr())
    assert "protected" in text
    assert "nothing to commit" not in text
