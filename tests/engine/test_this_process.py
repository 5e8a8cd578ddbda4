"""Training in the calling process, as with workers=0 and for what a notebook defines."""

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
import torch
from command_line import Run, finished
from doubles import Walk
from threadpoolctl import threadpool_info, threadpool_limits
from trainers import results
from watchers import Watcher

import esbench as public
from esbench.algorithms.openai_es import OpenAIES
from esbench.core.errors import EnvironmentFailedError, UsageError
from esbench.engine.this_process import ThisProcess
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.run_grid import layout_of, run_grid
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial
from esbench.experiment.watchers import Limits
from esbench.grids.trial_spec import TrialSpec
from esbench.store.cell_code import cell_code
from esbench.store.own_code import read_again, user_code

Spec = Callable[..., TrialSpec]
SMALL: dict[str, Any] = {
    "population_size": 6,
    "policy": {"template": "linear"},
    "budget": {"generations": 3},
    "evaluation": {"episodes": 2},
}
GRID = {
    "environments": ["Cell-v0"],
    "algorithms": {"openai_es": {"population_size": 6}},
    "seeds": [0],
    "budget": {"generations": 2},
    "evaluation": {"episodes": 2},
    "policy": {"template": "linear"},
}


DIFFERS = """
import os
from doubles import Walk
import gymnasium

class Mine(Walk):
    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation * 0 + os.getpid() % 10007, info

gymnasium.register("Differs-v0", Mine, max_episode_steps=5)
"""


class Cell(Walk):
    """What a cell of a notebook defines; ``at_step`` is called in every step."""

    at_step = staticmethod(lambda: None)

    def step(self, action: Any) -> Any:
        self.at_step()
        return super().step(action)


class Net(torch.nn.Linear):
    """A network of a cell."""


class Twice(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of a cell."""


class Descent(torch.optim.SGD):
    """An optimizer of a cell."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As in a notebook, the main module has no file, and has defined the classes."""
    main = ModuleType("__main__")
    for cls in (Cell, Net, Twice, Descent):
        monkeypatch.setattr(cls, "__module__", "__main__")
        vars(main)[cls.__name__] = cls
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    exec("import gymnasium; gymnasium.register('Cell-v0', Cell, max_episode_steps=50)", vars(main))
    yield
    del gymnasium.registry["Cell-v0"]


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: WorkerPool) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr(WorkerPool, "start", start)


@pytest.mark.usefixtures("notebook", "no_workers")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workers": 0},
        {"policy": Net},
        {"env": "CartPole-v1", "policy": {"template": Net, "arguments": {"bias": False}}},
        {"environment": {"wrappers": [{"wrapper": Twice}]}},
        {"env": "CartPole-v1", "policy": Net, "optimizer": Descent},
    ],
)
def test_what_a_notebook_defines_is_trained_without_workers(changes: dict[str, Any]) -> None:
    options = {"env": "Cell-v0", **SMALL, **changes}
    with public.make_trainer("openai_es", **options) as trainer:
        notices: list[str] = []
        trainer._pool.notice = notices.append
        trainer.train()
        assert trainer.progress.generation == 3
        assert trainer.evaluate().returns.size == 2
    assert len(notices) == ("workers" not in changes)  # says that no worker plays


@pytest.mark.usefixtures("notebook", "no_workers")
def test_a_grid_of_a_notebook_is_trained_scored_and_verified_without_workers() -> None:
    frame = public.run(GRID, out="out", quiet=True)
    assert frame["status"].tolist() == ["done"]
    (score,) = public.evaluate("out", every=True).values()
    assert getattr(score, "identical", False)
    (report,) = public.verify("out")
    assert report.outcome == "identical"
    public.check_environment("Cell-v0")
    assert public.plan(GRID, out="new").seconds > 0


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "environment 'Cell-v0'"),
        ({"env": "CartPole-v1", "policy": Net}, "policy '__main__:Net'"),
        (
            {"env": "CartPole-v1", "environment": {"wrappers": [{"wrapper": Twice}]}},
            "environment '__main__:Twice'",
        ),
    ],
)
def test_workers_refuse_what_a_notebook_defines_and_name_the_remedy(
    changes: dict[str, Any], name: str
) -> None:
    with (
        public.make_trainer("snes", **{"env": "Cell-v0", "workers": 1, **SMALL, **changes}) as one,
        pytest.raises(UsageError) as caught,
    ):
        one.train()
    assert name in str(caught.value)
    assert "workers=0" in str(caught.value)
    assert "mine.py" in str(caught.value)


@pytest.mark.usefixtures("notebook")
def test_workers_say_which_name_they_need_for_an_imported_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_here.py").write_text(DIFFERS.replace("os.getpid()", "0"))
    monkeypatch.syspath_prepend(tmp_path)
    exec("import imported_here", vars(sys.modules["__main__"]))
    with (
        public.make_trainer("snes", env="Differs-v0", workers=1, **SMALL) as trainer,
        pytest.raises(UsageError, match="workers=0.*'imported_here:Differs-v0'"),
    ):
        trainer.train()
    with public.make_trainer("snes", env="Differs-v0", **SMALL) as trainer:
        trainer.train()
        assert isinstance(trainer._pool, ThisProcess)


REGISTER = "gymnasium.registry.pop('Cell-v0')\ngymnasium.register('Cell-v0', {})"
WRAPPER = "additional_wrappers=(WrapperSpec('Autoreset', 'gymnasium.wrappers:Autoreset', {}),)"
SEEN = "SEEN = {}\nCell.at_step = staticmethod(lambda: SEEN)"
BEGIN = """
import functools
from doubles import Walk
from gymnasium.envs.registration import WrapperSpec
SCALE, LENGTH = 1.0, 8
def used(): return SCALE
"""
STEP = "Cell.step = lambda self, action: Walk.step(self, {})"
ONCE = STEP.format("1 * action")
CELL, ENTRY = REGISTER.format("Cell"), "(register|Cell)"
# What cells do before each of two runs, an edit, and what has changed before the third.
EDITS = {
    "nothing": (ONCE, "", ""),
    "another function": (ONCE, "def helper(x): return x + 1", ""),
    "a sign": (ONCE, STEP.format("1 * -action"), "Cell"),
    "a constant": (ONCE, STEP.format("2 * action"), "Cell"),
    "an attribute": (ONCE, "Cell.gain = 2.0", "Cell"),
    "another method": (ONCE, "Cell.at_step = lambda self: used()", "Cell"),
    "data": (SEEN, "SEEN[1] = 2", r"SEEN\."),
    "an argument": (CELL, REGISTER.format("Cell, kwargs={'length': 5}"), ENTRY),
    "the time limit": (CELL, REGISTER.format("Cell, max_episode_steps=5"), ENTRY),
    "a wrapper": (CELL, REGISTER.format(f"Cell, {WRAPPER}"), ENTRY),
    "a maker": (CELL, REGISTER.format("lambda **given: Cell(length=9)"), ENTRY),
    "a partial": (CELL, REGISTER.format("functools.partial(Cell, length=9)"), ENTRY),
    "what a maker names": (
        REGISTER.format("lambda **given: Cell(length=LENGTH)"), "LENGTH = 9", ENTRY,
    ),
    "what a partial names": (REGISTER.format("functools.partial(Cell)"), "Cell.gain = 3", ENTRY),
}  # fmt: skip


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(("before", "edit", "changed"), EDITS.values(), ids=EDITS)
def test_a_grid_notices_edits_of_the_cells_and_registrations_that_it_uses(
    monkeypatch: pytest.MonkeyPatch, before: str, edit: str, changed: str
) -> None:
    main = vars(sys.modules["__main__"])
    for name in ("step", "at_step"):
        monkeypatch.setattr(Cell, name, vars(Cell)[name])
    monkeypatch.setattr(Cell, "gain", 1.0, raising=False)
    exec(BEGIN, main)
    for _ in range(2):
        exec(before, main)
        public.run(GRID, out="out", quiet=True)
    exec(edit, main)
    refused = pytest.raises(UsageError, match=f"__main__:{changed}")
    with refused if changed else contextlib.nullcontext():
        public.run(GRID, out="out", quiet=True)


def all_code(name: str) -> Any:
    """The code of what a cell defines, and of the data that it names."""
    code = cell_code(name)
    return code and (code, [all_code(each) for each in sorted(code.data)])


PRELUDE = """
import cmath, collections, dataclasses, enum, functools, math, pathlib, types
import numpy as np, torch
from gymnasium import spaces
@dataclasses.dataclass
class Config: gain: float
@dataclasses.dataclass(slots=True)
class Slots: gain: float
class Plain:
    def __init__(self, gain): self.gain = gain
class Kind(enum.Enum): A, B = 1, 2
class Holding:
    __slots__ = ("gain",)
    def __init__(self, gain): self.gain = gain
class Holder(Holding):
    def get(self): return self.gain
"""
VALUES = [
    ("[1, [2]]", "[1, [3]]"),
    ("{'a': {'b': 1}}", "{'a': {'b': 2}}"),
    ("{1, 2}", "{1, 3}"),
    ("(1, [2])", "(1, [3])"),
    ("np.array([0.0, 1.0])", "np.array([0.0, 2.0])"),
    ("np.zeros(3)", "np.zeros(3, np.float32)"),
    ("np.float64(1)", "np.float64(2)"),
    ("torch.ones(2)", "torch.zeros(2)"),
    ("spaces.Box(-1, 1, (2,))", "spaces.Box(-1, 0.5, (2,))"),
    ("spaces.Dict(a=spaces.Discrete(2))", "spaces.Dict(a=spaces.Discrete(3))"),
    ("Config(1)", "Config(2)"),
    ("Slots(1)", "Slots(2)"),
    ("Plain([1])", "Plain([2])"),
    ("Kind.A", "Kind.B"),
    ("types.SimpleNamespace(gain=1)", "types.SimpleNamespace(gain=2)"),
    ("functools.partial(max, 1)", "functools.partial(max, 2)"),
    ("Holder(1).get", "Holder(2).get"),
    ("Holder(1)", "Holder(2)"),
    ("Holding(1)", "Holding(2)"),
    ("collections.deque([1, [2]])", "collections.deque([1, [3]])"),
    ("pathlib.Path('a')", "pathlib.Path('b')"),
    ("range(3)", "range(4)"),
    ("torch.ones(2, requires_grad=True)", "torch.zeros(2, requires_grad=True)"),
    ("10**5000", "10**5000 + 1"),
    ("np.tanh", "np.exp"),
    ("torch.nn.Tanh", "torch.nn.ReLU"),
    ("math.sqrt", "cmath.sqrt"),
    ("math", "cmath"),
]
SPACE = "action_space = spaces.Box(-{}, 1, (2,))"
DECORATED = """
import functools
def by(f):
    @functools.wraps(f)
    def call(*arguments): return f(*arguments)
    return call
"""


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(
    ("cell", "edited"),
    [
        ("def used(a): return a in {1, 2}", "def used(a): return a in {1, 3}"),
        (
            "SCALE = 1.0\ndef f(): return SCALE\nclass used:\n def go(self): return f()",
            "SCALE = 2.0",
        ),
        ("def used(*, gain=1.0): pass", "def used(*, gain=2.0): pass"),
        ("def used(x, act=torch.relu): pass", "def used(x, act=torch.tanh): pass"),
        (
            "class used:\n @torch.no_grad()\n def f(self): return 1",
            "class used:\n @torch.no_grad()\n def f(self): return 2",
        ),
        (f"{DECORATED}\n@by\ndef used(): return 1", f"{DECORATED}\n@by\ndef used(): return 2"),
        ("class used: pass\nused.own, used.gain = used, 1", "used.gain = 2"),
        ("@functools.cache\ndef used(): return 1", "@functools.cache\ndef used(): return 2"),
        (
            "class used:\n @functools.cached_property\n def f(self): return 1",
            "class used:\n @functools.cached_property\n def f(self): return 2",
        ),
        (f"class used: {SPACE.format(1)}", f"class used: {SPACE.format(2)}"),
        *((f"class used: value = {one}", f"class used: value = {other}") for one, other in VALUES),
        *(
            (f"VALUE = {one}\ndef used(): return VALUE", f"VALUE = {other}")
            for one, other in VALUES
        ),
    ],
)
def test_every_part_of_the_code_of_a_cell_counts(cell: str, edited: str) -> None:
    main = vars(sys.modules["__main__"])
    exec(PRELUDE, main)
    exec(cell, main)
    before = all_code("used")
    exec(cell, main)
    assert all_code("used") == before
    exec(edited, main)
    assert all_code("used") != before


@pytest.mark.usefixtures("notebook")
def test_the_code_of_a_cell_has_no_addresses() -> None:
    main = vars(sys.modules["__main__"])
    main["torch"], digests = torch, set[str | None]()
    for _ in range(2):
        exec("def used(x, act=torch.relu, other=(object(), lambda: 0)): pass", main)
        digests.add(cell_code("used"))
    assert len(digests) == 1


@pytest.mark.usefixtures("notebook")
def test_attributes_are_no_names_of_the_notebook_and_playing_is_no_edit() -> None:
    main = vars(sys.modules["__main__"])
    exec("from gymnasium import spaces\nlosses = []\nclass used:\n s = spaces.Discrete(2)", main)
    exec("used.f = lambda self: self.losses", main)
    before = cell_code("used")
    main["losses"].append(1)
    main["used"].s.sample()
    assert cell_code("used") == before
    assert cell_code("missing") is None


STRANGE = {
    "an attribute that fails": (
        "class A:\n def __init__(s): s.__dict__['d'] = {}\n"
        " def __getattr__(s, name): return s.d[name]\nVALUE = A()"
    ),
    "an attribute without an end": ("class A:\n def __getattr__(s, name): return A()\nVALUE = A()"),
    "a deep list": "VALUE = []\nfor _ in range(2000): VALUE = [VALUE]",
    "a list of itself": "VALUE = []\nVALUE.append(VALUE)",
    "a text that fails": ("class A:\n def __repr__(s): raise KeyError\nVALUE = {A()}"),
    "an array that fails": (
        "class A:\n dtype = 1\n def __array__(s, *_, **__): raise SystemExit\nVALUE = A()"
    ),
    "an attribute without a name": "class A: pass\nVALUE = A()\nvars(VALUE).update({1: 2, 'a': 3})",
    "a surrogate": "VALUE = '\\ud800'",
    "functions in a set": "def f(): pass\nVALUE = {f}",
    "objects in a set": "class A: pass\nVALUE = {A()}",
    "texts in a set": "VALUE = {frozenset('abcdef')}",
}
DIGESTS = """
import sys
from esbench.store.cell_code import cell_code
exec(sys.argv[1] + "\\ndef used(): return VALUE")
codes = [cell_code(name) for name in ("used", "VALUE")]
print(*(code.digest for code in codes))
"""


@pytest.mark.parametrize("source", STRANGE.values(), ids=STRANGE)
def test_strange_data_of_a_cell_stop_nothing_and_are_the_same_in_every_process(source: str) -> None:
    environments = ({"PYTHONHASHSEED": seed} for seed in "12")
    first, other = (finished("-c", DIGESTS, source, env=each) for each in environments)
    assert (first[0], first[2]) == (0, "")
    assert first == other


FROM_A_FILE = {
    "a module": "import cell_helper\ndef used(): return cell_helper.layer()",
    "a function": "from cell_helper import layer\ndef used(): return layer()",
    "an attribute": "from cell_helper import layer\nclass used: own = layer",
    "a default": "from cell_helper import layer\ndef used(f=layer): return f()",
    "a base": "from cell_helper import Base\nclass used(Base): pass",
    "a base in a module": "import cell_helper\nclass used(cell_helper.Base): pass",
    "an import in a function": "def used():\n from cell_helper import layer\n return layer()",
}


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize("source", FROM_A_FILE.values(), ids=FROM_A_FILE)
def test_a_file_that_a_cell_uses_belongs_to_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_spec: Spec, source: str
) -> None:
    (tmp_path / "cell_helper.py").write_text("class Base: pass\ndef layer(): return 1")
    monkeypatch.syspath_prepend(tmp_path)
    exec(source, vars(sys.modules["__main__"]))
    spec = make_spec("CartPole-v1", policy={"template": "__main__:used"})
    read_again([spec])
    assert list(user_code(spec)) == ["__main__:used", "cell_helper"]
    sys.modules.pop("cell_helper", None)


@pytest.mark.usefixtures("notebook")
def test_a_folder_that_cannot_be_written_is_named_and_needed_only_for_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_only = os.strerror(errno.EROFS)

    def refuse(path: str, *_: Any) -> None:
        raise OSError(errno.EROFS, read_only, path)

    monkeypatch.setattr(os, "mkdir", refuse)
    for call in (
        lambda: public.run(GRID, quiet=True),
        lambda: public.make_trainer("snes", env="Cell-v0", out="out"),
    ):
        with pytest.raises(UsageError, match=f"cannot write .*{read_only}") as caught:
            call()
        assert "\n" not in str(caught.value)
    with public.make_trainer("snes", env="Cell-v0", **SMALL) as trainer:
        trainer.train()
    assert not any(Path().iterdir())


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize(
    ("settings", "module", "name"),
    [
        ({}, "__main__", "algorithm 'openai_es'"),
        ({"optimizer": "__main__:Descent"}, None, "optimizer '__main__:Descent'"),
    ],
)
def test_trials_side_by_side_do_not_use_what_a_notebook_defines(
    make_trial: Callable[..., Trial],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    module: str | None,
    name: str,
) -> None:
    def trials(**settings: Any) -> list[Trial]:
        budget = {"env_steps": 10**6}
        return [make_trial(seed=seed, settings=settings, budget=budget) for seed in (0, 1)]

    with WorkerPool(2) as pool:
        assert layout_of(trials(), pool).at_once == 2
        found = trials(**settings)
        if module is not None:
            monkeypatch.setattr(OpenAIES, "__module__", module)
        assert layout_of(found, pool).at_once == 1
        with pytest.raises(UsageError, match=name):
            layout_of(found, pool, 2)
        with pytest.raises(UsageError, match=f"trial_timeout with {name}"):
            run_grid(found, pool, Watcher(), limits=Limits(trial=60))


@contextlib.contextmanager
def at_step(number: int, call: Callable[[], object]) -> Iterator[None]:
    """A block in which a step of ``Cell`` calls a function."""
    left = iter(range(number))

    def count() -> None:
        if next(left, None) is None:
            Cell.at_step = staticmethod(lambda: None)
            call()

    Cell.at_step = staticmethod(count)
    try:
        yield
    finally:
        Cell.at_step = staticmethod(lambda: None)


@pytest.mark.usefixtures("notebook")
@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), SystemExit(3)])
def test_an_error_of_an_environment_names_it_and_its_line_and_training_can_go_on(
    make_spec: Spec, error: BaseException
) -> None:
    spec = make_spec("Cell-v0")

    def fail() -> None:
        raise error

    whole, trainer = SearchTrainer(spec, ThisProcess()), SearchTrainer(spec, ThisProcess())
    whole.train()
    with at_step(30, fail), pytest.raises(EnvironmentFailedError) as caught:
        trainer.train()
    for part in (type(error).__name__, "'Cell-v0'", "test_this_process.py"):
        assert part in str(caught.value)
    assert caught.value.__cause__ is error
    trainer.train()
    assert results(trainer) == results(whole)


@pytest.mark.usefixtures("notebook")
def test_environments_are_asked_made_and_played_with_one_thread(
    make_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {}

    def look(what: str) -> None:
        found = {each["num_threads"] for each in threadpool_info()}
        threads.setdefault(what, set()).update(found)

    def make(self: Cell) -> None:
        look("made")
        Walk.__init__(self)

    trainer = SearchTrainer(make_spec("Cell-v0"), ThisProcess())
    with at_step(0, lambda: look("played")), threadpool_limits(2):
        trainer._pool.ask([lambda *_: look("asked")], trainer.spec.environment)
        monkeypatch.setattr(Cell, "__init__", make)
        trainer.train()
        look("after")
    assert threads == {"asked": {1}, "made": {1}, "played": {1}, "after": {2}}


@pytest.mark.usefixtures("notebook")
def test_an_interrupt_within_a_step_saves_the_trial_and_changes_no_bit() -> None:
    grid = {**GRID, "budget": {"generations": 4}}

    def interrupt_soon(record: Any) -> None:
        if record.generation == 2:
            Cell.at_step = staticmethod(lambda: signal.raise_signal(signal.SIGINT))

    public.run(grid, out="whole", quiet=True)
    with at_step(10**9, print), pytest.raises(KeyboardInterrupt):
        public.run(grid, out="out", quiet=True, callback=interrupt_soon)
    (trial,) = public.status(grid, out="out")
    assert (trial.status, trial.generation) == ("partial", 2)
    public.run(grid, out="out", quiet=True)
    found = [next(Path(name).rglob("result.json")).read_text() for name in ("whole", "out")]
    first, second = (json.loads(text)["digest"] for text in found)
    assert first == second


def test_an_environment_that_differs_between_processes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "differing_here.py").write_text(DIFFERS)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"env": "differing_here:Differs-v0", "workers": 0, **SMALL}
    with (
        public.make_trainer("snes", **options) as trainer,
        pytest.raises(UsageError, match="two processes"),
    ):
        trainer.train()


def test_output_of_an_environment_goes_to_the_log_of_its_trial(
    esbench: Run, tmp_path: Path
) -> None:
    options = ("--seeds", "0", "--env-steps", "300", "--out", "out", "--quiet")
    trials = ("--env", "doubles:Chatty-v0", "--algorithm", "snes", *options)
    small = ("--set", "policy.hidden=[2]", "--set", "evaluation.episodes=2")
    code, out, err = esbench("run", *trials, *small, "--workers", "0")
    assert (code, "hello from Python" in out + err) == (0, False)
    assert "hello from Python" in next(tmp_path.rglob("log.txt")).read_text()


UNGUARDED = """
import esbench, gymnasium
from doubles import Walk

class Mine(Walk):
    pass

gymnasium.register("Mine-v0", Mine, max_episode_steps=5)
budget = {"generations": 2}
GRID = {"environments": ["Mine-v0"], "algorithms": ["snes"], "seeds": [0], "budget": budget}
"""


@pytest.mark.parametrize(
    ("call", "is_trained"),
    [
        ("run(GRID, quiet=True, workers=0)", True),
        ("run(GRID, quiet=True)", False),
        ("run(env='CartPole-v1', algorithm='snes', seeds=0, workers=1, at_once=1)", False),
        ("make_trainer('snes', env='doubles:Walk-v0', workers=1).train(env_steps=100)", False),
    ],
)
def test_a_script_without_a_guard_needs_to_train_without_workers(
    tmp_path: Path, call: str, is_trained: bool
) -> None:
    (tmp_path / "script.py").write_text(f"{UNGUARDED}esbench.{call}\n")
    code, out, err = finished("script.py", cwd=tmp_path)
    assert (code == 0, "done" in out) == (is_trained, is_trained)
    assert ("__name__" in err) != is_trained
    assert err.count("Traceback") == (not is_trained)
