"""Names in data import nothing that the user has not named or trusted."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, execute, finished, working_in
from fake_trials import edit
from trained_cell import Rewrite

import esbench as public
from esbench.algorithms.optimizers import make_optimizer
from esbench.core.errors import UsageError
from esbench.core.user_code import TRUSTED, import_object, own_names
from esbench.environments.make_environment import WrapperSettings, make_environment
from esbench.publish.leaderboard.suites import read_suite
from esbench.results.entries import read_entry

Poison = Callable[[dict[str, Any], str], None]
# Where a specification names code.
PLACES: dict[str, Poison] = {
    "algorithm": lambda spec, name: spec["algorithm"].update(name=name),
    "optimizer": lambda spec, name: spec["algorithm"]["settings"].update(optimizer=name),
    "environment": lambda spec, name: spec["environment"].update(id=f"{name}-v0"),
    "wrapper": lambda spec, name: spec["environment"].update(wrappers=[{"wrapper": name}]),
    "behavior": lambda spec, name: spec["environment"].update(behavior=name),
    "policy": lambda spec, name: spec["policy"].update(
        template="module", settings={"factory": name}
    ),
    "kwargs": lambda spec, name: spec["environment"]["kwargs"].update(env_id=name),
}
LOOK_ALIKE = "_winapi", "numpy", "yaml", "ujson", "IPython", "matplotlib", "esbench", "typer"
TOUCH = "from pathlib import Path\nPath(r'{}').touch()\n"


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """As in a new process, the user has named nothing."""
    before = {*TRUSTED}
    TRUSTED.clear()
    yield
    TRUSTED.update(before)


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[str]:
    """The name of a class in the current folder, whose import leaves a file ``it_ran``."""
    module = f"evil_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(TOUCH.format(tmp_path / "it_ran"))
    yield f"{module}:Mine"
    sys.modules.pop(module, None)


def poison(folder: Path, name: str, *places: str) -> None:
    """Name code in the trials below a folder, as somebody else could."""

    def change(content: Any) -> None:
        for place in places or PLACES:
            PLACES[place](content["spec"], name)
        content.pop("scores", None)  # a baseline plays random actions where they have no score

    edit(folder, "trial.json", change)
    edit(folder, "state.json", change)


@pytest.mark.parametrize("place", PLACES)
def test_a_name_in_a_trial_is_imported_only_with_trust(
    esbench: Run, refused: Callable[..., str], trained: Path, evil: str, place: str
) -> None:
    poison(trained, evil, place)
    err = refused("eval", str(trained / "seed-0"), "--workers", "0")
    assert evil in err
    assert "doubles:Walk-v0" in err or place == "environment"
    assert "--trust" in err
    assert not Path("it_ran").exists()
    with pytest.raises(UsageError, match="trust=True"):
        public.load_policy(trained / "seed-0")
    esbench("eval", str(trained / "seed-0"), "--workers", "0", "--trust")
    assert Path("it_ran").exists() == (place != "kwargs")


BASELINE = "check out --baseline b.json"
RUN = "run --env CartPole-v1 --algorithm openai_es --seeds 0 --out new --set init_from='\"SEED\"'"
ACTING = (
    "eval SEED",
    "eval SEED --which best",
    "render SEED",
    "export SEED",
    "verify SEED",
    "verify out",
    "verify FILE",
    "verify FILE --sample 1",
    "verify --sample 1 --leaderboard board",
    "submit out --out new",
    "baseline out --out new.json",
    f"{BASELINE} --until-conclusive",
    *(f"{command} --env-steps 500" for command in (RUN, RUN.replace("run", "plan", 1))),
    RUN.replace("run", "tune", 1),
)
READING = (
    "table out",
    "table out --by sigma",
    "compare openai_es openai_es --in out",
    "plot out",
    "report out",
    "diagnose out",
    "status --env CartPole-v1 --algorithm openai_es --seeds 0 --out out",
    "merge out --out new",
    BASELINE,
    *(f"leaderboard board --format {each}" for each in ("text", "html", "json", "markdown")),
    "list algorithms",
    "list environments",
)


@pytest.fixture
def hostile(trained: Path, board: Path, rewrite: Rewrite, evil: str, tmp_path: Path) -> list[str]:
    """Trials, a leaderboard and a baseline that name code, and the words of their places."""
    with working_in(tmp_path):
        assert execute("baseline", "out", "--out", "b.json", "--trust") == 0

    def name_code(content: Any) -> None:
        content["spec"]["environment"].setdefault("kwargs", {})
        for place in PLACES.values():
            place(content["spec"], evil)

    def rename(content: Any) -> None:
        name_code(content["cell"])
        content["cell"].update(environment=f"{evil}-v0", algorithm="mine")

    file = rewrite(rename)
    path = tmp_path / "b.json"
    content = json.loads(path.read_text())
    name_code(content["cells"][0])
    path.write_text(json.dumps(content))
    poison(trained, evil)
    TRUSTED.clear()
    return [str(trained / "seed-0"), str(file)]


def words(command: str, hostile: list[str]) -> list[str]:
    seed, file = hostile
    return command.replace("SEED", seed).replace("FILE", file).replace("'", "").split()


@pytest.mark.parametrize("command", ACTING)
def test_a_command_that_acts_on_data_names_their_code_and_does_nothing(
    hostile: list[str], esbench: Run, refused: Callable[..., str], evil: str, command: str
) -> None:
    esbench("--version")  # drops the output of the fixture
    err = refused(*words(command, hostile))
    assert repr(evil) in err
    assert "--trust" in err
    assert str(Path.cwd()) not in sys.path


def test_reading_data_imports_nothing(
    hostile: list[str], esbench: Run, tmp_path: Path, evil: str
) -> None:
    for name in LOOK_ALIKE:
        (tmp_path / f"{name}.py").write_text(TOUCH.format(tmp_path / "it_ran"))
    for command in READING:
        code, _, err = esbench(*words(command, hostile))
        assert code in {0, 1, 2, 3, 4}
        assert "Traceback" not in err
        assert str(tmp_path) not in sys.path, command
        assert evil.partition(":")[0] not in sys.modules, command
        assert not Path("it_ran").exists(), command


def test_a_new_process_imports_nothing_from_the_current_folder(
    tmp_path: Path, trained: Path
) -> None:
    for name in {*LOOK_ALIKE} - {"esbench"}:  # which Python itself imports for "-m esbench"
        (tmp_path / f"{name}.py").write_text(TOUCH.format(tmp_path / "it_ran"))
    code, _, err = finished("-m", "esbench", "report", "out", cwd=tmp_path)
    assert (code, (tmp_path / "it_ran").exists()) == (0, False), err


def test_the_suites_leave_out_entries_that_name_code(hostile: list[str]) -> None:
    assert not read_suite("quick", [read_entry(Path(hostile[1]))]).shown


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("gymnasium.wrappers:ClipReward", True),
        ("esbench.environments.wrappers:NewInstance", True),
        ("torch.optim.adam:Adam", True),
        ("ale_py:PongNoFrameskip-v4", True),
        ("ale_py_evil:Pong-v4", False),
        ("gymnasium.wrappers:RecordVideo", False),
        ("gymnasium.wrappers.vector:RecordVideo", False),
        ("gymnasium.wrappers.utils:RunningMeanStd", False),
        ("gymnasium.wrappers:sys.modules", False),
        ("gymnasium:make", False),
        ("esbench_evil:Mine", False),
        ("torch.optimal:Adam", False),
        ("torch:load", False),
        (" pydoc:pipepager", False),
        ("mine:Maze-v0", False),
        ("a:", False),
        (":a", False),
    ],
)
def test_the_names_that_need_no_trust(name: str, is_ours: bool) -> None:
    deep: Any = name
    for _ in range(3000):
        deep = [deep]
    for spec in ({"a": name}, {"a": [{"b": ["c", name]}]}, {"a": {"init_from": name}}, {"a": deep}):
        assert own_names([spec]) == ([] if is_ours else [name])
    assert own_names([{"init_from": {"trial": name}}]) == []


def test_what_a_grid_names_is_trusted_in_its_process(
    esbench: Run, trained: Path, make_trial: Callable[..., Any]
) -> None:
    make_trial("doubles:Walk-v0")
    assert esbench("eval", str(trained / "seed-0"), "--workers", "0")[0] == 0


# Objects of another kind are not called


OWN = """
import functools, os
from pathlib import Path
from not_{name} import touch
import gymnasium, torch

class Other:
    def __init__(self, *arguments, **settings):
        Path(r"{place}").touch()

class Reward(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

def twice(env):
    return Reward(env)

def number(env):
    return 1

def net(inputs, outputs):
    return torch.nn.Linear(inputs, outputs)

part = functools.partial(Other)
shell = os.system
"""
NOT_OWN = """
from pathlib import Path

def touch(*arguments, **settings):
    Path(r"{place}").touch()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{abs(hash(tmp_path))}"
    for file, text in ((name, OWN), (f"not_{name}", NOT_OWN)):
        text = text.format(name=name, place=tmp_path / "it_ran")
        (tmp_path / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def make(kind: str, name: str) -> None:
    if kind == "wrapper":
        make_environment("CartPole-v1", {}, (WrapperSettings(wrapper=name),)).close()
    elif kind == "policy":
        public.check_policy(name)
    elif kind == "optimizer":
        make_optimizer(name, 2, 0.1, {})
    elif kind == "environment":
        make_environment(name, {}).close()
    else:
        public.make_algorithm(name, num_params=2)


@pytest.mark.parametrize("kind", ["wrapper", "policy", "optimizer", "algorithm"])
@pytest.mark.parametrize(
    "name",
    [
        *("OWN:Other", "OWN:part", "OWN:shell", "OWN:os.system", "OWN:touch"),
        *("pydoc:pipepager", "subprocess:Popen", "antigravity:x", "esbench.core.files:replace"),
        "gymnasium:make",
    ],
)
def test_what_is_of_another_kind_is_refused_before_it_is_called(
    tmp_path: Path, own: str, kind: str, name: str
) -> None:
    given = name.replace("OWN", own)
    with pytest.raises(UsageError, match=given):
        make(kind, given)
    assert not (tmp_path / "it_ran").exists()
    assert "antigravity" not in sys.modules


def test_functions_of_a_users_own_make_wrappers_and_policies(own: str) -> None:
    make("wrapper", f"{own}:twice")
    assert import_object("policy", f"{own}:net", np.ndarray, or_function=True)
    with pytest.raises(UsageError, match="made a int"):
        make("wrapper", f"{own}:number")


# Code of the user's own in the current folder


NEARBY = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from esbench import Behavior
from esbench.algorithms.openai_es import OpenAIES

class Near(CartPoleEnv):
    pass

gymnasium.register("Near-v0", Near, max_episode_steps=20)

class Reward(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

class Mine(OpenAIES):
    pass

class Last(Behavior):
    def begin(self, view): ...
    def step(self, view): ...
    def end(self, view):
        return view.observation

def call(record): ...
"""
GRID = """
name = "near"
environments = ["NEAR:Near-v0"]
seeds = [0]
budget = {env_steps = 200}
evaluation = {episodes = 2}
policy = {template = "linear"}
environment."NEAR:Near-v0" = {wrappers = [{wrapper = "NEAR:Reward"}], behavior = "NEAR:Last"}
algorithms.mine = {algorithm = "NEAR:Mine", population_size = 4}
"""


def test_own_code_in_the_current_folder_is_found_by_all_processes(
    esbench: Run, tmp_path: Path
) -> None:
    near = f"near_{abs(hash(tmp_path))}"
    (tmp_path / f"{near}.py").write_text(NEARBY)
    (tmp_path / "grid.toml").write_text(GRID.replace("NEAR", near))
    code, _, err = esbench("run", "grid.toml", "--workers", "2", "--callback", f"{near}:call")
    assert code == 0, err
    (trial,) = (str(path.parent) for path in tmp_path.rglob("trial.json"))
    TRUSTED.clear()
    sys.path.remove(str(tmp_path))
    code, out, err = esbench("eval", trial, "--workers", "0", "--trust")
    assert (code, "identical" in out) == (0, True), err
    assert esbench("list", "--settings", f"{near}:Mine")[0] == 0
    warm = RUN.replace("SEED", trial).replace("'", "").split()
    warm[2] = f"{near}:Near-v0"
    warm += ["--set", "policy.template=linear", "--env-steps", "50", "--workers", "0"]
    TRUSTED.clear()
    code, _, err = esbench(*warm)
    assert (code, f"'{near}:Mine'" in err, f"'{near}:Near-v0'" in err) == (2, True, False)
    code, _, err = esbench(*warm, "--trust", "--quiet")
    assert code == 0, err
