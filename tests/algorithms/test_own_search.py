"""Optimizers and algorithms of the user's own, by class or by "package.file:Class"."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import own_search
import pytest
import torch
from command_line import Run
from searches import START, P, climb

import esbench
from esbench.algorithms.openai_es import OpenAIESSettings
from esbench.algorithms.optimizers.select import make_optimizer
from esbench.core.arrays import with_arrays, without_arrays
from esbench.core.errors import TrainingError, UsageError

GRADIENTS = np.random.default_rng(0).standard_normal((40, P))
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "own_search:Derived": own_search.Derived,
    "own_search:Plain": own_search.Plain,
    "torch.optim:AdamW": torch.optim.AdamW,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_steps_are_those_of_the_class_also_after_its_state_was_stored(name: str) -> None:
    parameter = torch.nn.Parameter(torch.tensor(START))
    alone = OPTIMIZERS[name]([parameter], lr=0.03)
    ours, center = make_optimizer(name, P, 0.03, {}), START
    for number, gradient in enumerate(GRADIENTS):
        if number == 20:
            arrays: dict[str, Any] = {}
            text = json.dumps(without_arrays(ours.state_dict(), arrays))
            ours = make_optimizer(name, P, 0.03, {})
            ours.load_state_dict(with_arrays(json.loads(text), arrays))
        scale = 0.99**number
        center = ours.step(center, gradient, scale)
        alone.param_groups[0]["lr"] = scale * 0.03
        parameter.grad = torch.from_numpy(-gradient)
        with torch.no_grad():
            alone.step()
        np.testing.assert_array_equal(center, parameter.detach().numpy())


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("own_search:Stepless", {}, "no step"),
        ("own_search:StepOnly", {}, "param_groups"),
        ("own_search:Forgets", {}, "state_dict"),
        ("own_search:Fails", {}, "broken on purpose"),
        ("own_search:Plain", {"momentm": 1}, "'momentum'"),
        ("own_search:Plian", {}, "'Plain'"),
        ("torch.optim:LBFGS", {}, "closure"),
    ],
)
def test_what_is_no_optimizer_is_one_sentence(
    name: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        make_optimizer(name, P, 0.1, settings)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_own_algorithm_and_optimizer_by_class_are_those_by_name() -> None:
    given = [
        ("openai_es", "own_search:Derived"),
        ("own_search:Mine", "own_search:Derived"),
        (own_search.Mine, own_search.Derived),
    ]
    centers = []
    for name, optimizer in given:
        algorithm = esbench.make_algorithm(
            name, num_params=P, center_init=START, optimizer=optimizer, sigma=0.1
        )
        climb(algorithm, 5)
        centers.append(algorithm.center)
    assert not np.array_equal(centers[0], START)
    np.testing.assert_array_equal(centers[1:], centers[:1] * 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_search:Derived", "not an algorithm"),
        ("own_search:Unfinished", "lacks _ask"),
        ("own_search:OtherSettings", "AlgorithmSettings"),
        ("own_search:Mime", "'Mine'"),
    ],
)
def test_what_is_no_algorithm_is_one_sentence(name: str, words: str, esbench: Run) -> None:
    code, out, err = esbench("plan", "--env", "CartPole-v1", "--algorithm", name, "--seeds", "0")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
    assert name in err


def test_a_population_of_another_type_is_named() -> None:
    algorithm = esbench.make_algorithm("own_search:AsksAnArray", num_params=3)
    with pytest.raises(TrainingError, match=r"_ask returned .* ndarray; expected a Population"):
        algorithm.ask()


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        ("_center", np.zeros(2), r"self\._center; expected an array of 3"),
        ("_center", np.zeros(3, np.complex128), "complex128 as self._center"),
        ("_center", None, "None as self._center"),
        ("deviation", np.ones(3), r"sigma is an array \[3\].*; expected a number"),
        ("member_data", {"best": np.zeros(5)}, r"member_data\['best'\] is an array \[5\]"),
        ("member_data", {"x": [[1], [1, 2]]}, r"member_data\['x'\] is \[\[1\], \[1, 2\]\]"),
        ("member_data", {"return": 1.0}, r"member_data\['return'\]"),
        ("member_data", [1.0], r"member_data is \[1\.0\]; expected a dictionary"),
        ("population_size", 2.5, r"population_size is 2\.5; expected an integer"),
        ("population_size", 0, "population_size is 0"),
    ],
)
def test_what_an_update_leaves_must_fit(attribute: str, value: Any, words: str) -> None:
    algorithm: Any = esbench.make_algorithm(
        "own_search:Unfit", num_params=3, population_size=4, seed=0
    )
    algorithm.tell(algorithm.ask(), np.arange(4))
    algorithm.left = (attribute, value)
    with pytest.raises(TrainingError, match=f"Unfit.*{words}"):
        algorithm.tell(algorithm.ask(), np.arange(4))


@pytest.mark.parametrize("stored", [np.zeros((4, 5)), np.zeros((4, 2)), [[0.0] * 3] * 4])
def test_members_of_another_size_are_named(stored: Any) -> None:
    algorithm: Any = esbench.make_algorithm("own_search:Stores", num_params=3, seed=0)
    algorithm.stored = stored
    with pytest.raises(TrainingError, match=r"Stores\._ask .*; expected an array \[N, 3\]"):
        algorithm.ask()
    algorithm.stored = np.zeros((4, 3))
    assert len(algorithm.ask()) == 4


def test_a_population_that_grows_without_end_fails_with_its_size(esbench: Run) -> None:
    options = ("--env", "CartPole-v1", "--env-steps", "3000", "--seeds", "0", "--quiet")
    algorithms = ("--algorithm", "own_search:Explodes", "--algorithm", "snes")
    code, _, _ = esbench("run", *options, *algorithms, "--workers", "1", "--out", "out")
    assert code == 1
    (error,) = Path("out").rglob("error.txt")
    assert "population_size = 1000000000" in error.read_text()
    assert len(list(Path("out").rglob("result.json"))) == 1  # snes


@pytest.mark.parametrize("kind", [np.float32, np.int64, Fraction])
def test_the_deviation_may_be_any_number(
    kind: Callable[[int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_search.Unfit, "deviation", kind(1))
    monkeypatch.setattr(own_search.Unfit, "left", ("tag", 0))
    with esbench.make_trainer(
        "own_search:Unfit", env="CartPole-v1", population_size=4, workers=1, out=tmp_path
    ) as trainer:
        trainer.train(env_steps=300)
        assert [record.sigma for record in trainer.history] == [1.0] * len(trainer.history)


@pytest.mark.parametrize("scale", [(None, None), (np.ones(2), None), (0.1, np.zeros(2))])
def test_what_is_sampled_must_fit(scale: Any) -> None:
    sigma, center = scale
    algorithm: Any = esbench.make_algorithm("own_search:Unfit", num_params=3, seed=0)
    with pytest.raises(TrainingError, match=r"Unfit: the (sigma|center) of sampled .*\[3\]"):
        algorithm.sampled(sigma, center=center)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Forgetful", "generation 2 ends in another state"),
        ("Draws", "generation 2 has other members"),
        ("Grows", "generation 2 has other members"),
        ("Replays", "generation 2 has other members or episodes"),
        ("Misspells", "_load_state_dict does not take .*'speed'"),
    ],
)
def test_a_search_that_would_go_on_with_other_bits_is_refused(name: str, words: str) -> None:
    with (
        esbench.make_trainer(
            f"own_search:{name}", env="CartPole-v1", population_size=4, workers=1
        ) as trainer,
        pytest.raises(TrainingError, match=words),
    ):
        trainer.train(env_steps=2_000)


@pytest.mark.parametrize("name", ["Remembers", "FromStart"])
def test_a_search_with_its_whole_state_is_trained(name: str) -> None:
    with esbench.make_trainer(
        f"own_search:{name}",
        env="CartPole-v1",
        population_size=4,
        workers=1,
        budget={"generations": 11},
    ) as trainer:
        trainer.train()
        assert trainer.progress.generation == 11


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"_state_dict\(\) is of type NoneType; expected a dictionary"),
        ({"a": {"b": torch.zeros(2)}}, r"_state_dict\(\)\['a'\]\['b'\] is of type Tensor"),
        ({"a": [np.zeros(2)]}, r"\['a'\]\[0\] is of type ndarray"),
        ({"a": np.array([None])}, r"\['a'\] is of type ndarray"),
        ({"a": np.longdouble(1)}, r"\['a'\] is of type longdouble"),
        ({"a": [{1: 2}]}, r"\['a'\]\[0\] has the key 1"),
        ({"a": {"$tensor": "x"}}, r"\['a'\] has the key '\$tensor'"),
        ({"average": 1}, "has the key 'average'"),
        ({"generation": 1}, "has the key 'generation'"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named(content: Any, words: str) -> None:
    algorithm = own_search.Unstorable(OpenAIESSettings(), np.zeros(3), seed=0)
    algorithm.content = content
    with pytest.raises(TrainingError, match=words):
        algorithm.state_dict()


def test_names_with_dots_are_different_arrays() -> None:
    nested = {"a": {"b": np.zeros(2)}, "a.b": np.ones(3), "a.b#1": np.full(1, 2.0)}
    arrays: dict[str, Any] = {}
    plain = json.loads(json.dumps(without_arrays(nested, arrays)))
    restored = with_arrays(plain, arrays)
    np.testing.assert_array_equal(restored["a"]["b"], np.zeros(2))
    np.testing.assert_array_equal(restored["a.b"], np.ones(3))
    np.testing.assert_array_equal(restored["a.b#1"], [2.0])


def test_a_grid_trains_resumes_and_records_the_code(esbench: Run, tmp_path: Path) -> None:
    """The digests are those of a run that is not interrupted."""
    (tmp_path / "grid.toml").write_text("""
environments = ["CartPole-v1"]
seeds = [0]
policy = { template = "linear" }
evaluation = { episodes = 2 }
[algorithms.mine]
algorithm = "own_search:Mine"
population_size = 8
optimizer = ["own_search:Derived", "own_search:Plain"]
[algorithms.openai_es]
population_size = 8
optimizer = "own_search:Derived"
[algorithms.only_algorithm]
algorithm = "own_search:Mine"
population_size = 8
""")
    run = ["run", "grid.toml", "--workers", "1", "--quiet", "--at-once", "1"]

    def trial(out: str, label: str) -> Path:
        return tmp_path / out / "CartPole-v1" / label / "seed-0"

    def digests(folder: Path) -> list[str]:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line)["digest"] for line in lines]

    assert esbench(*run, "--env-steps", "200", "--out", "a", "--algorithm", "mine")[0] == 0
    more = ("--env-steps", "900", "--out", "a", "--algorithm", "mine", "--extend")
    assert esbench(*run, *more)[0] == 0
    assert esbench(*run, "--env-steps", "900", "--out", "b")[0] == 0
    derived, plain = (f"mine_optimizer_own_search_{name}" for name in ("Derived", "Plain"))
    for label in (derived, plain):
        assert digests(trial("a", label)) == digests(trial("b", label))
    for label in (derived, plain, "openai_es", "only_algorithm"):
        description = json.loads((trial("b", label) / "trial.json").read_text())
        assert description["own_code"]["own_search"].startswith("sha256:")
    assert digests(trial("b", plain)) != digests(trial("b", derived))
    assert esbench("verify", "b", "--workers", "1")[0] == 0


def test_a_class_inside_a_function_is_refused() -> None:
    class Inside(own_search.Plain): ...

    with pytest.raises(UsageError, match="top level"):
        esbench.make_algorithm("openai_es", num_params=P, optimizer=Inside)
    with pytest.raises(UsageError, match="no step"):
        esbench.make_trainer("openai_es", env="CartPole-v1", optimizer=own_search.Stepless)
