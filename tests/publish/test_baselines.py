import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_trials import edit, write_one, write_scores

from esbench.cli.printing import print_baseline
from esbench.core.errors import UsageError
from esbench.publish.gate.check import check
from esbench.results.baselines import OWN_MEAN, freeze, read_baseline, write_baseline
from esbench.results.statistics.judgment import GateRules
from esbench.store.origin import CODE

Change = Callable[[Path], object]


def test_a_baseline_survives_the_file(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0, 200.0, math.nan])
    frozen = freeze(tmp_path / "out", "esbench baseline out")
    write_baseline(tmp_path / "deep" / "b.json", frozen)
    assert read_baseline(tmp_path / "deep" / "b.json") == frozen
    (cell,) = frozen.cells
    assert [(t.seed, t.score) for t in cell.trials] == [(0, 100.0), (1, 200.0), (2, None)]
    assert cell.trials[0].first_digests == ("0" * 64, "0" * 64)
    assert cell.trials[0].last_digest == "0" * 64
    assert cell.name == "openai_es on CartPole-v1"
    assert (cell.random_score, cell.reference_score) == (22.63, 500.0)  # of the environment's file
    assert [origin.hardware["cpu"] for origin in frozen.origins] == ["Test CPU"]


def test_a_baseline_names_the_statistics_of_later_checks(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0, 200.0])
    write_baseline(tmp_path / "b.json", freeze(tmp_path / "out", ""))
    content = json.loads((tmp_path / "b.json").read_text())
    assert content.pop("statistics") == ["mean", "ranks", "iqm"]
    for name, given, expected in (("old", {}, ("mean",)), ("own", ["iqm"], ("iqm",))):
        text = json.dumps(content | ({"statistics": given} if given else {}))
        (tmp_path / f"{name}.json").write_text(text)
        baseline = read_baseline(tmp_path / f"{name}.json")
        assert baseline.statistics == expected
        assert check(tmp_path / "out", baseline, GateRules()).rules.statistics == expected


def test_a_run_that_diverged_counts_as_the_worst_in_each_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scores(tmp_path / "out", [200.0, math.nan, math.nan, 200.0])
    write_scores(tmp_path / "other", [1.0], algorithms={"snes": {}})
    frozen = freeze(tmp_path / "out", "")
    print_baseline(frozen, tmp_path / "b.json", None)
    printed = capsys.readouterr().out
    assert "openai_es on CartPole-v1: 2 runs diverged, counted as the worst." in printed
    mean = (200.0 + 22.63) / 2
    assert "111.3" in printed
    for folder in ("out", "other"):  # measured or not
        (cell,) = check(tmp_path / folder, frozen, GateRules()).cells
        assert cell.baseline_scores.mean() == pytest.approx(mean)


def test_a_baseline_gives_the_specification_back(tmp_path: Path) -> None:
    trials = write_scores(tmp_path / "out", [100.0, 200.0])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.spec is not None
    assert "seed" not in cell.spec
    assert cell.to_cell(()).trial_spec(1) == trials[1].spec
    del cell.spec["algorithm"]["settings"]["weight_decay"]  # what it lacks has its default
    assert cell.to_cell(()).trial_spec(0).algorithm.settings.weight_decay == 0.005  # type: ignore


def test_without_frozen_numbers_random_actions_are_measured_and_the_mean_is_the_reference(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path / "out", [-1.0, -2.0], environments=["doubles:Walk-v0"])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.reference_score == -1.5
    assert cell.reference_source == OWN_MEAN
    assert math.isfinite(cell.random_score)
    assert cell.random_score != cell.reference_score


def test_a_run_of_mixed_versions_is_frozen_without_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scores(tmp_path, [100.0])
    first, *resumed = [{"versions": {CODE: f"sha256:{part}"}} for part in range(2)]
    edit(tmp_path, "trial.json", lambda content: content.update(**first, resumed_with=resumed))
    frozen = freeze(tmp_path, "")
    assert frozen.cells[0].trials[0].first_digests == ()
    print_baseline(frozen, tmp_path / "b.json", None)
    assert "openai_es on CartPole-v1: 1 seed without digests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda root: write_one(root, 9, "Traceback"),
            r"1 trial not done, .*seed-9 the first \(failed\)",
        ),
        (
            lambda root: edit(root, "result.json", lambda c: c.update(score=None)),
            "no seed has a finite score",
        ),
        (
            lambda root: edit(root, "trial.json", lambda c: c.update(own_code={"mine": "1"})),
            "different version of mine",
        ),
        (
            lambda root: edit(root, "trial.json", lambda c: c.update(own_code={"__main__": "1"})),
            "code that a script or a notebook defines, .*expected it in a file such as mine.py",
        ),
        (
            lambda root: write_scores(root, [100.0], algorithms={"openai_es": {"sigma": 0.4}}),
            "openai_es on CartPole-v1 is there 2 times",
        ),
    ],
    ids=[
        "not done",
        "diverged",
        "own code has changed",
        "script has changed",
        "two settings of one name",
    ],
)
def test_trials_that_cannot_be_judged_are_not_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, words: str
) -> None:
    monkeypatch.setattr(
        "esbench.results.baselines.changed_since", lambda c: list(c.get("own_code", ()))
    )
    write_scores(tmp_path / "a", [100.0, 101.0])
    change(tmp_path / "b" if "times" in words else tmp_path)
    with pytest.raises(UsageError, match=words):
        freeze(tmp_path, "")


@pytest.mark.parametrize("returns", [[-1.5, -1.5], [1.0, math.nan], [1.0, -math.inf]])
def test_a_range_is_positive_and_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: list[float]
) -> None:
    write_scores(tmp_path, [-1.5, -1.5], environments=["doubles:Walk-v0"])
    monkeypatch.setattr(
        "esbench.results.baselines.random_policy_returns", lambda *_, **__: np.array(returns)
    )
    with pytest.raises(UsageError, match="doubles:Walk-v0.*random actions"):
        freeze(tmp_path, "")


def test_a_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0])
    frozen = freeze(tmp_path / "out", "")
    path = tmp_path / "b.json"
    path.write_text("mine")
    with pytest.raises(UsageError, match="--replace"):
        write_baseline(path, frozen)
    assert path.read_text() == "mine"
    write_baseline(path, frozen, replace=True)
    assert read_baseline(path) == frozen


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content, cell: content.update(origins=[]), "origin"),
        (lambda content, cell: cell.update(random_score=500.0), "both score 500"),
        (lambda content, cell: content.update(cell=[]), "did you mean 'cells'"),
        (lambda content, cell: cell["trials"].extend(cell["trials"]), r"\[0, 0\].*once"),
        (lambda content, cell: content["cells"].append(cell), "2 times"),
        (lambda content, cell: content.update(statistics=["median"]), "median"),
        (lambda content, cell: cell.update(spec={}), "spec"),
        (lambda content, cell: content.update(format=99), "format 99; expected 1"),
        (lambda content, cell: content.pop("command"), "no baseline"),  # as of a check
    ],
)
def test_a_file_that_is_no_baseline_is_refused(
    tmp_path: Path, change: Callable[[Any, Any], object], words: str
) -> None:
    write_scores(tmp_path / "out", [100.0])
    content = freeze(tmp_path / "out", "").model_dump(mode="json")
    change(content, content["cells"][0])
    (tmp_path / "b.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=rf"\A[^\n]*b\.json[^\n]*{words}[^\n]*\Z"):
        read_baseline(tmp_path / "b.json")
