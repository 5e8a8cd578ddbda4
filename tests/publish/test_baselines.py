import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_trials import edit, make_trials, write_scores, write_trial

from esbench.cli.printing import print_baseline
from esbench.core.errors import UsageError
from esbench.publish.gate.baselines import OWN_MEAN, freeze, read_baseline, write_baseline
from esbench.publish.gate.check import check
from esbench.results.statistics.judgment import GateRules


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
    assert cell.span == pytest.approx(477.37)
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
    (tmp_path / "bad.json").write_text(json.dumps(content | {"statistics": ["median"]}))
    with pytest.raises(UsageError, match="median"):
        read_baseline(tmp_path / "bad.json")


def test_a_run_that_diverged_counts_as_the_worst_in_each_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scores(tmp_path / "out", [200.0, math.nan, math.nan, 200.0])
    write_scores(tmp_path / "other", [1.0], algorithms={"snes": {}})
    frozen = freeze(tmp_path / "out", "")
    print_baseline(frozen, tmp_path / "b.json")
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
    assert cell.trial_spec(1) == trials[1].spec
    del cell.spec["algorithm"]["settings"]["weight_decay"]  # what it lacks has its default
    assert cell.trial_spec(0).algorithm.settings.model_dump()["weight_decay"] == 0.005
    with pytest.raises(UsageError, match="was not trained by esbench"):
        cell.model_copy(update={"spec": None}).trial_spec(0)


def test_without_frozen_numbers_random_actions_are_measured_and_the_mean_is_the_reference(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path / "out", [-1.0, -2.0], environments=["doubles:Walk-v0"])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.reference_score == -1.5
    assert cell.reference_source == OWN_MEAN
    assert 0 < cell.span < math.inf


def test_what_cannot_be_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (trial,) = make_trials(tmp_path / "undone", seeds=[7])
    write_trial(trial, error="Traceback")
    with pytest.raises(UsageError, match=r"1 trial not done, .*seed-7 the first \(failed\)"):
        freeze(tmp_path / "undone", "")
    write_scores(tmp_path / "nan", [math.nan, math.nan])
    with pytest.raises(UsageError, match="no seed has a finite score"):
        freeze(tmp_path / "nan", "")
    write_scores(tmp_path / "empty", [-1.5, -1.5], environments=["doubles:Walk-v0"])
    monkeypatch.setattr("esbench.publish.gate.baselines._measured_random", lambda spec: -1.5)
    with pytest.raises(UsageError, match=r"are both -1.5, so no drop can be measured"):
        freeze(tmp_path / "empty", "")
    monkeypatch.undo()
    for returns in ([1.0, math.nan], [1.0, -math.inf]):
        found = np.array(returns)
        monkeypatch.setattr(
            "esbench.publish.gate.baselines.random_policy_returns", lambda *_, r=found, **__: r
        )
        with pytest.raises(UsageError, match=r"doubles:Walk-v0.*random actions"):
            freeze(tmp_path / "empty", "")


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


def test_hand_made_nonsense_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_scores(tmp_path / "out", [100.0])
    content = freeze(tmp_path / "out", "").model_dump(mode="json")

    def refused(message: str, **changes: Any) -> None:
        path.write_text(json.dumps(content | changes))
        with pytest.raises(UsageError, match=message):
            read_baseline(path)

    (cell,) = content["cells"]
    refused("seed 0 has origin 0, of 0", origins=[])
    refused("random_score and reference_score are both 5", cells=[
        cell | {"random_score": 5.0, "reference_score": 5.0}
    ])  # fmt: skip
    refused(r"cells = \[\]: expected", cells=[])
    refused(r"unknown key cell .*did you mean 'cells'", cell=[])
    negative = [trial | {"origin": -1} for trial in cell["trials"]]
    twice = [{**cell["trials"][0]} for _ in range(2)]
    refused("seeds 0, 0; expected each once", cells=[cell | {"trials": twice}])
    refused("has openai_es on CartPole-v1 2 times", cells=[cell, cell])
    refused(r"\A[^\n]*random_score = [^\n]*\Z", cells=[cell | {"random_score": "x"}])
    refused("origin = -1: expected", cells=[cell | {"trials": negative}])
    for spec in ({}, cell["spec"] | {"algorithm": "snes"}, cell["spec"] | {"budget": {}}):
        refused(r"\A[^\n]*spec[^\n]*\Z", cells=[cell | {"spec": spec}])


def test_a_trial_resumed_under_other_versions_is_frozen_without_digests(tmp_path: Path) -> None:
    write_scores(tmp_path, [100.0])
    resumed = [{"versions": {"numpy": "0"}}]
    edit(tmp_path, "trial.json", lambda content: content.update(resumed_with=resumed))
    assert freeze(tmp_path, "").cells[0].trials[0].first_digests == ()
    edit(tmp_path, "trial.json", lambda content: content.update(hardware="big"))
    with pytest.raises(UsageError, match="trial.json is damaged .*hardware"):
        freeze(tmp_path, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "no baseline"),
        ('{"rows": []}', "no baseline"),
        ('{"format": 2, "spec": {}}', "no baseline"),
        ('{"format": 99}', "format 99; expected 1"),
        ('{"format": 1}', "created is missing"),
        ('{"format": 1, "exit_code": 0, "cells": []}', "check --json"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"b\.json.*{message}"):
        read_baseline(path)
