from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
from command_line import Run, execute, working_in
from fake_trials import make_records, make_trials, write_scores, write_trial

from esbench.policies.base import POLICIES, Policy
from esbench.reporting.catalogue import example, settings_of
from esbench.settings import Settings

SMALL = [
    "--set", "algorithms.openai_es.population_size=4",
    "--set", "evaluation.episodes=3",
    "--env-steps", "60",
    "--workers", "1",
]  # fmt: skip


def small(environment: str = "doubles:Walk-v0", seeds: str = "0") -> list[str]:
    chosen = ["--env", environment, "--algorithm", "openai_es", "--seeds", seeds]
    return ["run", *chosen, *SMALL, "--out", "out"]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which one small trial was run."""
    folder = tmp_path_factory.mktemp("trained")
    with working_in(folder):
        assert execute(*small()) == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, esbench: Run, tmp_path: Path) -> Path:
    """Return the folder of one small trial, which a command has run in ``tmp_path``."""
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)
    (result,) = tmp_path.rglob("result.json")
    return result.parent


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_prints_the_table_and_the_figures(esbench: Run, tmp_path: Path) -> None:
    code, out, err = esbench(*small(seeds="0-2"))
    assert (code, err) == (0, "")
    assert out.count("done ") == 3
    assert "Environment" in out
    figures = [line for line in out.splitlines() if line.endswith((".png", ".svg"))]
    assert len(figures) == 2
    assert all((tmp_path / line).stat().st_size > 1000 for line in figures)


def test_plain_output_has_no_control_characters(esbench: Run) -> None:
    for extra in ([], ["--quiet"]):
        _, out, err = esbench(*small(), *extra)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out + err)


def test_quiet_is_one_line_a_trial(esbench: Run) -> None:
    _, out, _ = esbench(*small(seeds="0-1"), "--quiet")
    lines = out.split("\n\n")[0].splitlines()
    assert len(lines) == 2
    assert all(line.startswith("done  doubles:Walk-v0 openai_es seed") for line in lines)


def test_a_reader_that_leaves_early_is_no_failure_of_the_trial(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "esbench", *small("doubles:Slow-v0", "0-2")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""
    assert not list(tmp_path.rglob("error.txt"))


def test_running_again_skips(esbench: Run, trained: Path, tmp_path: Path) -> None:
    before = {p: c for p, c in files(tmp_path).items() if p.suffix in {".json", ".jsonl"}}
    code, out, _ = esbench(*small())
    assert code == 0
    assert out.startswith("skip  doubles:Walk-v0 openai_es seed 0")
    assert before == {p: c for p, c in files(tmp_path).items() if p.suffix in {".json", ".jsonl"}}


def test_a_failing_trial_does_not_stop_the_others(esbench: Run, tmp_path: Path) -> None:
    both = ["--env", "doubles:Raises-v0", "--env", "doubles:Walk-v0", "--algorithm", "openai_es"]
    arguments = ["run", *both, "--seeds", "0", *SMALL, "--out", "out", "--quiet"]
    code, out, err = esbench(*arguments)
    assert code == 1
    assert "Traceback" not in out + err
    assert "FAIL  doubles:Raises-v0 openai_es seed 0" in out
    assert "RuntimeError: the simulator fell over" in out
    assert "done  doubles:Walk-v0" in out
    assert "1 of 2 trials failed" in err
    (error,) = tmp_path.rglob("error.txt")
    assert 'raise RuntimeError("the simulator fell over")' in error.read_text()
    assert "doubles.py" in error.read_text()
    code, out, _ = esbench(*arguments)
    assert code == 1  # tried again
    assert "skip  doubles:Walk-v0" in out


def test_status_tells_the_five_states(esbench: Run, trained: Path, tmp_path: Path) -> None:
    words = small(seeds="0-1")[1:]
    del words[words.index("--workers") : words.index("--workers") + 2]
    status = ["status", *words]
    _, out, err = esbench(*status)
    assert err == ""
    assert "out: 1 done, 1 missing" in out
    (trained / "result.json").rename(tmp_path / "result")
    _, out, _ = esbench(*status)
    assert "out: 1 partial, 1 missing" in out
    (trained / "error.txt").write_text("Traceback\nValueError: oh [/no]\n")
    _, out, _ = esbench(*status)
    assert "1 failed" in out
    assert "ValueError: oh" in " ".join(out.split())
    assert "[/no]" in out


def test_plan_estimates_and_writes_nothing(esbench: Run, tmp_path: Path) -> None:
    code, out, _ = esbench("plan", "quick")
    assert code == 0
    assert "CartPole-v1" in out
    assert "About" in out
    assert not files(tmp_path)


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "json"])
def test_table_in_every_format(esbench: Run, trained: Path, form: str) -> None:
    code, out, err = esbench("table", "out", "--format", form)
    assert (code, err) == (0, "")
    assert "openai" in out
    if form == "json":
        assert json.loads(out)


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "json"])
def test_efficiency_in_every_format(esbench: Run, tmp_path: Path, form: str) -> None:
    write_scores(tmp_path / "out", [100.0, 200.0, 300.0])
    chosen = ["--target", "CartPole-v1=150", "--window", "1", "--format", form]
    code, out, err = esbench("efficiency", "out", *chosen)
    assert (code, err) == (0, "")
    if form == "json":
        (row,) = json.loads(out)["rows"]
        assert (row["reached"], row["runs"], row["target"]) == (2, 3, 150.0)
    else:
        assert "openai" in out
        assert ("2,3" if form == "csv" else "2 of 3") in out


def test_plot_into_a_folder_of_choice(esbench: Run, tmp_path: Path) -> None:
    esbench(*small(), "--env-steps", "300")
    _, out, _ = esbench("plot", "out", "--out", "pictures")
    assert len(out.splitlines()) == 2
    assert {path.suffix for path in (tmp_path / "pictures").iterdir()} == {".png", ".svg"}


def test_eval_gives_the_recorded_score_again(esbench: Run, trained: Path) -> None:
    code, out, _ = esbench("eval", str(trained), "--workers", "1")
    assert code == 0
    assert "identical to the recorded score" in out
    _, out, _ = esbench("eval", str(trained), "--episodes", "7", "--workers", "1")
    assert "over 7 episodes" in out
    assert "recorded" not in out
    result = trained / "result.json"
    tampered = json.loads(result.read_text()) | {"score": 1.0}
    result.write_text(json.dumps(tampered))
    code, out, _ = esbench("eval", str(trained), "--workers", "1")
    assert code == 1
    assert "DIFFERENT from the recorded score 1.0" in out


def test_diagnose_says_how_a_trial_is_and_which_of_several_is_worst(
    esbench: Run, tmp_path: Path
) -> None:
    young, sick, _ = make_trials(tmp_path / "out")
    write_trial(young, make_records([1.0, 2.0]))
    rows = make_records([9.0] * 12)
    same = {"population_return_min": 9.0, "population_return_max": 9.0}
    write_trial(sick, [dataclasses.replace(row, **same) for row in rows])
    code, out, err = esbench("diagnose", str(sick.folder.path))
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "12 generations, 1.2 k steps" in out
    assert re.search(r"center_return +9 +9 +9", out)
    told = " ".join(out.split())
    assert "All members have the same return in 100 % of generations, always 9" in told
    assert "Check that the reward depends on what the policy does" in told
    code, out, _ = esbench("diagnose", "out")
    assert code == 0
    assert out.index("seed 1") < out.index("seed 0")
    assert "2 generations are too few to judge" in " ".join(out.split())
    assert "2 trials: 1 warning, 1 ok" in out
    code, out, _ = esbench("diagnose", "out", "--format", "json")
    assert code == 0
    assert [trial["seed"] for trial in json.loads(out)["trials"]] == [1, 0]


def test_diagnose_wants_a_trial(esbench: Run, tmp_path: Path) -> None:
    code, out, err = esbench("diagnose", "nowhere")
    assert (code, out) == (2, "")
    assert err.startswith("esbench: no folder 'nowhere'")
    (trial, *_) = make_trials(tmp_path / "out")
    write_trial(trial)
    (trial.folder.path / "trial.json").write_text("{")
    code, _, err = esbench("diagnose", str(trial.folder.path))
    assert code == 2
    assert "is damaged" in err


def test_eval_of_random_actions_is_reproducible(esbench: Run) -> None:
    command = ["eval", "--random-policy", "CartPole-v1", "--episodes", "20"]
    first, again = esbench(*command)[1], esbench(*command)[1]
    assert first == again
    assert "CartPole-v1, random actions: mean 2" in first
    assert esbench(*command, "--seed", "1")[1] != first


def test_bench_prints_both(esbench: Run) -> None:
    command = ["bench", "--env", "CartPole-v1", "--workers", "1", "--seconds", "0.2"]
    code, out, err = esbench(*command, "--rounds", "1", "--population", "8")
    assert (code, err) == (0, "")
    assert "backend cartpole" in out
    assert "median" in out


def test_list_names_everything(esbench: Run) -> None:
    _, out, _ = esbench("list")
    words = ["openai_es", "random_search", "HalfCheetah-v5", "mlp", "gymnasium", "quick"]
    for word in [*words, "final_observation", "Salimans et al. 2017, arXiv:1703.03864"]:
        assert word in out
    assert "openai_es" in esbench("list", "algorithms")[1]


def column(table: str, heading: str) -> str:
    """Return the text of a printed table from ``heading`` to the right, in one line."""
    lines = table.splitlines()
    start = next(line.index(heading) for line in lines if heading in line)
    return " ".join(" ".join(line[start:] for line in lines).split())


@pytest.mark.parametrize(
    "words", [["algorithms", "openai_es"], ["policies", "mlp"], ["policies", "module"]]
)
def test_settings_are_listed_within_80_columns(
    esbench: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    kind, name = words
    code, out, err = esbench("list", kind, "--settings", name)
    assert (code, err) == (0, "")
    table, _, below = out.partition("Set it on")
    assert all(len(line) <= 80 for line in table.splitlines())
    text = column(table, "type, range and unit; meaning")
    for row in settings_of(kind, name):
        start = rf"^ {re.escape(row.name)} +{re.escape(row.default)} +{re.escape(row.type[:10])}"
        assert re.search(start, table, re.MULTILINE), row
        unit = row.unit and f" [{row.unit}]"
        assert f"{row.type}{unit} {row.meaning}" in text
    assert example(kind, name, settings_of(kind, name)) in below
    assert esbench("list", "--settings", name) == (code, out, err)


class ManySettings(Settings):
    weights: tuple[float, ...] = tuple(k / 7 for k in range(1, 12))
    """Meaning of many."""

    pair: tuple[float, float] = (0.9, 0.999)
    """Meaning of two."""


@pytest.mark.parametrize("columns", [40, 50, 80])
def test_names_and_short_defaults_never_break(
    esbench: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = esbench("list", "policies", "--settings", "mlp")[1]
    for row in settings_of("policies", "mlp"):
        assert re.search(rf"^ {row.name} +{re.escape(row.default)} ", out, re.MULTILINE)
    listed = esbench("list", "environments")[1]
    assert "\n InvertedDoublePendulum-v5   " in listed


def test_a_long_default_breaks_between_its_items_and_leaves_the_meaning_room(
    esbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    many = type("Many", (Policy,), {"Settings": ManySettings})
    monkeypatch.setattr(POLICIES, "_classes", {**POLICIES._classes, "many": many})
    out = esbench("list", "--settings", "many")[1]
    assert "Meaning of many." in out
    for number in ManySettings().weights:
        assert repr(number) in out


def test_what_has_no_settings_to_list(esbench: Run) -> None:
    code, out, _ = esbench("list", "--settings", "final_observation")
    assert (code, out) == (0, "final_observation has no settings\n")
    for arguments, words in (
        (["grids", "--settings", "quick"], "grids have no --settings; only algorithms, policies"),
        (["algorithms", "--settings", "openaies"], "unknown algorithm 'openaies'; did you mean"),
        (["--settings", "mpl"], "unknown algorithm, policy or behavior 'mpl'; did you mean 'mlp'"),
    ):
        code, out, err = esbench("list", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"esbench: {words}")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "command", ["list", "run", "plan", "status", "table", "plot", "eval", "render", "bench"]
)
def test_every_help_has_an_example(esbench: Run, command: str) -> None:
    _, out, _ = esbench(command, "--help")
    assert re.search(rf"Examples?:\s+esbench {command}", out)


def test_version(esbench: Run) -> None:
    assert re.fullmatch(r"esbench \d+\.\d+\.\d+\n", esbench("--version")[1])


SPACES = {
    "dict": ('{observation="dict"}', "Dict space"),
    "tuple": ('{observation="tuple"}', "Tuple space"),
    "images": ('{observation="infinite_images"}', "images (8, 8, 3) with infinite bounds"),
    "action": ('{action="multi"}', "MultiDiscrete space"),
}


@pytest.mark.parametrize(("kwargs", "words"), SPACES.values(), ids=SPACES)
def test_spaces_that_cannot_be_served(
    esbench: Run, tmp_path: Path, kwargs: str, words: str
) -> None:
    name = "doubles:Spaces-v0"
    code, _, err = esbench(*small(name), "--set", f'environment."{name}".kwargs={kwargs}')
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert not files(tmp_path)


gymnasium.register("Missing-v0", entry_point="a_library_nobody_has:Env")
CANNOT_BE_MADE = {
    # One trial is checked in this process, which is the one that knows the name.
    "run": "run --env Missing-v0 --algorithm openai_es --seeds 0 --out out",
    "plan": "plan --env Missing-v0 --algorithm openai_es --out out",
    "eval": "eval --random-policy Missing-v0",
    "bench": "bench --env Missing-v0",
}


@pytest.mark.parametrize("command", CANNOT_BE_MADE.values(), ids=CANNOT_BE_MADE)
def test_an_environment_that_cannot_be_made(esbench: Run, tmp_path: Path, command: str) -> None:
    code, out, err = esbench(*command.split())
    assert (code, out) == (2, "")
    assert re.fullmatch(r"esbench: .*'Missing-v0'.*'a_library_nobody_has'.*\n", err)
    assert not files(tmp_path)


def test_images_of_atari_games_are_refused_in_words(esbench: Run, tmp_path: Path) -> None:
    code, _, err = esbench(*small("ALE/Pong-v5"))
    assert code == 2
    assert re.fullmatch(r"esbench: ALE/Pong-v5: .*images.*\n", err)
    assert not files(tmp_path)


BAD_NUMBERS = {
    "rounds": (["bench", "--rounds", "0"], "rounds = 0: expected at least 1"),
    "seconds": (["bench", "--seconds", "0"], "seconds = 0.0: expected a number above 0"),
    "population": (["bench", "--population", "3"], "population_size = 3: expected an even number"),
    "episodes": (["eval", "--random-policy", "CartPole-v1", "--episodes", "0"], "episodes = 0"),
    "seed": (["eval", "--random-policy", "CartPole-v1", "--seed", "-1"], "seed = -1: expected"),
}


@pytest.mark.parametrize(("command", "words"), BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_bad_numbers_are_one_sentence(esbench: Run, command: list[str], words: str) -> None:
    code, out, err = esbench(*command)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


BAD_COMMANDS = {
    "algorithm": (["--algorithm", "openai"], "unknown algorithm 'openai'"),
    "environment": (["--env", "CartPole-v7"], "unknown environment 'CartPole-v7'; did you mean"),
    "environment module": (["--env", "nowhere:X-v0"], "cannot import 'nowhere'"),
    "policy": (["--set", "policy.template=mpl"], "unknown policy template 'mpl'"),
    "policy module": (["--set", "policy.template=nowhere:Net"], "cannot import 'nowhere'"),
    "key": (["--set", "bugdet.env_steps=3"], "unknown key bugdet"),
    "odd population": (["--set", "algorithms.openai_es.population_size=5"], "even number"),
    "negative": (["--set", "algorithms.openai_es.population_size=-4"], "population_size = -4"),
    "optimizer": (["--set", "algorithms.openai_es.optimizer=adm"], "unknown optimizer 'adm'"),
    "optimizer setting": (
        ["--set", "algorithms.openai_es.optimizer_settings.beta=1"],
        "optimizer adam: unknown key beta (= 1); did you mean 'betas'",
    ),
    "no seeds": (["--set", "seeds=[]"], "seeds = []"),
    "seed twice": (["--set", "seeds=[4, 4]"], "4 is given 2 times"),
    "seeds": (["--seeds", "x"], "--seeds 'x': expected seeds such as"),
    "workers": (["--workers", "0"], "workers = 0: expected at least 1"),
    "steps": (["--env-steps", "0"], "budget.env_steps = 0"),
    "set": (["--set", "nonsense"], "expected key.sub=value"),
    "not a folder": (["--out", "/dev/null/out"], "cannot write /dev/null/out"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_COMMANDS.values(), ids=BAD_COMMANDS)
def test_bad_input_is_one_message_and_nothing_is_written(
    esbench: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    base = ["run", "--seeds", "0", "--env-steps", "60", "--workers", "1", "--out", "out"]
    chosen = {"--env": "doubles:Walk-v0", "--algorithm": "openai_es"}
    for option, value in chosen.items():
        base += [] if option in arguments else [option, value]
    code, out, err = esbench(*base, *arguments)
    assert code == 2
    assert words in err
    assert err.startswith("esbench: ")
    assert "Traceback" not in out + err
    assert not files(tmp_path)


def test_a_file_that_does_not_parse(esbench: Run, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text("seeds = [1,, 2]")
    code, _, err = esbench("run", "grid.toml")
    assert code == 2
    assert "grid.toml: not valid TOML" in err


def test_an_edited_grid_and_a_newer_folder_change_nothing(
    esbench: Run, trained: Path, tmp_path: Path
) -> None:
    before = files(tmp_path)
    code, _, err = esbench(*small(), "--set", "algorithms.openai_es.sigma=0.7")
    assert code == 2
    assert "algorithm.settings.sigma was 0.02, is now 0.7" in err
    assert files(tmp_path) == before
    path = trained / "trial.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    before = files(tmp_path)
    for command in (small(), ["table", "out"], ["plot", "out"], ["eval", str(trained)]):
        code, _, err = esbench(*command)
        assert code == 2
        assert "seed-0 was written in trial format 3" in err
    assert files(tmp_path) == before


@pytest.mark.parametrize("command", ["table", "plot", "eval"])
def test_a_folder_without_trials(esbench: Run, command: str) -> None:
    code, _, err = esbench(command, "nowhere")
    assert code == 2
    assert "nowhere" in err
    assert "Traceback" not in err


def test_eval_wants_one_thing(esbench: Run) -> None:
    for arguments in ([], ["somewhere", "--random-policy", "CartPole-v1"]):
        code, _, err = esbench("eval", *arguments)
        assert code == 2
        assert "expected either a trial's folder or --random-policy" in err
    assert esbench("eval", "--random-policy", "CartPole-v9")[0] == 2
    assert esbench("eval", "--random-policy", "CartPole-v1", "--episodes", "0")[0] == 2


def test_a_full_disk_stops_with_one_message_and_the_run_goes_on_later(
    esbench: Run, tmp_path: Path
) -> None:
    """The limit is the operating system's own, on the size of any file the process writes."""
    script = tmp_path / "script.py"
    script.write_text(
        'if __name__ == "__main__":\n'
        "    import resource, sys\n"
        "    from esbench.cli import main\n"
        "    size = int(sys.argv.pop(1))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "    main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # it would be cut off as well, and then read
    arguments = [*small(), "--env-steps", "2000"]
    for size in (1000, 4000, 7000):  # trial.json, then rows, then the checkpoint do not fit
        command = [sys.executable, str(script), str(size), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert re.match(r"esbench: cannot write .*File too large", done.stderr)
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.rglob("*.tmp"))
    assert esbench(*arguments)[0] == 0


def test_a_damaged_trial_fails_alone_and_says_what_to_remove(esbench: Run, trained: Path) -> None:
    (trained / "trial.json").write_text("{}")
    code, out, err = esbench(*small(seeds="0-1"), "--quiet")
    assert code == 1
    assert "FAIL  doubles:Walk-v0 openai_es seed 0" in out
    assert "done  doubles:Walk-v0 openai_es seed 1" in out
    assert "trial.json" in err
    assert "Traceback" not in out + err
    words = [word for word in small(seeds="0-1")[1:] if word not in {"--workers", "1"}]
    assert "1 done" in esbench("status", *words)[1]


def test_a_score_that_is_not_finite_is_shown_and_stops_nothing(esbench: Run) -> None:
    name = "doubles:BadReward-v0"
    arguments = small(name, seeds="0-1")
    assert esbench(*arguments, "--quiet")[0] == 0
    code, out, err = esbench(*arguments, "--quiet")
    assert (code, err) == (0, "")
    assert out.count("held-out episodes not finite") == 2


def test_settings_of_an_algorithm_that_is_not_in_the_grid_are_refused(esbench: Run) -> None:
    run = ["plan", "--env", "CartPole-v1", "--algorithm", "snes", "--env-steps", "1000"]
    code, _, err = esbench(*run, "--set", "algorithms.sness.sigma=1")
    assert code == 2
    assert re.fullmatch(r"esbench: algorithms\.sness .* did you mean 'snes'\?\n", err)
    code, _, err = esbench("plan", "quick", "--set", "algorithms.snes.sigma=1")  # a list
    assert code == 2
    assert re.fullmatch(r"esbench: algorithms\.snes .* known: openai_es, random_search\n", err)


def test_algorithms_that_take_the_place_of_the_grids_own_can_be_set(esbench: Run) -> None:
    run = ["plan", "quick", "--env-steps", "1000", "--set", 'algorithms=["snes"]']
    code, _, err = esbench(*run, "--set", "algorithms.snes.population_size=10")
    assert (code, err) == (0, "")
    code, _, err = esbench(*run, "--set", "algorithms.openai_es.population_size=10")
    assert (code, "openai_es (--set) is not in this grid" in err) == (2, True)


def test_a_grid_without_algorithms_gets_those_that_are_set(esbench: Run, tmp_path: Path) -> None:
    (tmp_path / "bare.toml").write_text('environments = ["CartPole-v1"]\n')
    settings = ["algorithms.snes.sigma=0.1", "algorithms.openai_es.sigma=0.1"]
    options = [word for setting in settings for word in ("--set", setting)]
    code, out, _ = esbench("plan", "bare.toml", "--seeds", "0-2", *options)
    assert (code, re.search(r"CartPole-v1 +6", out) is not None) == (0, True)


def test_an_output_folder_that_is_a_file_is_refused_at_once(esbench: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    code, _, err = esbench(*small())
    assert (code, err.startswith("esbench: out is a file")) == (2, True)
    assert (tmp_path / "out").read_text() == "mine"


def test_an_output_folder_that_cannot_be_is_one_sentence(esbench: Run) -> None:
    name = "x" * 300
    code, _, err = esbench(*small()[:-1], name)
    assert (code, err.startswith(f"esbench: {name}: File name too long")) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["table", "--format", "csv"], ["table"]])
def test_a_full_disk_behind_the_output_is_one_sentence(
    tmp_path: Path, arguments: list[str]
) -> None:
    write_scores(tmp_path / "out", [1.0, 2.0, 3.0])
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "esbench", *arguments, "out"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "esbench: cannot print: No space left on device\n"
