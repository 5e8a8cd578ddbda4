import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from command_line import finished

import esbench
from esbench.agents.agent import AGENTS
from esbench.algorithms.base import ALGORITHMS
from esbench.core import registry as registry_module
from esbench.core.errors import UsageError
from esbench.core.registry import Registry
from esbench.core.user_code import import_object
from esbench.environments.backends.backend import BACKENDS
from esbench.environments.behaviors.behavior import BEHAVIORS
from esbench.grids.trial_spec import trainer_settings
from esbench.integrations.trackers.tracker import TRACKERS
from esbench.policies.policy import POLICIES

TORTOISE = """
from esbench.core.registry import zoo

@zoo.register("tortoise")
class Tortoise:
    pass
"""
HARE = """
from esbench.core.registry import zoo

@zoo.register("hare")
class Hare:
    pass
"""
MOUSE = HARE.replace("hare", "mouse").replace("Hare", "Mouse")


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A registry whose package has one built-in file, tortoise.py; plugins can be added."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text("")
    (tmp_path / "zoo" / "tortoise.py").write_text(TORTOISE)
    (tmp_path / "hare_plugin.py").write_text(HARE)
    (tmp_path / "lazy_plugin.py").write_text("class Lazy: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = Registry("animal", "zoo", "zoo")
    monkeypatch.setattr(registry_module, "zoo", made, raising=False)
    yield made
    for name in [*sys.modules]:
        if name.partition(".")[0] in {"zoo", "hare_plugin", "lazy_plugin", "plugp"}:
            del sys.modules[name]


@pytest.fixture
def plugins(monkeypatch):
    """The entry points of the group "zoo" that are installed."""
    installed: list[EntryPoint] = []
    monkeypatch.setattr(
        registry_module,
        "entry_points",
        lambda group: [point for point in installed if point.group == group],
    )
    return installed


def plugin(name, value, group="zoo"):
    return EntryPoint(name=name, value=value, group=group)


def test_a_class_is_found_by_its_decorator_or_by_its_file(zoo):
    class Lion:
        pass

    assert zoo.names() == ["tortoise"]
    assert zoo.get("tortoise").__name__ == "Tortoise"
    assert zoo.register("lion")(Lion) is Lion
    assert zoo.get("lion") is Lion
    zoo.register("turtle")(zoo.get("tortoise"))  # a second name
    assert zoo.names() == ["lion", "tortoise", "turtle"]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tortois", "did you mean 'tortoise'"),
        ("Tortoise", "did you mean 'tortoise'"),
        ("hara", "did you mean 'hare'"),
        ("xyz", "known: hare, tortoise"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_or_all(zoo, plugins, name, answer):
    plugins.append(plugin("hare", "hare_plugin:Hare"))
    with pytest.raises(UsageError, match=f"unknown animal '{name}'; {answer}"):
        zoo.get(name)


@pytest.mark.parametrize("listed_first", [True, False])
def test_a_plugin_is_imported_when_it_is_asked_for(zoo, plugins, listed_first):
    plugins.append(plugin("hare", "hare_plugin:Hare"))
    if listed_first:
        assert zoo.names() == ["hare", "tortoise"]
        assert zoo.get("tortoise").__name__ == "Tortoise"
    assert "hare_plugin" not in sys.modules
    assert zoo.get("hare") is sys.modules["hare_plugin"].Hare
    assert zoo.names() == ["hare", "tortoise"]


def test_plugins_of_one_package_may_load_each_other(zoo, plugins, tmp_path):
    (tmp_path / "plugp").mkdir()
    (tmp_path / "plugp" / "__init__.py").write_text(
        "from plugp.fast import Hare\nfrom plugp.small import Mouse\n"
    )
    (tmp_path / "plugp" / "fast.py").write_text(HARE)
    (tmp_path / "plugp" / "small.py").write_text(MOUSE)
    plugins += [plugin("hare", "plugp:Hare"), plugin("mouse", "plugp:Mouse")]
    zoo.get("hare")
    fresh = Registry("animal", "zoo", "zoo")  # has not looked for plugins before the classes came
    fresh._classes = zoo._classes
    for registry in (zoo, fresh):
        assert registry.names() == ["hare", "mouse", "tortoise"]
        assert registry.get("mouse") is sys.modules["plugp.small"].Mouse


REGISTRIES: dict[str, Registry[Any]] = {
    "algorithm": ALGORITHMS,
    "agent": AGENTS,
    "policy": POLICIES,
    "behavior": BEHAVIORS,
    "tracker": TRACKERS,
}


@pytest.mark.parametrize("kind", REGISTRIES)
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_two_modules_cannot_register_one_name(kind, order, monkeypatch):
    for each in REGISTRIES.values():
        monkeypatch.setattr(each, "_classes", dict(each._classes))
    register = REGISTRIES[kind].register
    first, second = (type("Mine", (), {"__module__": name}) for name in order)
    assert register("mine")(first) is first
    again = type("Mine", (), {"__module__": order[0]})  # its file is imported again
    assert register("mine")(again) is again
    with pytest.raises(UsageError, match=rf"'mine' .* by {order[0]}\.Mine and {order[1]}\.Mine"):
        register("mine")(second)
    if kind in {"algorithm", "agent"}:
        REGISTRIES["agent" if kind == "algorithm" else "algorithm"].register("mine")(second)
        with pytest.raises(UsageError, match="an algorithm and as an agent"):
            trainer_settings("mine")


TAKEN = "is registered twice: .*"


@pytest.mark.parametrize(
    ("points", "name", "complaint"),
    [
        ([("lazy", "lazy_plugin:Lazy")], "lazy", "'lazy_plugin:Lazy' .*'lazy'.* does not register"),
        ([("hare", "hare_plugin:Har")], "hare", "'hare_plugin:Har' cannot be imported .*'Har'"),
        ([("tortoise", "hare_plugin:Hare")], "", f"'tortoise' {TAKEN}hare_plugin:Hare"),
        ([("tortoise", "hare_plugin:Hare")], "none", f"'tortoise' {TAKEN}hare_plugin:Hare"),
        (
            [("hare", "hare_plugin:Hare"), ("hare", "lazy_plugin:Lazy")],
            "",
            f"'hare' {TAKEN}lazy_plugin:Lazy",
        ),
    ],
)
def test_a_wrong_plugin_is_an_error(zoo, plugins, points, name, complaint):
    plugins += [plugin(*point) for point in points]
    with pytest.raises(UsageError, match=complaint):
        zoo.get(name) if name else zoo.names()


def test_the_registries_hold_the_built_in_classes():
    assert {"openai_es", "random_search"} <= set(esbench.list_algorithms())
    assert {"linear", "mlp", "module"} <= set(esbench.list_policies())
    assert "gymnasium" in BACKENDS.names()
    assert TRACKERS.names() == ["mlflow", "tensorboard", "wandb"]
    for registry in (ALGORITHMS, POLICIES, BACKENDS, TRACKERS):
        assert registry.names() == sorted(registry.names())
        assert registry.group == f"esbench.{registry.package.rpartition('.')[2]}"
        for name in registry.names():
            assert registry.get(name).__doc__


SCRIPT = """
import torch
import esbench

with open("imports", "a") as file:
    print(__name__, file=file)

class Net(torch.nn.Linear):
    pass

if __name__ == "__main__":
    with esbench.make_trainer(
        "openai_es", env="CartPole-v1", policy=Net, out="out", budget={"generations": 1},
        evaluation={"episodes": 2}, population_size=8, workers=1,
    ) as trainer:
        trainer.train()
"""


@pytest.mark.parametrize("start", [["train.py"], ["-m", "train"]])
def test_a_class_of_a_script_is_found_by_other_processes(tmp_path: Path, start: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert finished(*start, cwd=tmp_path) == (0, "", "")
    imports = (tmp_path / "imports").read_text().split()
    assert imports.count("__main__") == 1
    assert set(imports) == {"__main__", "__mp_main__"}  # and not as "train", a second time
    (description,) = tmp_path.rglob("trial.json")
    stored = json.loads(description.read_text())
    assert stored["spec"]["policy"]["settings"]["factory"] == "train:Net"
    assert list(stored["own_code"]) == ["train"]
    if start == ["train.py"]:
        place = "out/CartPole-v1/openai_es/seed-0"
        code, out, err = finished("-m", "esbench", "eval", place, "--trust", cwd=tmp_path)
        assert (code, err, "mean" in out) == (0, "", True)


SHADOWED = """
import sys
sys.path.append(sys.path.pop(0))
from esbench.core.user_code import import_name
class Net: pass
print(import_name('policy', Net))
"""


@pytest.mark.parametrize("file", ["queue.py", "train.v2.py"])
def test_a_script_that_others_could_not_import_keeps_its_own_name(
    tmp_path: Path, file: str
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / file).write_text(SHADOWED)
    assert finished("-P", file, cwd=tmp_path) == (0, "__main__:Net\n", "")


def test_what_a_prompt_defines_is_not_found_by_other_processes() -> None:
    with pytest.raises(UsageError, match="notebook"):
        import_object("policy", "__main__:Nothing")
    with pytest.raises(UsageError, match=r"'absent', without \.py"):
        import_object("policy", "absent.py:Nothing")
