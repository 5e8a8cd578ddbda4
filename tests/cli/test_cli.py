import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from command_line import Run, execute, files, finished, working_in
from fake_trials import edit, learning, make_records, make_trials, write_scores, write_trial

from esbench.grids.compose import compose_grid

SMALL = [
    "--set", "algorithms.openai_es.population_size=4",
    "--set", "evaluation.episodes=3",
    "--env-steps", "60",
    "--workers", "0",
]  # fmt: skip
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def small(seeds: str = "0") -> list[str]:
    chosen = ["--env", "doubles:Walk-v0", "--algorithm", "openai_es", "--seeds", seeds]
    return ["run", *chosen, *SMALL, "--out", "out"]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_a_run_prints_the_table_and_the_figures(esbench: Run, tmp_path: Path) -> None:
    code, out, err = esbench(*small(seeds="0-2"))
    assert (code, err) == (0, "")
    assert out.count("done ") == 3
    assert not CONTROL.search(out)
    assert "Environment" in out
    figures = [line for line in out.splitlines() if line.endswith((".png", ".svg"))]
    assert len(figures) == 2
    assert all((tmp_path / line).stat().st_size > 1000 for line in figures)


def test_a_failing_trial_does_not_stop_the_others(esbench: Run, tmp_path: Path) -> None:
    both = ["--env", "doubles:Raises-v0", "--env", "doubles:Walk-v0", "--algorithm", "openai_es"]
    arguments = ["run", *both, "--seeds", "0", *SMALL, "--out", "out", "--quiet"]
    code, out, err = esbench(*arguments)
    assert code == 1
    assert "Traceback" not in out + err
    assert not CONTROL.search(out + err)
    assert len(out.split("\n\n")[0].splitlines()) == 2  # quiet: one line per trial
    assert "FAIL  doubles:Raises-v0 openai_es seed 0" in out
    assert "RuntimeError: the simulator fell over" in out
    assert "done  doubles:Walk-v0" in out
    assert "1 of 2 trials failed" in err
    (error,) = tmp_path.rglob("error.txt")
    assert "raise self.error" in error.read_text()
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
    code, out, _ = esbench("plan", "quick", "--env", "CartPole-v1", "--algorithm", "openai_es")
    assert code == 0
    assert "CartPole-v1" in out
    assert "About" in out
    assert not files(tmp_path)


def test_plot_into_a_folder_of_choice(esbench: Run, tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0])
    _, out, _ = esbench("plot", "out", "--out", "pictures", "--algorithms", "openai_es")
    drawn = {tmp_path / line for line in out.splitlines()}
    assert drawn == set((tmp_path / "pictures").iterdir())
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    _, out, _ = esbench("plot", "out", "--format", "pdf", "--size", "7x3")
    assert {Path(line).suffix for line in out.splitlines()} == {".pdf"}


def test_eval_gives_the_recorded_score_again(esbench: Run, trained: Path) -> None:
    code, out, _ = esbench("eval", str(trained), "--workers", "0")
    assert code == 0
    assert "identical to the recorded score" in out
    _, out, _ = esbench("eval", str(trained), "--episodes", "7", "--workers", "0")
    assert "over 7 episodes" in out
    assert "recorded" not in out
    edit(trained, "result.json", lambda content: content.update(score=1.0))
    code, out, _ = esbench("eval", str(trained), "--workers", "0")
    assert code == 1
    assert "DIFFERENT from the recorded score 1.0" in out


def test_diagnose_says_how_a_trial_is_and_which_of_several_is_worst(
    esbench: Run, tmp_path: Path
) -> None:
    young, sick, well = make_trials(tmp_path / "out")
    write_trial(young, make_records([1.0, 2.0]))
    same = {"population_return_min": 9.0, "population_return_max": 9.0}
    write_trial(sick, [dataclasses.replace(row, **same) for row in make_records([9.0] * 12)])
    write_trial(well, make_records(learning(20, 100.0, seed=0)))
    code, out, err = esbench("diagnose", str(sick.folder.path))
    assert (code, err) == (0, "")
    assert "12 generations, 1.2 k steps" in out
    advice = "Check that the reward depends on what the policy does"
    assert advice in " ".join(out.split())
    code, out, _ = esbench("diagnose", "out")
    assert code == 0
    assert out.index("seed 1") < out.index("seed 0")
    assert "3 trials: 1 warning, 1 note, 1 ok" in out
    assert f"For 1 trial: {advice}" in " ".join(out.split())


def test_eval_counts_episodes_without_a_finite_return(esbench: Run) -> None:
    bad = "doubles:BadReward-v0"
    code, out, _ = esbench("eval", "--random-policy", bad, "--episodes", "20")
    assert code == 0
    assert "of 20 episodes not finite" in out
    run = ["run", "--env", bad, "--algorithm", "openai_es", "--seeds", "0", "--env-steps", "200"]
    esbench(*run, "--out", "out", "--workers", "0", "--quiet", "--set", "evaluation.episodes=12")
    code, out, err = esbench("eval", "out", "--all", "--workers", "0")
    assert (code, err) == (0, "")
    assert "of 12 episodes not finite" in out
    assert "identical to the recorded score" in out


def test_list_names_everything(esbench: Run) -> None:
    assert esbench("list", "--settings", "final_observation")[1].endswith("has no settings\n")
    _, out, _ = esbench("list")
    words = ["openai_es", "random_search", "HalfCheetah-v5", "mlp", "gymnasium", "quick"]
    for word in [*words, "final_observation", "Salimans et al. 2017, arXiv:1703.03864"]:
        assert word in out


def test_settings_of_a_class_of_ones_own_are_listed(esbench: Run, tmp_path: Path) -> None:
    code, out, err = esbench("list", "--settings", "own_search:Mine")
    assert (code, err) == (0, "")
    table, _, below = out.partition("Set it on")
    # Mine has the settings of another algorithm.
    assert table == esbench("list", "--settings", "openai_es")[1].partition("Set it on")[0]
    written = below[below.index("\n[algorithms") :]
    (tmp_path / "grid.toml").write_text(f"environments = ['CartPole-v1']{written}")
    assert list(compose_grid(f"{tmp_path}/grid.toml")[0].algorithms) == ["own_search:Mine"]
    assert "scale" in esbench("list", "--settings", "maze:Reach")[1]


def test_every_help_has_an_example(esbench: Run) -> None:
    _, listed, _ = esbench("--help")
    commands = re.findall(r"^. (\w+)  ", listed, re.MULTILINE)
    assert len(commands) == 25
    for command in commands:
        assert re.search(rf"Examples?:\s+esbench {command}", esbench(command, "--help")[1])


def test_a_full_disk_stops_with_one_message_and_the_run_goes_on_later(
    esbench: Run, tmp_path: Path
) -> None:
    """The limit is the operating system's own, on the size of any file the process writes."""
    (tmp_path / "script.py").write_text(
        'if __name__ == "__main__":\n'
        "    import resource\n"
        "    from esbench.cli import main\n"
        "    for size in (1000, 60_000):\n"  # trial.json, the checkpoint do not fit
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "        try:\n"
        "            main()\n"
        "        except SystemExit as end:\n"
        "            assert end.code == 2\n"
    )
    no_bytecode = {"PYTHONDONTWRITEBYTECODE": "1"}  # it would be cut off as well, and then read
    arguments = [{"60": "2000"}.get(word, word) for word in small()]
    code, _, err = finished("script.py", *arguments, env=no_bytecode)
    assert code == 0, err
    stopped = re.findall(r"^esbench: cannot write .*/(.*): File too large", err, re.M)
    assert len(stopped) == len(set(stopped)) == 2
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.tmp"))
    assert esbench(*arguments)[0] == 0


def test_an_option_with_one_value_is_given_once(esbench: Run) -> None:
    code, out, error = esbench("plan", "quick", "--seeds", "0", "--env", "a", "--seeds", "1")
    assert (code, out) == (2, "")
    assert "--seeds" in error
    # These can be repeated.
    code, out, error = esbench("status", "quick", "--env", "CartPole-v1", "--env", "Swimmer-v5")
    assert (code, error) == (0, "")
    assert {"CartPole-v1", "Swimmer-v5"} <= {*out.split()}
