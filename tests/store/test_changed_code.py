"""Changes of code that a trial uses, also of what that code imports, are noticed."""

import builtins
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from command_line import forget_user_code

import esbench
from esbench.core.errors import UsageError
from esbench.core.user_code import import_own
from esbench.environments.make_environment import WrapperSettings
from esbench.experiment.trials import Trial, require_same_code
from esbench.grids.trial_spec import TrialSpec
from esbench.results.sources import load_cells
from esbench.store import package_versions
from esbench.store.imported_names import imported_names
from esbench.store.own_code import changed_since, read_again, user_code

MakeSpec = Callable[..., TrialSpec]
AGENT = """
from helper import POLICY

class Agent:
    def train(self, env, env_steps, seed):
        env.reset()
        for _ in range(env_steps):
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
        return POLICY
"""
TOP = "from helper import layer"
LATE = "class Any:\n    def reset(self):\n        import helper"
KINDS: dict[str, dict[str, Any]] = {
    "agent": {"algorithm": {"name": "adapter:Any"}},
    "environment": {"environment": {"id": "adapter:Any-v0"}},
    "policy": {"policy": {"template": "adapter:Any"}},
    "wrapper": {"environment": {"wrappers": (WrapperSettings(wrapper="adapter:Any"),)}},
}


def new_process() -> None:
    """Forget the files and modules that were looked at, as another process would not know them."""
    for name in ("adapter", "helper", "far"):
        sys.modules.pop(name, None)
    forget_user_code()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of modules that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    new_process()
    yield tmp_path
    new_process()


def spec_of(kind: str, make_spec: MakeSpec) -> TrialSpec:
    """Return a specification that names the module ``adapter``."""
    spec = make_spec("CartPole-v1")
    ((part, own),) = KINDS[kind].items()
    return spec.model_copy(update={part: getattr(spec, part).model_copy(update=own)})


@pytest.mark.parametrize("source", [TOP, LATE], ids=["top", "late"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_what_user_code_imports_is_a_change(
    folder: Path, make_spec: MakeSpec, kind: str, source: str
) -> None:
    (folder / "adapter.py").write_text(source)
    (folder / "helper.py").write_text("import far\nlayer = 1")
    (folder / "far.py").write_text("import helper, numpy, os")
    (folder / "bystander.py").write_text("")
    spec = spec_of(kind, make_spec)
    before = {"own_code": user_code(spec)}
    assert list(before["own_code"]) == ["adapter", "far", "helper"]
    (folder / "far.py").write_text("import helper, numpy, os  # a comment counts")
    (folder / "bystander.py").write_text("# no code of the trial")
    assert changed_since(before) == []  # this process has imported what it has recorded
    new_process()
    assert changed_since(before) == ["far"]


@pytest.mark.parametrize(
    "source",
    [
        "from .helper import layer",
        "from . import helper",
        "import importlib\nimportlib.import_module('.helper', __package__)",
        "from .inner.deep import helper",
    ],
)
def test_a_change_of_what_a_folder_without_init_imports_is_a_change(
    folder: Path, make_spec: MakeSpec, source: str
) -> None:
    spread = folder / "spread"
    (spread / "inner").mkdir(parents=True)
    (spread / "adapter.py").write_text(source)
    (spread / "inner" / "deep.py").write_text("from .. import helper")
    (spread / "helper.py").write_text("layer = 1")
    spec = make_spec("CartPole-v1", policy={"template": "spread.adapter:Any"})
    before = {"own_code": user_code(spec)}
    assert {"spread.adapter", "spread.helper"} <= before["own_code"].keys()
    (spread / "helper.py").write_text("layer = 2")
    new_process()
    assert changed_since(before) == ["spread.helper"]


@pytest.fixture
def imported(folder: Path, make_spec: MakeSpec) -> TrialSpec:
    """Return a specification that names ``adapter``, which has imported ``helper`` here."""
    (folder / "adapter.py").write_text("from helper import layer")
    (folder / "helper.py").write_text("layer = 1")
    spec = spec_of("policy", make_spec)
    import_own("adapter")
    read_again([spec])
    return spec


def edit(path: Path) -> None:
    """Append a comment, as a later edit."""
    path.write_text(path.read_text() + "\n# another")
    os.utime(path, (time.time() + 10, time.time() + 10))


@pytest.mark.parametrize("edited", ["adapter", "helper"])
def test_a_run_after_an_edit_needs_a_new_import(
    folder: Path, imported: TrialSpec, make_spec: MakeSpec, edited: str
) -> None:
    before = user_code(imported)
    edit(folder / f"{edited}.py")
    assert user_code(imported) == before  # the run keeps the code that it began with
    for _ in range(2):
        read_again([make_spec("CartPole-v1")])  # which does not use it
        with pytest.raises(UsageError, match=rf"{edited}\.py.* has changed"):
            read_again([imported])
    importlib.invalidate_caches()
    importlib.reload(sys.modules[edited])
    if edited == "helper":
        with pytest.raises(UsageError, match=r"adapter\.py"):  # which has the old layer
            read_again([imported])
        importlib.reload(sys.modules["adapter"])
    read_again([imported])
    assert changed_since({"own_code": before}) == [edited]


def test_an_edit_that_was_undone_is_no_edit(folder: Path, imported: TrialSpec) -> None:
    path = folder / "helper.py"
    before, recorded = path.read_text(), {"own_code": user_code(imported)}
    edit(path)
    with pytest.raises(UsageError, match="helper"):
        read_again([imported])
    path.write_text(before)
    read_again([imported])
    assert changed_since(recorded) == []


def test_what_ipython_has_reloaded_is_no_old_code(
    folder: Path, imported: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(folder / "helper.py")
    times = {"adapter": 0.0, "helper": 0.0}
    reloader = SimpleNamespace(_reloader=SimpleNamespace(modules_mtimes=times))
    shell = SimpleNamespace(magics_manager=SimpleNamespace(registry={"AutoreloadMagics": reloader}))
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    with pytest.raises(UsageError, match="helper"):
        read_again([imported])
    times |= {each: (folder / f"{each}.py").stat().st_mtime for each in times}
    read_again([imported])


def test_a_module_that_training_has_imported_is_old_after_an_edit(
    folder: Path, make_spec: MakeSpec
) -> None:
    (folder / "adapter.py").write_text(LATE)
    (folder / "helper.py").write_text("layer = 1")
    spec = spec_of("agent", make_spec)
    read_again([spec])
    import_own("helper")
    edit(folder / "helper.py")
    with pytest.raises(UsageError, match="helper"):
        read_again([spec])


class Strange:
    """Stands for a module, as those of cffi and lazy imports do, and has nothing of one."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_what_stands_for_a_module_stops_nothing(
    folder: Path, imported: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = ModuleType("numbered")
    numbered.__file__, numbered.__spec__ = 1, imported  # type: ignore[assignment]
    for name, each in {"strange": Strange(), "nothing": None, "numbered": numbered}.items():
        monkeypatch.setitem(sys.modules, name, each)  # type: ignore[arg-type]
    read_again([imported])
    edit(folder / "helper.py")
    with pytest.raises(UsageError, match="helper"):
        read_again([imported])


def test_threads_may_read_code_at_once(folder: Path, imported: TrialSpec) -> None:
    expected = user_code(imported)
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda _: read_again([imported]), range(100)):
            assert user_code(imported) == expected


def test_a_run_after_an_edit_of_what_only_workers_import_has_its_new_version(
    folder: Path, make_spec: MakeSpec
) -> None:
    (folder / "adapter.py").write_text(LATE)
    (folder / "helper.py").write_text("layer = 1")
    spec = spec_of("policy", make_spec)
    import_own("adapter")
    read_again([spec])
    before = {"own_code": user_code(spec)}
    edit(folder / "helper.py")
    read_again([spec])
    assert changed_since(before) == ["helper"]


@pytest.mark.parametrize("changed", ["__init__.py", "nets.py", "deep/envs.py", "fast.so"])
@pytest.mark.parametrize("installed", ["editable", "from a folder", "from an index"])
def test_all_modules_of_an_imported_package_count_unless_its_version_says_what_they_are(
    folder: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, changed: str, installed: str
) -> None:
    (folder / "adapter.py").write_text("def late():\n    from library.nets import layer")
    site = folder / "site"
    about = site / "library-1.0.dist-info"
    about.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(site))
    (about / "METADATA").write_text("Name: library\nVersion: 1.0\n")
    (about / "RECORD").write_text("library/__init__.py,,\n")
    if installed != "editable":
        monkeypatch.setattr(package_versions, "_installed", lambda: {site})
    if installed == "from a folder":
        (about / "direct_url.json").write_text('{"dir_info": {}, "url": "file:///library"}')
    for name in ("__init__.py", "nets.py", "deep/__init__.py", "deep/envs.py", "fast.so"):
        path = site / "library" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("from library.deep import envs")
    spec = spec_of("agent", make_spec)
    before = {"own_code": user_code(spec)}
    own = ["library"] if installed != "from an index" else []
    assert list(before["own_code"]) == ["adapter", *own]
    (site / "library" / changed).write_text("# another")
    new_process()
    assert changed_since(before) == own


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a, b.c as d", {"a", "b.c"}),
        ("try: import a\nexcept ImportError: pass; import b", {"a", "b"}),
        ("from a.b import (\n  c,  # d\n  e as f,\n)", {"a.b", "a.b.c", "a.b.e"}),
        ("from a \\\n  import b", {"a", "a.b"}),
        ("from a import *", {"a"}),
        ("from . import a\nfrom.b import c", {".a", ".b", ".b.c"}),
        ("from ..a.b import c", {"..a.b", "..a.b.c"}),
        ("importlib.import_module('a.b')", {"a.b"}),
        ("import_module('.a', __package__)", {".a"}),
        ("register('A-v0', entry_point='a.b:C')", {"a.b"}),
        ("open('a.txt'), 'a', 'http://a:80/b'", set()),
        ("def f(:\n  import a", {"a"}),
        ("é = 1\nimport a", {"a"}),
    ],
)
def test_the_names_that_a_file_imports(tmp_path: Path, source: str, names: set[str]) -> None:
    path = tmp_path / "one.py"
    path.write_text(source)
    assert imported_names(path) == names


def test_finished_trials_of_changed_code_are_refused_and_not_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "adapter.py").write_text(AGENT)
    (folder / "helper.py").write_text("POLICY = lambda observation: 0")
    grid = {"environments": ["CartPole-v1"], "algorithms": {"a": {"algorithm": "adapter:Agent"}}}
    grid |= {"budget": {"env_steps": 20}, "evaluation": {"episodes": 2}}

    def run(*seeds: int) -> None:  # in this process, since a function cannot be sent
        new_process()
        options: Any = {"workers": 1, "out": "out", "quiet": True, "callback": lambda _: None}
        esbench.run({**grid, "seeds": seeds}, **options)

    run(0)
    frozen = esbench.baseline("out", out="b.json")
    assert len(frozen.cells) == 1
    run(0)  # nothing has changed
    stored = {path: path.read_bytes() for path in Path("out").rglob("*.json")}
    (folder / "helper.py").write_text("POLICY = lambda observation: 1")
    with pytest.raises(UsageError, match=r"helper\..* remove out.*seed-0 to train"):
        run(0, 1)
    assert stored == {path: path.read_bytes() for path in Path("out").rglob("*.json")}
    report = esbench.check("out", baseline="b.json")
    assert (report.exit_code, "version of helper" in report.cells[0].reason) == (3, True)
    run(1)  # another trial, of the new code
    assert "helper" in str(load_cells(Path("out"))[0].mixture)


def test_an_edit_of_the_running_script_lets_its_finished_trials_be(
    folder: Path, make_trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "adapter.py").write_text("")
    trial = make_trial("CartPole-v1")
    trial.folder.path.mkdir(parents=True)
    described = {"own_code": {"adapter": "sha256:0"}, "labels": trial.labels}
    trial.folder.begin(trial.spec, described)
    trial.folder.finish({"score": 1.0, "env_steps": 1, "wall_time_s": 1.0})
    trial.folder.close()
    with pytest.raises(UsageError, match="adapter"):
        require_same_code([trial])
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(folder / "adapter.py"), raising=False
    )
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None, raising=False)
    require_same_code([trial])
