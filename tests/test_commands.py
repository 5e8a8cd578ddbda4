"""The commands as functions: the same numbers and figures as the command line's."""

import io
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from checkout import LEADERBOARD
from command_line import Run
from fake_trials import write_scores
from PIL import Image

import esbench as package
from esbench import GenerationRecord, Stop, UsageError
from esbench.publish.figures.write_figures import drawings

GRID = {
    "environments": ["doubles:Walk-v0"],
    "algorithms": {"openai_es": {"population_size": 8, "sigma": [0.1, 0.2]}},
    "seeds": [0, 1],
    "budget": {"env_steps": 300},
    "evaluation": {"episodes": 4},
    "policy": {"hidden": [4]},
}
CALLBACK = """
import esbench

def stop(record):
    return esbench.Stop("enough") if record.generation == 2 else None
"""


@pytest.fixture
def callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of callbacks, which other processes can import too."""
    (tmp_path / "stopping.py").write_text(CALLBACK)
    monkeypatch.syspath_prepend(tmp_path)
    return "stopping"


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Two environments, three algorithms, three seeds each."""
    root = tmp_path / "scores"
    for environment, factor in (("CartPole-v1", 100.0), ("Acrobot-v1", -50.0)):
        for algorithm, shift in (("openai_es", 1.0), ("snes", 1.1), ("cem", 1.6)):
            values = [factor * (shift + 0.1 * seed**2) for seed in range(3)]
            table = {"environments": [environment], "algorithms": {algorithm: {}}}
            write_scores(root, values, **table)
    return root


def test_a_grid_runs_as_on_the_command_line(tmp_path: Path, esbench: Run, callbacks: str) -> None:
    seen: list[GenerationRecord] = []

    def stop(record: GenerationRecord) -> Stop | None:
        seen.append(record)
        return Stop("enough") if record.generation == 2 else None

    found = package.run(GRID, out=tmp_path / "a", callback=stop, workers=0, quiet=True)
    assert found["status"].tolist() == ["done"] * 4
    assert found["generations"].tolist() == [2] * 4
    assert found["algorithm"].unique().tolist() == ["openai_es sigma=0.1", "openai_es sigma=0.2"]
    assert [record.generation for record in seen] == [1, 2] * 4
    rest: dict[str, Any] = {"seeds": 1, "workers": 0, "quiet": True}
    again = package.run(GRID, out=tmp_path / "a", track="tensorboard", **rest)
    assert len(list((tmp_path / "a" / "tensorboard").glob("*/*/seed-1/events.*"))) == 2
    assert again["trial"].tolist() == found["trial"][found["seed"] == 1].tolist()
    (tmp_path / "grid.toml").write_text(
        """environments = ["doubles:Walk-v0"]
        seeds = [0, 1]
        algorithms.openai_es = {population_size = 8, sigma = [0.1, 0.2]}
        budget.env_steps = 300
        evaluation.episodes = 4
        policy.hidden = [4]
        """
    )
    options = ["--callback", f"{callbacks}:stop", "--at-once", "2", "--workers", "2", "--quiet"]
    assert esbench("run", "grid.toml", "--out", "b", *options)[0] == 0
    here, there = (package.load_results(tmp_path / name) for name in "ab")
    assert here["digest"].tolist() == there["digest"].tolist()


def test_trials_that_fail_are_rows_too(tmp_path: Path) -> None:
    out, algorithms = tmp_path / "a", {"openai_es": {"population_size": 8}}
    frame = package.run({**GRID, "algorithms": algorithms}, out=out, trial_timeout=0.01, quiet=True)
    assert list(frame["status"]) == ["failed", "failed"]
    assert list(frame["seed"]) == [0, 1]
    assert frame["score"].isna().all()


def test_a_missing_score_of_random_actions_has_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"doubles:BadReward-v0": 1, "doubles:Walk-v0": 0}
    table = {**GRID, "environments": [*names], "seeds": [0]}
    package.run(table, out=tmp_path / "a", workers=0)
    out, err = capsys.readouterr()
    for name, warnings in names.items():
        assert out.count(f"playing random actions in {name}") == 1
        assert err.count(f"{name} has no score of random actions: ") == warnings
    package.run({**table, "seeds": [0, 1]}, out=tmp_path / "a", workers=0)
    assert "random actions in doubles:Walk-v0" not in capsys.readouterr().out  # its score is known


def test_a_function_has_no_name_for_trials_side_by_side(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="package.file:function"):
        package.run(GRID, out=tmp_path / "a", callback=print, at_once=2, workers=2)
    assert not (tmp_path / "a").exists()


def test_a_table_has_the_numbers_of_the_command(scores: Path, esbench: Run) -> None:
    expected = pd.read_csv(io.StringIO(esbench("table", str(scores), "--format", "csv")[1]))
    frame = package.table(scores)
    for column in frame.columns:
        texts = frame[column].dtype == object
        values = expected[column].fillna("") if texts else expected[column]
        pd.testing.assert_series_equal(frame[column], values, check_exact=True)
    assert (
        json.loads(esbench("table", str(scores), "--format", "json")[1])["footnotes"]
        == (frame.attrs["notes"])
    )


def test_a_comparison_has_the_numbers_of_the_command(scores: Path, esbench: Run) -> None:
    printed = esbench("compare", "snes", "cem", "--in", str(scores), "--format", "json")[1]
    frame, content = package.compare("snes", "cem", folder=scores), json.loads(printed)
    assert frame.attrs["outcome"] == content["outcome"]
    for row, pair in zip(frame.to_dict("records"), content["pairs"], strict=True):
        item = pair["comparison"]
        assert (row["environment"], row["p_value"]) == (pair["environment"], pair["p_value"])
        assert (row["a"], row["a_score"], row["a_seeds"]) == ("snes", item["first"], 3)
        assert (row["b"], row["b_score"], row["b_seeds"]) == ("cem", item["second"], 3)
        for key in ("difference", "improvement"):
            values = [row[name] for name in (key, f"{key}_low", f"{key}_high")]
            assert values == list(item[key].values())


def test_a_plot_is_one_figure_that_pyplot_does_not_know(scores: Path) -> None:
    before = plt.get_fignums()
    figure: Any = package.plot(scores, algorithms=["snes", "cem"])
    assert plt.get_fignums() == before
    parts = drawings(scores, ["snes", "cem"])
    assert set(parts) >= {"Acrobot-v1", "CartPole-v1", "ecdf", "profile"}
    single = [part.make() for part in parts.values()]
    assert figure.get_figheight() == pytest.approx(sum(one.get_figheight() for one in single))
    alone = [line for one in single for axes in one.axes for line in axes.lines]
    together = [line for axes in figure.axes for line in axes.lines]
    for first, second in zip(alone, together, strict=True):
        np.testing.assert_array_equal(first.get_xydata(), second.get_xydata())
    with Image.open(io.BytesIO(figure._repr_png_())) as image:
        assert image.format == "PNG"
        assert image.width / image.height == pytest.approx(
            figure.get_figwidth() / figure.get_figheight(), abs=0.01
        )


def test_functions_read_what_commands_print(scores: Path, tmp_path: Path, esbench: Run) -> None:
    def printed(*command: str) -> Any:
        return json.loads(esbench(*command, "--format", "json")[1])

    rows = printed("efficiency", str(scores), "--target", "120", "--window", "1")["rows"]
    frame = package.efficiency(scores, target="120", window=1)
    assert frame["reached"].tolist() == [row["reached"] for row in rows]
    levels = [trial["level"] for trial in printed("diagnose", str(scores))["trials"]]
    assert [each.level for each in package.diagnose(scores)] == levels
    assert package.report(scores, out=tmp_path / "report.html").stat().st_size > 10_000
    best = package.leaderboard(LEADERBOARD, env="Hopper-v5", best=True)
    rows = printed("leaderboard", str(LEADERBOARD), "--env", "Hopper-v5", "--best")["rows"]
    assert best["algorithm"].tolist() == [row["algorithm"] for row in rows]


def test_a_baseline_checks_the_scores_that_it_was_made_of(scores: Path, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    frozen = package.baseline(scores, out=file)
    assert {cell.algorithm for cell in frozen.cells} == {"cem", "openai_es", "snes"}
    report = package.check(scores, baseline=file, json=tmp_path / "checks" / "first.json")
    assert report.exit_code == 0
    assert len(package.history([tmp_path / "checks"], out=tmp_path).cells) == 6
    with pytest.raises(UsageError, match=r"baseline\.json"):
        package.baseline(scores, out=file)


def test_a_trained_grid_is_planned_shown_and_scored_again(tmp_path: Path) -> None:
    options: dict[str, Any] = {"seeds": 0, "out": tmp_path / "a"}
    specs = [trial.spec for trial in package.expand(GRID, seeds=0)]
    assert package.plan(GRID, **options).costs[0].env_steps >= 2 * 300
    package.run(GRID, **options, quiet=True)
    standings = package.status(GRID, **options)
    assert [each.status for each in standings] == ["done"] * 2
    assert [each.trial.spec for each in standings] == specs
    assert package.plan(GRID, **options).seconds == 0
    found = package.evaluate(tmp_path / "a", every=True)
    assert len(found) == 2
    assert all(score.identical for score in found.values())  # type: ignore[union-attr]
