"""A name with a module is what that module registers; one without is Gymnasium's own."""

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import esbench
from esbench.core.errors import UsageError
from esbench.environments import specifications
from esbench.environments.make_environment import make_environment
from esbench.environments.specifications import nearest_name, specification
from esbench.grids.environment_files import load_environment
from esbench.store.find_trials import find_trials

CARTPOLE = "gymnasium.envs.classic_control:CartPoleEnv"
STEPS = {"first": 11, "second": 22, "helped": 33, "again": 44, "package.inner": 55}
LINES = {
    "first": [""],
    "second": ["import first"],  # which registers the same name before
    "third": ["import first, second"],
    "helped": ["import helper", "helper.register({id!r}, {steps})"],
    "again": [],
    "package": ["import package.inner, first"],
    "package.inner": [""],
    "helper": [
        "def register(name, steps):",
        f"    gymnasium.register(name, {CARTPOLE!r}, max_episode_steps=steps)",
    ],
}
NUMBERS = itertools.count()


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name that the modules of ``STEPS`` register with different limits; ``again`` CartPole."""
    found = f"Mine{next(NUMBERS)}-v0"
    (tmp_path / "package").mkdir()
    for module, lines in LINES.items():
        steps, registered = STEPS.get(module, 0), "CartPole-v1" if module == "again" else found
        text = [each.format(id=found, steps=steps) if "{id" in each else each for each in lines]
        if steps and module != "helped":
            text += [f"gymnasium.register({registered!r}, {CARTPOLE!r}, max_episode_steps={steps})"]
        file = "package/__init__" if module == "package" else module.replace(".", "/")
        (tmp_path / f"{file}.py").write_text("\n".join(["import gymnasium", *text]))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    monkeypatch.setattr(specifications, "_NOTED", {})
    kept = dict(gymnasium.registry)
    yield found
    gymnasium.registry.clear()
    gymnasium.registry.update(kept)
    for module in LINES:
        sys.modules.pop(module, None)


def limit(name: str) -> int | None:
    return specification(name).max_episode_steps


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("order", [*itertools.permutations(["first", "second", "helped"])])
@pytest.mark.parametrize("imported", [(), ("second",), ("helped", "first"), ("third", "helped")])
def test_the_order_of_imports_changes_no_specification(
    name: str, order: tuple[str, ...], imported: tuple[str, ...]
) -> None:
    for module in imported:  # by the user
        importlib.import_module(module)
    assert {each: limit(f"{each}:{name}") for each in order} == {
        each: STEPS[each] for each in order
    }
    assert {each: limit(f"{each}:{name}") for each in order}["first"] == 11
    assert limit(f"package.inner:{name}") == 55
    assert make_environment(f"first:{name}", {}).get_wrapper_attr("_max_episode_steps") == 11


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("order", [*itertools.permutations(["again:CartPole-v1", "CartPole-v1"])])
def test_a_name_without_a_module_is_gymnasiums_own(name: str, order: tuple[str, ...]) -> None:
    found = {each: limit(each) for each in order}
    assert found == {"again:CartPole-v1": 44, "CartPole-v1": 500}
    assert load_environment("CartPole-v1").scores.solved == 475.0
    assert limit("CartPole-v1") == 500


FORGET = "specifications._NOTED.clear()"  # as if esbench were imported only now
# What a process has done before, a name ("{}" is the one of the modules), and words of the refusal.
UNKNOWN = [
    ("import again", "CartPole-v1", "'again'"),
    ("import first, second", "{}", "'first', 'second'"),
    ("", "third:{}", "'first', 'second'"),  # it imports both
    (f"import first; {FORGET}", "first:{}", "import esbench"),
    (
        f"gymnasium.register('CartPole-v1', 'again:Cart'); {FORGET}",
        "CartPole-v1",
        "'again'.* in the place of Gymnasium's own",
    ),
    ("limit('first:{}')", "{}", "'first:Mine"),  # by luck
]


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize(("before", "wanted", "words"), UNKNOWN)
def test_a_name_of_unknown_meaning_is_refused(
    name: str, before: str, wanted: str, words: str
) -> None:
    exec(before.format(name), {**globals()})
    wanted = wanted.format(name)
    with pytest.raises(UsageError, match=words):
        make_environment(load_environment(wanted).id, {})
    with pytest.raises(UsageError, match=words):  # before another one is trained
        list(esbench.expand({"environments": ["Acrobot-v1", wanted], "algorithms": ["snes"]}))


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_a_module_that_is_imported_again_registers_its_new_specification(
    name: str, tmp_path: Path
) -> None:
    assert limit(f"first:{name}") == 11
    file = tmp_path / "first.py"
    file.write_text(file.read_text().replace("=11", "=1111"))
    importlib.reload(sys.modules["first"])
    assert limit(f"first:{name}") == 1111


ENVIRONMENT = """
import gymnasium, numpy
class Pays(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1).astype(numpy.float32), {}
    def step(self, action):
        return self.np_random.random(1).astype(numpy.float32), REWARD, False, False, {}
gymnasium.register("Pays-v0", Pays, max_episode_steps=3)
"""


def test_one_name_of_two_modules_is_trained_as_two_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reward in (1, 7):
        (tmp_path / f"pays{reward}.py").write_text(ENVIRONMENT.replace("REWARD", f"{reward}.0"))
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"pays{reward}:Pays-v0" for reward in (1, 7)]
    grid = {
        "environments": names,
        "algorithms": ["random_search"],
        "seeds": [0, 1],
        "budget": {"env_steps": 60},
        "evaluation": {"episodes": 2},
    }
    esbench.run(grid, out=tmp_path / "out", workers=1, quiet=True)
    results = esbench.load_results(tmp_path / "out")
    returns = results.groupby("environment")["population_return_mean"].unique()
    assert {name: list(values) for name, values in returns.items()} == {
        names[0]: [3.0],
        names[1]: [21.0],
    }
    policies = [esbench.load_policy(trial.path) for trial in find_trials(tmp_path / "out")]
    for policy in (*policies, *policies[::-1]):  # in one process
        env = policy.make_environment()
        env.reset(seed=0)
        assert f"pays{env.step(0)[1]:g}:Pays-v0" == policy.environment.id


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PongNoFrameskip-v4", "esbench/PongDeterministic-v5"),
        ("BreakoutDeterministic-v0", "esbench/BreakoutDeterministic-v5"),
        ("Breakout-ramNoFrameskip-v4", "esbench/Breakout-ram-v5"),
        ("ALE/Seaquest-v4", "esbench/Seaquest-v5"),
        ("seaquest", "esbench/Seaquest-v5"),
        ("HopperBulletEnv-v0", "Hopper-v5"),
        ("Walker2DBulletEnv-v0", "Walker2d-v5"),
        ("cartpole", "CartPole-v1"),
        ("Pendulum", "Pendulum-v1"),
        ("Ant-v9", "Ant-v5"),
        ("LunarLanderContinuous-v2", "LunarLanderContinuous-v3"),
        ("HalfCheeta-v5", "HalfCheetah-v5"),
    ],
)
@pytest.mark.parametrize("library", ["math", "ale_py"])  # the ALE registers old names when imported
def test_the_nearest_name_is_of_the_same_environment(name: str, nearest: str, library: str) -> None:
    gymnasium.register_envs(importlib.import_module(library))
    assert nearest_name(name) == f"did you mean {nearest!r}?"
    assert "esbench list" in nearest_name("xxxxxxxxxxxxxxxx")
    with pytest.raises(UsageError, match=f"did you mean '{nearest}'"):
        load_environment(name)
