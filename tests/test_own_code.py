"""A person's own code has a version too: who edits an environment between two seeds is told."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Run

from esbench.origins import mixture, was_mixed
from esbench.own_code import own_code
from esbench.provenance import provenance
from esbench.spec import TrialSpec
from esbench.trials import Trial

MakeSpec = Callable[..., TrialSpec]
ENVIRONMENT = """
import gymnasium
import numpy as np

class Hold(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1)
        return self.x.copy(), {}

    def step(self, action):
        self.x = np.clip(self.x + 0.1 * action, -10, 10)
        return self.x.copy(), -float(self.x[0] ** 2), False, False, {}

if "Hold-v0" not in gymnasium.registry:
    gymnasium.register("Hold-v0", Hold, max_episode_steps=20)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a file with an environment, which can be imported as ``holding``."""
    import gymnasium

    path = tmp_path / "holding.py"
    path.write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("holding")
    yield path
    del sys.modules["holding"], gymnasium.registry["Hold-v0"]


def test_a_file_has_its_digest(own: Path, make_spec: MakeSpec) -> None:
    spec = make_spec("holding:Hold-v0")
    before = own_code(spec)
    assert list(before) == ["holding"]
    assert before["holding"].startswith("sha256:")
    assert provenance(spec)["own_code"] == before
    own.write_text(f"{ENVIRONMENT}\n# another\n")
    assert own_code(spec) != before
    own.write_text(ENVIRONMENT)
    assert own_code(spec) == before


def test_it_is_known_by_its_class_where_the_name_has_no_package(
    own: Path, make_spec: MakeSpec
) -> None:
    assert list(own_code(make_spec("Hold-v0"))) == [own.stem]


def test_a_package_is_all_its_files(tmp_path: Path, own: Path, make_spec: MakeSpec) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "wide.py").write_text("class Wide: ...")
    policy = {"template": "module", "factory": "nets.wide:Wide"}
    spec = make_spec("holding:Hold-v0").model_copy(
        update={"policy": make_spec().policy.model_copy(update={"settings": policy})}
    )
    before = own_code(spec)
    assert sorted(before) == ["holding", "nets"]
    (package / "layers.py").write_text("")
    after = own_code(spec)
    assert after["nets"] != before["nets"]
    assert after["holding"] == before["holding"]


@pytest.mark.parametrize("name", ["CartPole-v1", "Hopper-v5", "esbench/Sphere-v0", "Nowhere-v0"])
def test_what_is_esbenchs_or_gymnasiums_is_known_already(name: str, make_spec: MakeSpec) -> None:
    spec = make_spec("CartPole-v1")
    environment = spec.environment.model_copy(update={"id": name})
    assert own_code(spec.model_copy(update={"environment": environment})) == {}


def test_what_is_installed_has_its_version(make_spec: MakeSpec) -> None:
    from importlib.metadata import version

    spec = make_spec("CartPole-v1")
    environment = spec.environment.model_copy(update={"behavior": "rich.text:Text"})
    found = own_code(spec.model_copy(update={"environment": environment}))
    assert found == {"rich": version("rich")}


def test_a_table_says_that_seeds_are_of_different_code(esbench: Run, own: Path) -> None:
    run = ["run", "--env", "holding:Hold-v0", "--algorithm", "snes", "--env-steps", "300",
           "--set", "policy.hidden=[4]", "--workers", "1", "--out", "out", "--quiet",
           "--set", "evaluation.episodes=2"]  # fmt: skip
    assert esbench(*run, "--seeds", "0")[0] == 0
    own.write_text(ENVIRONMENT.replace("0.1 * action", "0.2 * action"))
    code, printed, _ = esbench(*run, "--seeds", "0-1")
    said = " ".join(printed.split())
    assert code == 0
    versions = [
        json.loads(path.read_text())["own_code"]["holding"]
        for path in sorted(own.parent.rglob("trial.json"))
    ]
    assert len(set(versions)) == 2
    assert f"seeds of different code, holding {' and '.join(versions)}." in said
    code, printed, _ = esbench("verify", "out", "--workers", "1")
    said = " ".join(printed.split())
    assert code == 1
    assert f"what has changed: holding {' then, '.join(versions)} now" in said


def test_a_trial_that_is_resumed_under_other_code_says_so(
    own: Path, make_trial: Callable[..., Trial]
) -> None:
    trial = make_trial("holding:Hold-v0")
    trial.folder.path.mkdir(parents=True)
    about = {"labels": trial.labels, "versions": {"numpy": "2"}, "workers": 1}
    ours, theirs = {"own_code": own_code(trial.spec)}, {"own_code": {own.stem: "sha256:0"}}
    trial.folder.begin(trial.spec, about | ours)
    trial.folder.begin(trial.spec, about | ours)
    description = trial.folder.description()
    assert "resumed_with" not in description
    assert not was_mixed(description)
    assert mixture([description]) == []
    trial.folder.begin(trial.spec, about | theirs)
    trial.folder.close()
    description = trial.folder.description()
    assert len(description["resumed_with"]) == 1
    assert was_mixed(description)
    assert mixture([description]) == [f"holding {ours['own_code']['holding']} and sha256:0"]
    older = {key: value for key, value in description.items() if key != "own_code"}
    assert not was_mixed(older)  # nobody knows


def test_the_nearest_name_has_its_package(esbench: Run, own: Path) -> None:
    arguments = ["plan", "--env", "holding:Holdd-v0", "--algorithm", "snes", "--seeds", "0"]
    code, _, complaint = esbench(*arguments)
    assert code == 2
    assert f"did you mean '{own.stem}:Hold-v0'?" in complaint
