from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from fake_trials import make_trials, write_scores, write_trial

from esbench.errors import UsageError
from esbench.gate.baselines import OWN_MEAN, Baseline, freeze, read_baseline, write_baseline


def test_a_baseline_survives_the_file(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0, 200.0, math.nan])
    frozen = freeze(tmp_path / "out", "esbench baseline out")
    write_baseline(tmp_path / "deep" / "b.json", frozen)
    assert read_baseline(tmp_path / "deep" / "b.json") == frozen
    (cell,) = frozen.cells
    assert [trial.score for trial in cell.trials] == [100.0, 200.0, None]
    assert [trial.seed for trial in cell.trials] == [0, 1, 2]
    assert cell.trials[0].first_digests == ("0" * 64, "0" * 64)
    assert cell.trials[0].last_digest == "0" * 64
    assert cell.name == "openai_es on CartPole-v1"
    assert (cell.random_score, cell.reference_score) == (22.63, 500.0)  # of the environment's file
    assert cell.span == pytest.approx(477.37)
    assert len(frozen.origins) == 1
    assert frozen.origins[0].hardware["cpu"] == "Test CPU"


def test_a_baseline_gives_the_specification_back(tmp_path: Path) -> None:
    trials = write_scores(tmp_path / "out", [100.0, 200.0])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.spec is not None
    assert "seed" not in cell.spec
    assert cell.trial_spec(1) == trials[1].spec


def test_a_setting_that_a_baseline_lacks_has_its_default(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.spec is not None
    del cell.spec["algorithm"]["settings"]["weight_decay"]
    restored = cell.trial_spec(0).algorithm.settings
    assert restored.model_dump()["weight_decay"] == 0.005


def test_without_frozen_numbers_random_actions_are_measured_and_the_mean_is_the_reference(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path / "out", [-1.0, -2.0], environments=["doubles:Walk-v0"])
    (cell,) = freeze(tmp_path / "out", "").cells
    assert cell.reference_score == -1.5
    assert cell.reference_source == OWN_MEAN
    assert math.isfinite(cell.random_score)
    assert cell.span > 0


def test_what_is_not_done_is_not_frozen(tmp_path: Path) -> None:
    write_scores(tmp_path, [100.0, 200.0])
    (trial,) = make_trials(tmp_path, seeds=[7])
    write_trial(trial, error="Traceback")
    with pytest.raises(UsageError, match=r"1 trial not done, .*seed-7 the first \(failed\)"):
        freeze(tmp_path, "")


def test_a_cell_that_only_diverged_is_not_frozen(tmp_path: Path) -> None:
    write_scores(tmp_path, [math.nan, math.nan])
    with pytest.raises(UsageError, match="no seed has a finite score"):
        freeze(tmp_path, "")


def test_an_empty_range_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_scores(tmp_path, [-1.5, -1.5], environments=["doubles:Walk-v0"])
    monkeypatch.setattr("esbench.gate.baselines._measured_random", lambda spec: -1.5)
    with pytest.raises(UsageError, match=r"are both -1.5, so no drop can be measured"):
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


def edited(tmp_path: Path, **changes: Any) -> Path:
    write_scores(tmp_path / "out", [100.0])
    content = freeze(tmp_path / "out", "").model_dump(mode="json") | changes
    path = tmp_path / "b.json"
    path.write_text(json.dumps(content))
    return path


def test_hand_made_nonsense_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path)
    content = json.loads(path.read_text())

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
    negative = [trial | {"origin": -1} for trial in cell["trials"]]
    refused("origin = -1: expected", cells=[cell | {"trials": negative}])


def test_a_trial_that_was_resumed_under_other_versions_is_frozen_without_digests(
    tmp_path: Path,
) -> None:
    write_scores(tmp_path, [100.0])
    path = next(tmp_path.rglob("trial.json"))
    content = json.loads(path.read_text())
    content["resumed_with"] = [{"versions": {"numpy": "0"}}]
    path.write_text(json.dumps(content))
    assert freeze(tmp_path, "").cells[0].trials[0].first_digests == ()


def test_a_trial_whose_description_was_edited_is_refused(tmp_path: Path) -> None:
    write_scores(tmp_path, [100.0])
    path = next(tmp_path.rglob("trial.json"))
    content = json.loads(path.read_text()) | {"hardware": "big"}
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="trial.json is damaged .it has no valid 'hardware'"):
        freeze(tmp_path, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "not a baseline"),
        ('{"rows": []}', "not a baseline"),
        ('{"format": 99}', "format 99; expected 1"),
        ('{"format": 1}', "created is missing"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_baseline(path)


def test_a_missing_file_and_an_unknown_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file .*expected one of 'esbench baseline'"):
        read_baseline(tmp_path / "b.json")
    with pytest.raises(UsageError, match=r"unknown key cell .*did you mean 'cells'"):
        read_baseline(edited(tmp_path, cell=[]))


def test_a_cell_that_esbench_did_not_train_has_no_specification(tmp_path: Path) -> None:
    write_scores(tmp_path / "out", [100.0])
    frozen: Baseline = freeze(tmp_path / "out", "")
    cell = frozen.cells[0].model_copy(update={"spec": None})
    with pytest.raises(UsageError, match="was not trained by esbench"):
        cell.trial_spec(0)
