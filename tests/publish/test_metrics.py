"""Exports for services that keep benchmarks over commits, against the shapes that they document."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import Run
from fake_trials import edit, write_scores

# https://bencher.dev/docs/reference/bencher-metric-format, and without other keys.
METRIC = {
    "type": "object",
    "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
    "required": ["value"],
    "additionalProperties": False,
}
BMF = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z-]{1,64}$"},
        "additionalProperties": METRIC,
    },
}
TEXT = {"type": "string", "minLength": 1}
# https://github.com/benchmark-action/github-action-benchmark, "customBiggerIsBetter".
BENCHMARK_ACTION = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "value": {"type": "number"},
            **dict.fromkeys(("name", "unit", "range", "extra"), TEXT),
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}
FAST = {"budget": {"env_steps": 300}}
PENDULUM = [-310.0, -300.0, -290.0, -280.0]


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=pytest.fail)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a folder with one environment of each kind."""
    folder = tmp_path / "out"
    write_scores(folder, [480.0, 485.0, 490.0, 500.0], **FAST)
    write_scores(folder, PENDULUM, environments=["Pendulum-v1"], **FAST)
    write_scores(folder, [1.0, 2.0], environments=["doubles:Walk-v0"], **FAST)  # without a scale
    write_scores(folder, [math.nan], environments=["Acrobot-v1"], **FAST)  # has no score
    edit(folder / "CartPole-v1", "result.json", lambda result: result.update(cpu_time_s=0.5))
    return folder


@pytest.mark.parametrize(
    ("format_", "schema"), [("bmf", BMF), ("benchmark-action", BENCHMARK_ACTION)]
)
@pytest.mark.parametrize("statistic", ["mean", "area"])
def test_an_export_has_the_documented_shape_and_leaves_out_what_has_no_score(
    esbench: Run, out: Path, format_: str, schema: dict[str, Any], statistic: str
) -> None:
    code, text, err = esbench("table", "out", "--format", format_, "--statistic", statistic)
    assert (code, err) == (0, "")
    jsonschema.validate(strict(text), schema)
    assert "Pendulum-v1" in text
    assert "Acrobot-v1" not in text


def test_a_row_of_bencher_has_the_numbers_of_the_table(esbench: Run, out: Path) -> None:
    found = strict(esbench("table", "out", "--format", "bmf")[1])
    rows = strict(esbench("table", "out", "--format", "json")[1])["rows"]
    for row in rows:
        if row["score"] is None:
            continue
        own = found[f"openai_es on {row['environment']}"]
        ends = {"lower_value": row["low"], "upper_value": row["high"]}
        known = {key: end for key, end in ends.items() if end is not None}
        assert own["score"] == {"value": row["score"], **known}
        assert own.get("tail", {}).get("value") == row["tail"]
        normalized = own.get("normalized-score", {}).get("value")
        assert normalized == row["normalized"]
    speeds = {title: own.get("steps-per-second") for title, own in found.items()}
    assert speeds["openai_es on CartPole-v1"] == {"value": 400.0}  # 200 steps in half a second
    assert speeds["openai_es on Pendulum-v1"] is None
    assert found["openai_es on Pendulum-v1"]["score"]["value"] == pytest.approx(-295.0)


def test_the_benchmark_action_divides_numbers_that_are_positive_and_better_if_larger(
    esbench: Run, out: Path
) -> None:
    before = strict(esbench("table", "out", "--format", "benchmark-action")[1])
    better = [score + 100 for score in PENDULUM]
    write_scores(out.parent / "new", better, environments=["Pendulum-v1"], **FAST)
    after = strict(esbench("table", "new", "--format", "benchmark-action")[1])
    (old,) = (row for row in before if row["name"] == "openai_es on Pendulum-v1")
    (new,) = (row for row in after if row["name"] == "openai_es on Pendulum-v1")
    assert 0 < old["value"] < new["value"]
    assert old["unit"] == "% of the reference"
    assert old["extra"] == "score -295.0, 4 seeds, 200 steps"
    units = {row["name"]: row["unit"] for row in before}
    assert units["openai_es on doubles:Walk-v0"] == "return"
    assert units["openai_es on CartPole-v1, speed"] == "steps/s"


def test_the_benchmark_action_gets_no_negative_number(esbench: Run, tmp_path: Path) -> None:
    for folder in ("low", "negative"):
        write_scores(tmp_path / folder, [-24.0, -12.0], environments=["doubles:Walk-v0"], **FAST)
    write_scores(tmp_path / "low", [5.0, 6.0], **FAST)
    (row,) = strict(esbench("table", "low", "--format", "benchmark-action")[1])
    assert (row["name"], row["value"]) == ("openai_es on CartPole-v1", 0.0)  # worse than random
    code, _, err = esbench("table", "negative", "--format", "benchmark-action")
    assert code == 2
    assert "all scores are negative" in err


def test_a_measure_has_one_meaning_with_every_statistic(esbench: Run, out: Path) -> None:
    found = [
        strict(esbench("table", "out", "--format", "bmf", "--statistic", name)[1])
        for name in ("mean", "area")
    ]
    mean, area = ({*rows["openai_es on CartPole-v1"]} for rows in found)
    assert mean & area == {"steps-per-second"}
    assert area - mean == {"area-score", "normalized-area-score"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--format bmf --wide", "--wide with --format bmf: expected one of text"),
        ("--format benchmark-action --wide", "--wide with --format benchmark-action"),
        ("--format bfm", "bfm"),
        ("--format bmf", "no row has a score"),
    ],
)
def test_an_impossible_export_is_refused(
    esbench: Run, tmp_path: Path, words: str, expected: str
) -> None:
    write_scores(tmp_path / "out", [math.nan])
    code, text, err = esbench("table", "out", *words.split())
    assert (code, text) == (2, "")
    assert expected in err
