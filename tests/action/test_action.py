"""``action.yml`` and the workflows: their form, and the action as a runner runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_schema
from composite_action import ARTIFACT, ROOT, Runner
from github_double import GitHub

pytestmark = pytest.mark.skipif(
    not (ROOT / ".github").exists(), reason="a source distribution is without .github"
)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-actions", [ROOT / "action.yml"]),
        ("github-workflows", WORKFLOWS),
        ("gitlab-ci", [ROOT / ".gitlab" / "esbench.yml"]),
    ],
)
def test_a_file_has_the_schema_of_its_service(schema: str, paths: list[Path]) -> None:
    options = ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
    words = ["--builtin-schema", f"vendor.{schema}", *options, *map(str, paths)]
    with pytest.raises(SystemExit) as ended:
        check_schema(words)
    assert not ended.value.code


def test_the_light_job_of_gitlab_leaves_out_torch_and_fails_where_pytest_finds_no_file() -> None:
    path = ROOT / ".gitlab" / "esbench.yml"
    jobs: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    light = jobs[".esbench-light"]
    order = ("--no-deps /tmp/esbench", "light.py /tmp/esbench/gate-requirements.txt", " .")
    lines = light["before_script"][2:]
    assert [words in line for words, line in zip(order, lines, strict=True)] == [True] * 3
    names = [jobs[name]["artifacts"]["expose_as"] for name in (".esbench", ".esbench-light")]
    assert names == ["esbench report", "esbench check"]
    assert light["allow_failure"] is False  # of a grid, 4 is an inconclusive check
    assert (jobs[".esbench"]["allow_failure"], light["after_script"]) == ({"exit_codes": [4]}, [])


def test_an_audit_finds_no_injection_and_no_action_that_can_be_moved() -> None:
    program = Path(sys.executable).with_name("zizmor")
    words = [str(program), "--offline", "--quiet", "--min-severity", "medium"]
    done = subprocess.run([*words, "action.yml", ".github"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_limits_and_no_more_permissions_than_its_jobs_need(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["concurrency"]["group"]
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert "checkout" not in step.get("uses", "") or not step["with"]["persist-credentials"]


PAGE = (ROOT / "docs" / "how-to" / "github-action.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(name:.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def test_the_workflows_of_the_guide_are_valid_and_use_inputs_that_exist(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 3
    assert len(EXAMPLES[0].splitlines()) == 10
    paths = [tmp_path / f"{number}.yml" for number in range(len(EXAMPLES))]
    for path, text in zip(paths, EXAMPLES, strict=True):
        path.write_text(text)
        for job in yaml.safe_load(text)["jobs"].values():
            for step in job["steps"]:
                if "esbench@" in step["uses" if "uses" in step else "run"]:
                    assert step["with"].keys() <= ACTION["inputs"].keys()
    with pytest.raises(SystemExit) as ended:
        check_schema(["--builtin-schema", "vendor.github-workflows", *map(str, paths)])
    assert not ended.value.code


def test_the_guide_names_all_inputs_and_outputs() -> None:
    named = {*re.findall(r"`([\w-]+)`", PAGE)}
    assert named >= ACTION["inputs"].keys() | ACTION["outputs"].keys()


# What stands in for ``python -m esbench``: it writes the files of its options.
ESBENCH = """
import json, os, pathlib, sys
command, *words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps([command, *words]) + "\\n")
assert "secret" not in os.environ.values()
code = int(os.environ["CHECK_CODE"]) if command == "check" else 0
files = {"--markdown": "### esbench check: " + os.environ["HEADLINE"] + "\\n\\n| table |",
         "--json": json.dumps({"exit_code": code, "headline": os.environ["HEADLINE"]}),
         "--junit": "<testsuites/>", "--badge": "{}"}
for option, text in files.items():
    if command == "check" and option in words and code != 2:
        pathlib.Path(words[words.index(option) + 1]).write_text(text)
if code == 2:
    print("esbench: alpha = 7: expected a share", file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a runner whose Python has doubles of esbench and pip."""
    modules = tmp_path / "modules"
    for name, text in {"esbench": ESBENCH, "pip": "print('/tmp/pip')"}.items():
        (modules / name).mkdir(parents=True)
        (modules / name / "__init__.py").touch()
        (modules / name / "__main__.py").write_text(text)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "b.json").write_text("{}")
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(modules),
        "PIP_NO_INDEX": "1",
        "CALLS": str(tmp_path / "calls"),
        "CHECK_CODE": "0",
        "HEADLINE": "PASSED: no regression",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_SERVER_URL": "https://github.test",
    }
    (tmp_path / "event.json").write_text(json.dumps({"ref": "refs/heads/main"}))
    return Runner(tmp_path, environment)


@pytest.mark.parametrize(
    ("check", "inconclusive", "verdict", "fails"),
    [
        (0, "fail", "passed", False),
        (1, "fail", "regression", True),
        (1, "warn", "regression", True),
        (3, "warn", "not-measured", True),
        (4, "fail", "inconclusive", True),
        (4, "warn", "inconclusive", False),
        (2, "warn", "error", True),
    ],
)
def test_a_verdict_reaches_the_outputs_the_summary_the_comment_and_the_job(
    runner: Runner, check: int, inconclusive: str, verdict: str, fails: bool
) -> None:
    headline = "FAILED: scores dropped"
    with GitHub() as github:
        github.pull_request(runner.folder / "event.json", number=5)
        runner.environment = {
            **runner.environment,
            **github.variables,
            "CHECK_CODE": str(check),
            "HEADLINE": headline,
        }
        outputs = runner.run(
            grid="gate.toml", baseline="b.json", alpha="0.02", inconclusive=inconclusive
        )
    assert outputs["verdict"] == verdict
    assert runner.failed == ["Verdict"] * fails
    headline = "alpha = 7: expected a share" if check == 2 else headline
    assert headline in (runner.folder / "summary").read_text()
    (comment,) = github.comments.values()
    assert headline in comment["body"]
    assert ARTIFACT in comment["body"]
    assert f"::{'error' if fails else 'warning' if check else 'notice'} title=esbench::" in (
        runner.log
    )
    calls = [json.loads(line) for line in (runner.folder / "calls").read_text().splitlines()]
    commands = ["run", "check", *["report"] * (check != 2)]
    assert [words[0] for words in calls] == commands
    assert calls[1][4:6] == ["--alpha", "0.02"]
    assert "secret" not in runner.log


def test_bad_input_trains_nothing_and_its_comment_says_so(runner: Runner) -> None:
    with GitHub() as github:
        github.pull_request(runner.folder / "event.json", number=5)
        runner.environment = {**runner.environment, **github.variables}
        outputs = runner.run(grid="gate.toml", baseline="b.json", command="pytest")
    assert (outputs["verdict"], outputs["exit-code"]) == ("error", "2")
    assert runner.failed == ["Verdict"]
    (comment,) = github.comments.values()
    assert "ERROR: expected either the input 'grid' or the input 'command'" in comment["body"]
    assert not (runner.folder / "calls").exists()


def test_a_failed_installation_has_a_comment(runner: Runner) -> None:
    pip = runner.folder / "modules" / "pip" / "__main__.py"
    pip.write_text("import sys; print('/tmp/pip'); sys.exit('install' in sys.argv)")
    outputs = runner.run(grid="gate.toml", baseline="b.json")
    assert (
        outputs["headline"] == "ERROR: the installation has not succeeded; the log has the reason"
    )
    assert runner.failed == ["Install", "Verdict"]


def test_text_of_an_input_is_no_code_and_no_output(runner: Runner) -> None:
    hostile = '"; touch hacked; echo "$(touch hacked)`touch hacked`\nverdict=passed'
    outputs = runner.run(grid=hostile, baseline="b.json", history="")
    assert outputs["verdict"] == "passed"  # of the double
    assert not [*runner.folder.rglob("hacked")]
    calls = (runner.folder / "calls").read_text().splitlines()
    assert json.loads(calls[0])[1] == hostile


def test_a_name_of_an_artifact_is_checked_before_it_is_used(runner: Runner) -> None:
    runner.run(grid="gate.toml", baseline="b.json", name="a/../b")
    assert "'a/../b'; expected letters" in runner.log
    assert not (runner.folder / "calls").exists()


def test_the_action_needs_nothing_that_is_not_in_its_repository() -> None:
    scripts = {path.name for path in (ROOT / "action").glob("*.py")}
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = {word for word in text.replace('"', "/").split("/") if word.endswith(".py")}
    assert used | {"runner.py", "light.py"} == scripts  # which the scripts use
