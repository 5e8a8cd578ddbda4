import math
import types
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field, model_validator

from esbench.core.errors import UsageError
from esbench.core.settings import Settings, fields_at, parse


class Layer(Settings):
    width: int = 64
    activation: Literal["tanh", "relu"] = "tanh"


class Model(Settings):
    steps: int
    rate: float = 0.5
    name: str = "x"
    mirrored: bool = True
    shaping: Literal["centered", "nes", "raw"] = "centered"
    size: Annotated[int, Field(ge=2, lt=100)] = 10
    hidden: tuple[int, ...] = (64, 64)
    layer: Layer = Layer()
    layers: dict[str, Layer] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self):
        if self.size > 50 and self.mirrored:
            raise ValueError(f"size = {self.size}: expected at most 50 when mirrored")
        return self


def complaints(source="grid.toml", prefix="", **values):
    with pytest.raises(UsageError) as caught:
        parse(Model, {"steps": 1, **values}, source, prefix)
    return str(caught.value).splitlines()


def test_good_values_are_typed_and_defaults_filled_in():
    values = {"steps": 3, "rate": 2, "hidden": [8], "layers": {"a": {"width": 5}}}
    model = parse(Model, values, "grid.toml")
    assert model == Model(steps=3, rate=2.0, hidden=(8,), layers={"a": Layer(width=5)})
    assert isinstance(model.rate, float)
    assert isinstance(model.hidden, tuple)
    assert (model.size, model.layer) == (10, Layer())


@pytest.mark.parametrize(
    ("values", "key", "seen", "near"),
    [
        ({"stesp": 3}, "stesp", "3", "did you mean 'steps'?"),
        ({"Rate": 0.25}, "Rate", "0.25", "did you mean 'rate'?"),
        ({"layer": {"widht": [1]}}, "layer.widht", "[1]", "did you mean 'width'?"),
        ({"layers": {"a": {"wdth": 1}}}, "layers.a.wdth", "1", "did you mean 'width'?"),
        ({"layer": {"q": None}}, "layer.q", "null", "known: activation, width"),
    ],
)
def test_an_unknown_key_is_named_with_its_value_and_the_nearest(values, key, seen, near):
    assert complaints(**values) == [f"grid.toml: unknown key {key} (= {seen}); {near}"]


@pytest.mark.parametrize(
    ("values", "seen", "expected"),
    [
        ({"steps": "many"}, 'steps = "many"', "integer"),
        ({"steps": 1.5}, "steps = 1.5", "integer"),
        ({"steps": True}, "steps = true", "integer"),
        ({"steps": None}, "steps = null", "integer"),
        ({"rate": "0.5"}, 'rate = "0.5"', "number"),
        ({"rate": False}, "rate = false", "number"),
        ({"rate": math.nan}, "rate = nan", "finite"),
        ({"rate": math.inf}, "rate = inf", "finite"),
        ({"name": 3}, "name = 3", "string"),
        ({"mirrored": 1}, "mirrored = 1", "boolean"),
        ({"hidden": 64}, "hidden = 64", "a list"),
        ({"hidden": [64, "64"]}, 'hidden.1 = "64"', "integer"),
        ({"layer": 3}, "layer = 3", "a table"),
        ({"layers": {"a": {"width": 0.5}}}, "layers.a.width = 0.5", "integer"),
        ({"size": 1}, "size = 1", "greater than or equal to 2"),
        ({"size": 100}, "size = 100", "less than 100"),
    ],
)
def test_a_wrong_value_is_shown_with_what_was_expected(values, seen, expected):
    (line,) = complaints(**values)
    assert line.startswith(f"grid.toml: {seen}: expected ")
    assert expected in line


@pytest.mark.parametrize(("prefix", "key"), [("", "steps"), ("budget", "budget.steps")])
def test_a_missing_key_is_named(prefix, key):
    with pytest.raises(UsageError, match=rf"^grid\.toml: {key} is missing$"):
        parse(Model, {}, "grid.toml", prefix)


def test_a_rule_between_settings_speaks_for_itself():
    (line,) = complaints(size=60)
    assert line.startswith("grid.toml: ")
    assert line.endswith("size = 60: expected at most 50 when mirrored")
    (line,) = complaints(size=60, prefix="algorithms.es")
    assert line == "grid.toml: algorithms.es: size = 60: expected at most 50 when mirrored"


def test_every_wrong_key_gets_a_line():
    lines = complaints(steps="x", size=1, nmae="y", layer={"width": None})
    assert len(lines) == 4
    assert all(line.startswith("grid.toml: ") for line in lines)
    for key in ('steps = "x"', "size = 1", "nmae (= ", "layer.width = null"):
        assert any(key in line for line in lines)


def test_the_names_at_a_place_are_those_of_the_model_there():
    assert fields_at(Model, [])[:2] == ["steps", "rate"]
    assert fields_at(Model, ["layer"]) == ["width", "activation"]
    assert fields_at(Model, ["layers", "a"]) == ["width", "activation"]
    assert fields_at(Model, ["steps"]) == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (np.ndarray, "ndarray"),
        ("Missing", "Missing"),
        (Annotated[str, Field(pattern="(")], "regex"),
    ],
)
def test_a_type_that_cannot_be_validated_is_one_sentence(kind: object, words: str) -> None:
    namespace = {"__module__": __name__, "__annotations__": {"wrong": kind}}
    model = types.new_class("Wrong", (Settings,), exec_body=lambda body: body.update(namespace))
    with pytest.raises(UsageError, match=rf"test_settings\.Wrong: .*{words}") as told:
        parse(model, {"wrong": 1}, "a grid")
    assert "\n" not in str(told.value)
