import math
import re
from pathlib import Path
from typing import Any

import pytest

from esbench.core.errors import UsageError
from esbench.core.settings import parse
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial, grid_trials, open_grid
from esbench.grids.compose import compose_grid, parse_seeds
from esbench.grids.environment_files import environments_in
from esbench.grids.grid_file import grid_names, parse_grid
from esbench.grids.trial_spec import TrialSpec
from esbench.results.baselines import read_baseline

FULL = """
name = "locomotion"
seeds = [0, 1, 2]
environments = ["HalfCheetah-v5", "Hopper-v5"]
[budget]
env_steps = 3_000_000
[algorithms.openai_es]
population_size = 64
sigma = 0.02
[policy]
template = "mlp"
hidden = [64, 64]
[environment."Hopper-v5"]
episodes_per_member = 2
"""


def template(trial: Trial) -> str:
    assert trial.spec.policy is not None
    return trial.spec.policy.template


def opened(path: Path, text: str, **options: Any) -> list[Trial]:
    file = path / "grid.toml"
    file.write_text(text)
    return open_grid(str(file), out=path / "out", **options)[1]


def settings(trial: Trial, part: str) -> dict[str, Any]:
    found: dict[str, Any] = trial.spec.as_json()[part]["settings"]
    return found


def trials_of(table: dict[str, Any]) -> list[Trial]:
    base = {"name": "t", "environments": ["CartPole-v1"], "algorithms": ["openai_es"]}
    return grid_trials(parse_grid({**base, **table}, "t.toml"), Path("out"), "t.toml")


def test_the_complete_grid_of_the_design(tmp_path: Path) -> None:
    trials = opened(tmp_path, FULL)
    assert len(trials) == 6
    assert {trial.spec.budget.env_steps for trial in trials} == {3_000_000}
    assert {settings(trial, "algorithm")["sigma"] for trial in trials} == {0.02}
    assert all(settings(trial, "policy")["hidden"] == [64, 64] for trial in trials)
    members = {t.spec.environment.id: t.spec.environment.episodes_per_member for t in trials}
    assert members == {"HalfCheetah-v5": 1, "Hopper-v5": 2}
    assert [trial.spec.seed for trial in trials[:3]] == [0, 1, 2]
    assert trials[0].folder.path == tmp_path / "out/HalfCheetah-v5/openai_es/seed-0"
    assert len({trial.spec.hash for trial in trials}) == 6


@pytest.mark.parametrize("name", grid_names())
def test_named_grids_expand(name: str, tmp_path: Path) -> None:
    assert open_grid(name, out=tmp_path)[1]


GRID_TEXT = "description = 'é'\nenvironments = ['CartPole-v1']\r\nalgorithms = ['snes']\n"
JSON_TEXT = '{"format": 9,\r\n"command": "é", "cells": []}'
ENCODINGS = {
    "utf-8": "",
    "utf-8-sig": "",  # with a byte-order mark
    "utf-16": "it is in UTF-16",
    "utf-16-le": "it is in UTF-16",
    "utf-16-be": "it is in UTF-16",
    "utf-32": "it is in UTF-16 or UTF-32",
    "latin-1": "line [12] has the byte 0xe9",
    "cp1252": "line [12] has the byte 0xe9",
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_of_the_user_is_read_in_utf_8(encoding: str, tmp_path: Path) -> None:
    words = ENCODINGS[encoding]
    grid, baseline = tmp_path / "grid.toml", tmp_path / "baseline.json"
    grid.write_bytes(GRID_TEXT.encode(encoding))
    baseline.write_bytes(JSON_TEXT.encode(encoding))
    environment = tmp_path / "environment.toml"
    environment.write_bytes("id = 'doubles:Walk-v0'\ndescription = 'é'\n".encode(encoding))
    for call, path, known in (
        (lambda: compose_grid(str(grid))[0].description, grid, "é"),
        (lambda: [*environments_in(environment)], environment, ["doubles:Walk-v0"]),
        (lambda: read_baseline(baseline), baseline, None),
    ):
        if known is not None and not words:
            assert call() == known  # type: ignore[no-untyped-call]
            continue
        with pytest.raises(UsageError, match=words or "baseline format 9") as refused:
            call()  # type: ignore[no-untyped-call]
        (sentence,) = str(refused.value).splitlines()
        assert str(path) in sentence


def test_from_weak_to_strong(tmp_path: Path) -> None:
    text = """
    environments = ["CartPole-v1", "HalfCheetah-v5"]
    [algorithms.openai_es]
    learning_rate = 0.5
    [environment."CartPole-v1".algorithms.openai_es]
    learning_rate = 0.25
    """

    def rates(**options: Any) -> dict[str, float]:
        return {
            trial.spec.environment.id: settings(trial, "algorithm")["learning_rate"]
            for trial in opened(tmp_path, text, **options)
        }

    assert rates() == {"CartPole-v1": 0.25, "HalfCheetah-v5": 0.5}
    rate = "algorithms.openai_es.learning_rate"
    assert set(rates(overrides=[f"{rate}=0.125"]).values()) == {0.125}
    one = 'environment."CartPole-v1".algorithms.openai_es.learning_rate=1.0'
    assert rates(overrides=[f"{rate}=0.125", one])["CartPole-v1"] == 1.0
    own = settings(trials_of({})[0], "algorithm")
    assert own["sigma"] == 0.2  # from the environment's file; the algorithm's default is 0.02


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("name=text", "name", "text"),
        ("budget.env_steps=0", "budget", {"env_steps": 0}),
        ("seeds=[1, 2]", "seeds", (1, 2)),
        ('policy."x.y".b=1e3', "policy", {"x.y": {"b": 1000.0}}),
        ("evaluation.center = true ", "evaluation", {"center": True}),
        ("description=b=c", "description", "b=c"),
    ],
)
def test_override_values_are_toml(assignment: str, key: str, value: object) -> None:
    grid, _ = compose_grid(None, ["CartPole-v1"], ["snes"], overrides=[assignment])
    assert getattr(grid, key) == value


@pytest.mark.parametrize(
    ("options", "overrides", "words"),
    [
        ({"env_steps": 500}, ["budget.env_steps=700"], "budget.env_steps is set twice"),
        ({"seeds": "0-1"}, ["seeds=[5]"], "seeds is set twice"),
        ({}, ["algorithms={cem={}}"], "algorithms is set twice"),
        ({}, ['environments=["Acrobot-v1"]'], "environments is set twice"),
        ({}, ["budget.env_steps=1", ' budget."env_steps" =2'], "budget.env_steps is set twice"),
        ({}, ["budget=3", "budget.env_steps=2"], "budget = 3 is a value"),
        ({}, ["sigma=0.3"], r"unknown key 'sigma'; .*algorithms\.NAME\.KEY"),
        ({}, ["seed=3"], "did you mean 'seeds'"),
        ({}, ["algorithms.sness.sigma=1"], r"^algorithms\.sness .* did you mean 'snes'"),
        ({}, ["budget.int=1"], r"unknown key budget\.int"),
    ],
)
def test_a_wrong_override_is_refused(
    options: dict[str, Any], overrides: list[str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        open_grid(
            None, environments=["CartPole-v1"], algorithms=["snes"], **options, overrides=overrides
        )


def test_a_table_may_be_completed_by_other_options_in_any_order() -> None:
    overrides = ["budget.env_steps=700", "algorithms.snes.sigma=0.3", "budget={generations=3}"]
    grid, _ = compose_grid(None, ["CartPole-v1"], ["snes"], overrides=overrides)
    assert (grid.budget["generations"], grid.budget["env_steps"]) == (3, 700)


def test_one_algorithm_with_two_settings_and_two_policies() -> None:
    trials = trials_of(
        {
            "seeds": [7],
            "algorithms": {"openai_es": {}, "wide": {"algorithm": "openai_es", "sigma": 0.5}},
            "policies": {"flat": {"template": "linear"}, "deep": {"hidden": [8, 8, 8]}},
        }
    )
    assert [str(trial.folder.path) for trial in trials] == [
        "out/CartPole-v1/openai_es/flat/seed-7",
        "out/CartPole-v1/openai_es/deep/seed-7",
        "out/CartPole-v1/wide/flat/seed-7",
        "out/CartPole-v1/wide/deep/seed-7",
    ]
    assert trials[2].spec.algorithm.name == "openai_es"
    assert settings(trials[2], "algorithm")["sigma"] == 0.5
    assert template(trials[0]) == "linear"
    assert settings(trials[1], "policy")["hidden"] == [8, 8, 8]
    assert settings(trials[1], "policy")["normalize_observations"] is True  # of the environment


def test_the_command_line_without_a_file() -> None:
    root, trials = open_grid(
        None, environments=["CartPole-v1"], algorithms=["openai_es"], seeds="0-2", env_steps=100
    )
    assert root == Path("results/runs/CartPole-v1+openai_es")
    assert [trial.spec.budget.env_steps for trial in trials] == [100] * 3


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0-3", [0, 1, 2, 3]), ("0, 2,5-6", [0, 2, 5, 6])]
)
def test_seeds_as_text(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-", "-1", "1..3", "5-2", "0-4000000000", "0-4294967296", "0-99999,7", "9" * 5000],
)
def test_text_that_is_no_seeds_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected .*seeds"):
        parse_seeds(text)


BAD = [
    ({"environments": ["numpy:NoneOfThese-v0"]}, ["'numpy' registers no 'NoneOfThese-v0'"]),
    ({"algorithms": ["openai"]}, ["unknown algorithm 'openai'", "did you mean 'openai_es'"]),
    ({"algorithms": {"x": {"algorithm": "opnai_es"}}}, ["'opnai_es' (algorithms.x.algorithm)"]),
    ({"algorithms": {"openai_es": {"sigm": 1}}}, ["algorithms.openai_es.sigm (= 1)", "'sigma'"]),
    ({"algorithms": {"openai_es": {"population_size": -2}}}, ["population_size = -2", "expected"]),
    ({"algorithms": {"openai_es": {"population_size": 7}}}, ["population_size = 7", "even"]),
    ({"policy": {"template": "mpl"}}, ["unknown policy template 'mpl'", "'mlp'"]),
    ({"policy": {"hiden": [3]}}, ["unknown key policy.hiden", "'hidden'"]),
    ({"policy": {"bias": True}, "policies": {"a": {}}}, ["both [policy] and [policies]"]),
    ({"name": "../x"}, ['name = "../x"', "folder"]),
    ({"seeds": [1, 2, 1]}, ["seeds", "1 is given 2 times; expected once"]),
    ({"environments": ["CartPole-v1"] * 2}, ["'CartPole-v1' is given 2 times"]),
    ({"budget": {"env_stps": 3}}, ["unknown key budget.env_stps", "'env_steps'"]),
    ({"environment": {"CartPol-v1": {}}}, ["CartPol-v1", "did you mean 'CartPole-v1'"]),
    (
        {"environment": {"CartPole-v1": {"action_nois": 1}}},
        ["CartPole-v1.action_nois", "'action_n"],
    ),
    ({"environment": {"CartPole-v1": {"backend": "gymnasum"}}}, ["backend", "'gymnasium'"]),
    ({"environment": {"CartPole-v1": {"id": "Acrobot-v1"}}}, ["the name cannot be changed here"]),
    (
        {"environment": {"CartPole-v1": {"algorithms": {"openai_se": {"sigma": 1}}}}},
        ["algorithms.openai_se", "did you mean 'openai_es'"],
    ),
    (
        {"algorithms": {"a b": {"algorithm": "openai_es"}, "a/b": {"algorithm": "openai_es"}}},
        ["would share the folder", "a b seed 0", "a/b seed 0"],
    ),
    ({"algorithms": {"..": {"algorithm": "openai_es"}}}, ["algorithms"]),
    ({"seed": [1]}, ["unknown key seed", "did you mean 'seeds'"]),
    ({"budget": {"env_steps": [5, 6]}}, ["expected an integer"]),
    ({"budget": {"target_return": math.nan}}, ["budget.target_return = nan"]),
    ({"algorithms": {"snes": {"sigma": [0.1, math.nan]}}}, ["algorithms.snes.sigma = nan"]),
    ({"algorithms": {"cma_es": {"policy": "linear"}}}, ["algorithms.cma_es.policy = 'linear'"]),
    (
        {"algorithms": {"cma_es": {"policy": {"template": "linea"}}}},
        ["'linea' (algorithms.cma_es.policy.template", "'linear'"],
    ),
    # Seeds and environments of one algorithm
    ({"algorithms": {"ars": {"environments": ["Acrobat-v1"]}}}, ["Acrobat-v1"]),
    ({"algorithms": {"ars": {"seeds": []}}}, ["algorithms.ars.seeds"]),
    ({"algorithms": {"ars": {"seeds": [7, 7]}}}, ["7 is given 2 times"]),
    # Lists, which are sweeps of an algorithm's settings and of nothing else
    ({"algorithms": {"openai_es": {"sigma": []}}}, ["openai_es.sigma = []"]),
    ({"algorithms": {"openai_es": {"sigma": [1, 1.0]}}}, ["openai_es.sigma", "1.0", "twice"]),
    ({"algorithms": {"openai_es": {"sigma": [0.1, -1]}}}, ["openai_es.sigma = -1"]),
    ({"algorithms": {"openai_es": {"learning_rate": [[1, 2], 3]}}}, ["[1, 2]", "a number"]),
    ({"policy": {"activation": ["tanh", "relu"]}}, ["policy.activation"]),
    ({"environment": {"CartPole-v1": {"action_noise": [0, 1]}}}, ["action_noise"]),
    *(
        (
            {"budget": {"env_steps": 100}, "evaluation": {"validation": validation}},
            [f"evaluation.validation{words}"],
        )
        for validation, words in (
            ({"start": 100, "interval": 5}, ".start = 100: expected less than budget.env_steps"),
            ({"start": 50}, ".interval is missing"),
            ({"start": 50, "interval": 0}, ".interval = 0: expected"),
            (5, " = 5: expected a table"),
        )
    ),
    *(
        (
            {"environment": {"CartPole-v1": {"wrappers": given}}},
            [f"environment.CartPole-v1.wrappers = {given!r}".replace("'", '"')[:40], meant],
        )
        for given, meant in (
            (["robot:Scale"], 'wrappers = [{wrapper = "robot:Scale"}]'),
            ("robot:Scale", 'wrappers = [{wrapper = "robot:Scale"}]'),
            ({"wrapper": "robot:Scale", "by": 2}, '[{wrapper = "robot:Scale", by = 2}]'),
            (["a:B", {"wrapper": "c:D"}], '[{wrapper = "a:B"}, {wrapper = "c:D"}]'),
        )
    ),
]


@pytest.mark.parametrize(("table", "words"), BAD)
def test_bad_grids_name_the_key_the_value_and_the_nearest(
    table: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        trials_of(table)
    (sentence,) = str(caught.value).splitlines()
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("max_episode_steps", v) for v in ([], [0, 250], [[1, 250]], [[0, 250], [0, 5]], 0)),
        *(("reward_clip", value) for value in ([], [1], [1, 1], [-1, 0, 1], ["a", 1], 1)),
        ("kwargs", [1]),
    ],
)
def test_a_wrong_setting_of_an_environment_is_named(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"environment\.CartPole-v1\.{key}"):
        trials_of({"environment": {"CartPole-v1": {key: value}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_episode_steps", [[0, 250], [900_000, 1_000]]), ("reward_clip", [-1.0, 0.5])],
)
def test_limits_and_bounds_are_stored_as_they_are(key: str, value: object) -> None:
    (trial, *_) = trials_of({"environment": {"CartPole-v1": {key: value}}})
    stored = trial.spec.as_json()
    assert stored["environment"][key] == value
    assert parse(TrialSpec, stored, "stored") == trial.spec
    (plain, *_) = trials_of({})
    assert "reward_clip" not in plain.spec.as_json()["environment"]


LAYERS = {
    "budget": ("generations", [1, 2, 3]),
    "evaluation": ("episodes", [5, 6, 7]),
    "policy": ("hidden", [[8], [16], [32]]),
}


@pytest.mark.parametrize("section", LAYERS)
def test_every_section_has_the_same_layers(tmp_path: Path, section: str) -> None:
    """The environment's file, the grid, the grid's table for the environment, and --set."""
    key, values = LAYERS[section]
    base = 'environments = ["CartPole-v1", "Acrobot-v1"]\nalgorithms = ["openai_es"]\nseeds = [0]\n'
    grid = f"[{section}]\n{key} = {values[0]}\n"
    one = f'[environment."CartPole-v1".{section}]\n{key} = {values[1]}\n'

    def found(text: str, *overrides: str) -> list[Any]:
        tables = [t.spec.as_json() for t in opened(tmp_path, text, overrides=overrides)]
        if section == "policy":
            return [table["policy"]["settings"]["hidden"] for table in tables]
        return [table[section][key] for table in tables]

    own = found(base)
    assert found(base + grid) == [values[0]] * 2
    assert found(base + one) == [values[1], own[1]]
    assert found(base + grid + one) == [values[1], values[0]]
    assert found(base + grid + one, f"{section}.{key}={values[2]}") == [values[2]] * 2


def test_a_policy_with_a_template_replaces_and_one_without_changes() -> None:
    one = {"environment": {"CartPole-v1": {"policy": {"template": "linear"}}}}
    assert template(trials_of({"policy": {"hidden": [3]}, **one})[0]) == "linear"
    (trial, *_) = trials_of({"policy": {"template": "mlp", "activation": "relu"}})
    assert settings(trial, "policy")["activation"] == "relu"
    assert settings(trial, "policy")["normalize_observations"] is False  # nothing is inherited


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('environment = ["CartPole-v1"]', "environment = .*: expected a table"),
        ("budget = 3", "budget = 3: expected a table"),
        ('[environment]\n"CartPole-v1" = 3', "environment.CartPole-v1 = 3: expected a table"),
        ("algorithms = 5", "algorithms = 5: expected a table or a list of names"),
        *(
            (
                f'environments = ["Acrobot-v1"]\n[environment]\n{key} = {given}',
                rf"environment\.{key} = .*\[environment\.Acrobot-v1\], .* = {re.escape(meant)}$",
            )
            for key, given, meant in (
                ("wrappers", '["robot:Scale"]', '[{wrapper = "robot:Scale"}]'),
                ("episodes_per_member", "2", "2"),
                ("kwargs", "{gravity = 1.5}", "{gravity = 1.5}"),
            )
        ),
    ],
)
def test_values_where_tables_belong(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        opened(tmp_path, text, overrides=["seeds=[3]"], environments=["CartPole-v1"])


def test_an_algorithm_that_the_grid_labels_otherwise_is_not_trained_with_its_defaults(
    tmp_path: Path,
) -> None:
    labeled = """
    environments = ["CartPole-v1"]
    algorithms.wide = { algorithm = "snes", sigma = 0.5 }
    algorithms.narrow = { algorithm = "snes", sigma = 0.1 }
    algorithms.ars = {}
    algorithms.ars_wide = { algorithm = "ars", sigma = 0.5 }
    """
    with pytest.raises(UsageError, match=r"'snes'.* 'wide' or 'narrow'"):
        opened(tmp_path, labeled, algorithms=["snes"])
    with pytest.raises(UsageError, match=r"'ars'.*'ars_short'"):
        open_grid("short-episodes", algorithms=["ars"])
    for name in ("wide", "ars", "openai_es"):  # of the grid, or of none of its labels
        trials = opened(tmp_path, labeled, algorithms=[name])
        assert {trial.labels["algorithm"] for trial in trials} == {name}


def test_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"grid\.toml: unknown key budget\.x"):
        opened(tmp_path, FULL + "[environment.'HalfCheetah-v5'.budget]\nx = 3")
    with pytest.raises(UsageError, match=r"grid\.toml: not valid TOML: .*line 2"):
        opened(tmp_path, "\nname = = 3")
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        open_grid(str(tmp_path / "none.toml"))
    for name in ("CartPole-v1", "esbench/Pong-v5"):
        with pytest.raises(UsageError, match=f"--env {name} --algorithm"):
            open_grid(name)
    with pytest.raises(UsageError, match="unknown grid 'quik'; did you mean 'quick'"):
        open_grid("quik")


def test_an_algorithm_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    text = (
        'environments = ["HalfCheetah-v5"]\nseeds = [0]\npolicy = {hidden = [8]}\n[algorithms]\n'
        'snes = {}\ncma_es = {policy = {template = "linear"}}\n'
        'wide = {algorithm = "snes", policy = {hidden = [99]}}\n'
    )
    trials = opened(tmp_path, text)
    assert [trial.labels["policy"] for trial in trials] == ["default", "linear", "default"]
    policies = [trial.spec.as_json()["policy"] for trial in trials]
    assert [policy["template"] for policy in policies] == ["mlp", "linear", "mlp"]
    assert [policy["settings"].get("hidden") for policy in policies] == [[8], None, [99]]
    with SearchTrainer(trials[1].spec) as trainer:
        assert trainer.center.size == 17 * 6  # a matrix of HalfCheetah's observations to actions
    # Alone, the same specification needs no table of its own.
    (alone,) = opened(tmp_path, text, algorithms=["cma_es"])
    assert alone.spec == trials[1].spec
    (same,) = opened(tmp_path, "", environments=["HalfCheetah-v5"], algorithms=["cma_es"],
                     overrides=["policy.template=linear", "seeds=[0]"])  # fmt: skip
    assert same.spec.hash == alone.spec.hash
    set_ = opened(tmp_path, text, overrides=['policy={template = "linear"}'])
    assert {template(trial) for trial in set_} == {"linear"}


OWN_POLICIES = """
seeds = [0]
environments = ["CartPole-v1", "Acrobot-v1"]
[policy]
hidden = [8]
[environment."CartPole-v1"]
policy = {template = "mlp", hidden = [4], activation = "relu"}
[algorithms.snes]
[algorithms.pgpe]
policy = {template = "mlp", hidden = [2]}
"""


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["policy.hidden=[3]"], "hidden", [3]),
        (["policy.output_activation=tanh"], "output_activation", "tanh"),
        (["policy.template=mlp", "policy.hidden=[3]"], "hidden", [3]),
        (["policy.hidden=[3]", "policy.template=mlp"], "hidden", [3]),
        (["policy.template=mlp"], "hidden", [8]),
        (['policy={template="mlp"}', "policy.hidden=[3]"], "hidden", [3]),
    ],
)
def test_a_set_policy_is_that_of_every_environment_and_algorithm(
    overrides: list[str], key: str, value: object, tmp_path: Path
) -> None:
    trials = opened(tmp_path, OWN_POLICIES, overrides=overrides)
    assert [settings(trial, "policy")[key] for trial in trials] == [value] * 4


def test_a_set_template_is_that_of_every_environment_and_algorithm(tmp_path: Path) -> None:
    trials = open_grid("ci", overrides=["policy.template=linear"], out=tmp_path)[1]
    assert {template(trial) for trial in trials} == {"linear"}
    text = OWN_POLICIES.replace("hidden = [8]", "")
    for overrides in (["policy.template=linear"], ['policy={template="linear"}']):
        assert {template(t) for t in opened(tmp_path, text, overrides=overrides)} == {"linear"}
    mixed = ["algorithms.pgpe.policy.template=mlp", "policy.template=linear"]
    for overrides in (mixed, mixed[::-1]):
        trials = opened(tmp_path, text, overrides=overrides)
        assert [template(trial) for trial in trials] == ["linear", "mlp"] * 2


@pytest.mark.parametrize(
    "override",
    ["name=renamed", 'policy={template="linear"}', "policy.bias=true", "budget.env_steps=5"],
)
def test_a_key_of_the_grid_is_no_setting_of_an_agent(override: str) -> None:
    own: dict[str, Any] = {"name": "kept", "policy": {"bias": 1}, "budget": {"env_steps": 7}}
    agents: dict[str, Any] = {
        "mine": {"algorithm": "own_agents:Climber", **own},
        "ppo": {"policy": "MlpPolicy"},
    }
    table = {"environments": ["CartPole-v1"], "algorithms": {**agents, "snes": {}}}
    found = compose_grid(table, overrides=[override])[0].algorithms
    assert {label: found[label] for label in agents} == agents


@pytest.mark.parametrize(
    "override",
    ["policy.hidden=[8]", 'policy={template="linear"}', "environment.CartPole-v1.policy.bias=true"],
)
def test_a_policy_is_refused_where_only_agents_would_get_it(override: str) -> None:
    names = ["ppo", "own_agents:Climber"]
    with pytest.raises(UsageError, match=r"only agents \(ppo, own_agents:Climber\)"):
        compose_grid(None, ["CartPole-v1"], names, overrides=[override])
    compose_grid(None, ["CartPole-v1"], [*names, "snes"], overrides=[override])
    compose_grid("mujoco", ["Hopper-v5"], ["ppo"])  # the suite's policy is that of its searches


def test_what_comes_from_the_environments_file_is_known() -> None:
    table = {
        "name": "test",
        "seeds": [0],
        "environments": ["CartPole-v1"],
        "algorithms": {
            "openai_es": {},
            "some": {"algorithm": "openai_es", "weight_decay": 0.1},
            "radius": {"algorithm": "openai_es", "radius": 2.0},
            "here": {"algorithm": "openai_es"},
            "snes": {},
        },
        "environment": {"CartPole-v1": {"algorithms": {"here": {"learning_rate": 0.3}}}},
    }
    trials = grid_trials(parse_grid(table, "test"), Path("out"), "test")
    assert {trial.labels["algorithm"]: trial.inherited for trial in trials} == {
        "openai_es": ("population_size", "sigma", "learning_rate", "weight_decay"),
        "some": ("population_size", "sigma", "learning_rate"),
        "radius": ("population_size", "learning_rate", "weight_decay"),
        "here": ("population_size", "sigma", "weight_decay"),
        "snes": (),
    }


def test_the_environments_of_an_algorithm_may_have_gymnasiums_names() -> None:
    trials = trials_of(
        {
            "environments": ["ALE/Pong-v5", "CartPole-v1"],
            "algorithms": {"openai_es": {"environments": ["ALE/Pong-v5"]}, "snes": {}},
            "seeds": [0],
        }
    )
    found = [(trial.labels["environment"], trial.labels["algorithm"]) for trial in trials]
    assert found == [
        ("esbench/Pong-v5", "openai_es"), ("esbench/Pong-v5", "snes"), ("CartPole-v1", "snes")
    ]  # fmt: skip


def test_the_command_line_displaces_an_alternative_of_an_environment(tmp_path: Path) -> None:
    text = (
        'environments = ["CartPole-v1"]\nseeds = [0]\n[algorithms.pgpe]\n'
        '[environment."CartPole-v1".algorithms.pgpe]\nsigma = 0.1\n'
    )
    (trial,) = opened(tmp_path, text, overrides=["algorithms.pgpe.radius=3.0"])
    assert settings(trial, "algorithm")["radius"] == 3.0
    assert settings(trial, "algorithm")["sigma"] is None


@pytest.mark.parametrize("place", ["algorithm", "environment"])
def test_a_template_replaces_no_labeled_policies(place: str) -> None:
    linear = {"policy": {"template": "linear"}}
    table = {
        "policies": {"small": {"template": "linear"}, "net": {"template": "mlp"}},
        "algorithms": {"cma_es": linear if place == "algorithm" else {}},
        "environment": {} if place == "algorithm" else {"CartPole-v1": linear},
    }
    with pytest.raises(UsageError, match=r"policy\.template"):
        trials_of(table)
    one = {**table, "policies": {"net": {"template": "mlp"}}}
    assert {template(trial) for trial in trials_of(one)} == {"linear"}


def test_a_default_version_of_ars_does_not_contradict_the_policy_of_the_grid() -> None:
    raw = {"policy": {"normalize_observations": False}}
    with pytest.raises(UsageError, match=r"normalize_observations: .*'V2-t'.* another version"):
        trials_of({**raw, "algorithms": {"ars": {}}})
    with pytest.raises(UsageError, match="version"):
        trials_of({"algorithms": {"ars": raw}})
    for version, normalizes in (("V1", False), ("V2", True)):
        (trial,) = trials_of({**raw, "seeds": [0], "algorithms": {"ars": {"version": version}}})
        assert settings(trial, "policy")["normalize_observations"] is normalizes
    (trial,) = trials_of({"seeds": [0], "algorithms": {"ars": {}}})
    assert settings(trial, "policy")["normalize_observations"] is True
