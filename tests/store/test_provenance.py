"""What a trial records of its origin: user code has a version."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from checkout import ROOT
from command_line import Run, finished, forget_user_code

from esbench.core.git import commit_of
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import TrialSpec
from esbench.store import own_code
from esbench.store.module_files import version_of
from esbench.store.origin import CODE, Origin, differences_within, is_same_esbench, mixture
from esbench.store.own_code import code_here, importable_code, user_code
from esbench.store.provenance import NOT_IN_TRAINING, PACKAGES, provenance

MakeSpec = Callable[..., TrialSpec]
RUN = [
    "run", "--algorithm", "snes", "--env-steps", "300", "--workers", "1", "--out", "out",
    "--quiet", "--set", "policy.hidden=[4]", "--set", "evaluation.episodes=2",
]  # fmt: skip
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
    path = tmp_path / "holding.py"
    path.write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("holding", None)  # of a test that put another one there
    importlib.import_module("holding")
    forget_user_code()
    yield path
    forget_user_code()
    sys.modules.pop("holding", None)
    del gymnasium.registry["Hold-v0"]


def test_a_file_has_its_digest(own: Path, make_spec: MakeSpec) -> None:
    spec = make_spec("holding:Hold-v0")
    before = user_code(spec)
    assert list(before) == ["holding"]
    assert before["holding"].startswith("sha256:")
    assert user_code(make_spec("Hold-v0")) == before  # known by its class
    assert provenance(spec)["own_code"] == before
    own.write_text(f"{ENVIRONMENT}\n# another\n")
    assert user_code(spec) == before  # this process has imported the other one
    forget_user_code()
    assert user_code(spec) != before
    own.write_text(ENVIRONMENT)
    forget_user_code()
    assert user_code(spec) == before


def test_what_another_machine_has_is_looked_up_by_name(own: Path, make_spec: MakeSpec) -> None:
    there = user_code(make_spec("holding:Hold-v0"))
    asked = {**there, "numpy": "0.1", "nowhere": "sha256:0", "no-package": "1.0"}
    here = {**there, "numpy": np.__version__, "nowhere": None, "no-package": None}
    assert code_here(asked) == here
    own.write_text(f"{ENVIRONMENT}\n# another\n")
    forget_user_code()
    assert code_here(there) not in ({"holding": None}, there)


def test_the_script_itself_is_on_no_other_machine(
    own: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [make_spec("holding:Hold-v0"), make_spec("doubles:Walk-v0")]
    assert sorted(importable_code(specs)) == ["doubles", "holding"]
    monkeypatch.setattr(gymnasium.spec("Hold-v0").entry_point, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(own), raising=False)
    assert "__main__" in user_code(make_spec("Hold-v0"))
    assert "__main__" not in importable_code([make_spec("Hold-v0")])


def test_a_package_is_all_its_files(tmp_path: Path, own: Path, make_spec: MakeSpec) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "wide.py").write_text("class Wide: ...")
    policy = {"template": "nets.wide:Wide"}
    spec = make_spec("holding:Hold-v0", policy=policy)
    before = user_code(spec)
    assert sorted(before) == ["holding", "nets"]
    seen = {before["nets"]}
    (package / "layers.py").write_text("")
    for _ in range(2):
        forget_user_code()
        after = user_code(spec)
        assert after["holding"] == before["holding"]
        seen.add(after["nets"])
        (package / "more").mkdir(exist_ok=True)
        (package / "layers.py").replace(package / "more" / "layers.py") if len(seen) == 2 else None
    assert len(seen) == 3
    (package / ".#lock.py").symlink_to("nowhere")  # what an editor leaves
    (package / "folder.py").mkdir()
    forget_user_code()
    assert user_code(spec) == after


@pytest.mark.parametrize("registry", ["ALGORITHMS", "POLICIES", "BEHAVIORS", "BACKENDS"])
def test_plugins_of_every_kind_count(
    own: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, registry: str
) -> None:
    plugin = sys.modules["holding"].Hold
    spec = make_spec("CartPole-v1")
    assert user_code(spec) == {}
    monkeypatch.setattr(getattr(own_code, registry), "get", lambda _: plugin)
    assert list(user_code(spec)) == [own.stem]


@pytest.mark.parametrize("broken", ["no spec", "deleted", "unreadable", "main"])
def test_a_record_stops_no_trial(
    own: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    spec = make_spec("holding:Hold-v0")
    match broken:
        case "no spec":
            monkeypatch.setitem(sys.modules, "holding", ModuleType("holding"))
            sys.modules["holding"].__file__ = None
            assert user_code(spec) == {}
        case "deleted":
            own.unlink()
            assert user_code(spec) == {}
            own.write_text("")
        case "unreadable":

            def refuse(_: Path) -> bytes:
                raise PermissionError(13, "Permission denied")

            user_code(spec)  # loads the registries, whose files are read too
            forget_user_code()
            monkeypatch.setattr(Path, "read_bytes", refuse)
            assert user_code(spec) == {"holding": "not readable (Permission denied)"}
        case "main":
            monkeypatch.setattr(gymnasium.registry["Hold-v0"].entry_point, "__module__", "__main__")
            monkeypatch.setattr(sys.modules["__main__"], "__file__", str(own), raising=False)
            assert sorted(user_code(spec)) == ["__main__", "holding"]


@pytest.mark.parametrize(
    ("change", "packages"),
    [
        *(
            ({"id": name}, [])
            for name in ("CartPole-v1", "Hopper-v5", "esbench/Sphere-v0", "No-v0")
        ),
        ({"behavior": "rich.text:Text"}, ["rich"]),
        ({"behavior": "json.decoder:JSONDecoder"}, []),  # of Python
    ],
)
def test_installed_packages_have_their_versions_unless_they_are_always_recorded(
    make_spec: MakeSpec, change: dict[str, str], packages: list[str]
) -> None:
    spec = make_spec("CartPole-v1")
    environment = spec.environment.model_copy(update=change)
    found = user_code(spec.model_copy(update={"environment": environment}))
    assert found == {name: version(name) for name in packages}


def test_a_check_does_not_pass_on_what_other_code_has_left(esbench: Run, own: Path) -> None:
    """Its environment lies in a file that the one it is named by imports, and only when played."""
    (own.parent / "naming.py").write_text(
        'import gymnasium\ngymnasium.register("Named-v0", "holding:Hold", max_episode_steps=20)\n'
    )
    run = [*RUN, "--env", "naming:Named-v0"]

    def edit(text: str) -> None:
        own.write_text(text)
        forget_user_code()
        gymnasium.registry.pop("Named-v0", None)
        sys.modules.pop("naming", None)

    def check() -> tuple[int, bool]:
        edit(own.read_text())  # it runs in a process of its own
        code, printed, _ = esbench("check", "out", "--baseline", "b.json", "--allow-inconclusive")
        return code, "different version of holding" in " ".join(printed.split())

    other = ENVIRONMENT.replace("0.1 * action", "0.25 * action")
    assert esbench(*run, "--seeds", "0-1")[0] == 0
    assert esbench("baseline", "out", "--out", "b.json")[0] == 0
    assert check() == (0, False)
    edit(other)
    assert check() == (3, True)
    own.rename(own.with_suffix(".away"))  # without the code, results can still be checked
    held = sys.modules.pop("holding")
    forget_user_code()
    assert esbench("check", "out", "--baseline", "b.json")[0] == 0
    own.with_suffix(".away").rename(own)
    sys.modules["holding"] = held
    edit(other)
    longer = [{"300": "600"}.get(word, word) for word in run]
    assert esbench(*longer, "--seeds", "1", "--extend")[0] == 0
    edit(ENVIRONMENT)
    assert esbench(*longer, "--seeds", "0", "--extend")[0] == 0
    code, _, err = esbench("baseline", "out", "--out", "b.json", "--replace")
    assert (code, "different version of holding" in err) == (2, True)
    (first,) = Path("out").rglob("seed-0")
    assert esbench("baseline", str(first), "--out", "b.json", "--replace")[0] == 0
    assert check() == (3, True)  # the second half of seed 1 is of other code


OLD = {"versions": {"esbench": "0.3.0", "numpy": "2"}, "git_commit": "0" * 40}
NEW = {"versions": {"esbench": "0.3.0", "numpy": "2", CODE: "sha256:1"}, "git_commit": "1" * 40}


def with_versions(part: dict[str, Any], **changes: str) -> dict[str, Any]:
    return {**part, "versions": {**part["versions"], **changes}}


@pytest.mark.parametrize(
    ("parts", "several"),
    [
        ([NEW], {}),
        ([NEW, {**NEW, "git_commit": "2" * 40}], {}),  # of documentation
        ([NEW, with_versions(NEW, scipy="2", safetensors="2")], {}),
        ([NEW, {}], {}),  # unknown
        ([NEW, with_versions(NEW, numpy="3")], {"numpy": "2 and 3"}),
        (
            [NEW, NEW, {**with_versions(NEW, **{CODE: "sha256:2"}), "git_commit": "2" * 40 + "+"}],
            {"esbench": f"sha256:1 (commit {'1' * 12}) and sha256:2 (commit {'2' * 12}+)"},
        ),
        ([OLD, OLD], {}),
        ([OLD, NEW], {"esbench": f"0.3.0 (commit {'0' * 12}) and sha256:1 (commit {'1' * 12})"}),
        ([{"own_code": {"mine": "1"}}, {"own_code": {"mine": "2"}}], {"mine": "1 and 2"}),
        ([{"own_code": {"mine": "1"}}, {"own_code": {"other": "2"}}], {}),
    ],
)
@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_mixture_has_every_version_that_digests_depend_on(
    parts: list[dict[str, Any]], several: dict[str, str], is_resumed: bool
) -> None:
    first, *others = parts
    resumed = {**first, "resumed_with": others}
    assert mixture([resumed] if is_resumed else parts) == several
    assert differences_within(resumed) == [" ".join(item) for item in several.items()]


@pytest.mark.parametrize(
    ("before", "here", "same"),
    [
        (NEW, {**NEW, "git_commit": None}, True),
        (NEW, with_versions(NEW, **{CODE: "sha256:2"}), False),
        (OLD, {**NEW, "git_commit": "0" * 40}, True),
        (OLD, NEW, False),
        (*({**each, "git_commit": "0" * 40 + "+"} for each in (OLD, NEW)), False),
        ({**OLD, "git_commit": None}, {**NEW, "git_commit": None}, False),
    ],
)
def test_the_code_of_esbench_is_known_by_its_files_or_a_clean_commit(
    before: dict[str, Any], here: dict[str, Any], same: bool
) -> None:
    assert is_same_esbench(Origin(**before), Origin(**here)) is same


def test_the_code_of_esbench_is_what_training_imports(tmp_path: Path) -> None:
    for name in ("__init__.py", "core/a.py", "publish/b.py", "data.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")

    def version_after(name: str) -> str:
        (tmp_path / name).write_text("2")
        forget_user_code()
        return version_of(tmp_path / "__init__.py", without=NOT_IN_TRAINING)

    before = version_after("data.json")
    assert version_after("publish/b.py") == before
    assert version_after("core/a.py") != before
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (order,) = (c["layers"] for c in layers["tool"]["importlinter"]["contracts"] if "layers" in c)
    above = order[: order.index("experiment")]
    assert {name for line in above for name in line.split(" | ")} == NOT_IN_TRAINING


def test_only_parts_that_have_left_rows_count(make_trial: Callable[..., Trial]) -> None:
    trial = make_trial()
    trial.folder.path.mkdir(parents=True)
    for part in (OLD, NEW):  # the first one was killed before its first checkpoint
        trial.folder.begin(trial.spec, {"labels": trial.labels, **part})
    trial.folder.close()
    description = trial.folder.description()
    assert (description["git_commit"], "resumed_with" in description) == ("1" * 40, False)


PROGRAM = """
import multiprocessing
from esbench.store.provenance import command
if __name__ == "__main__":
    print(command())
    if {spawn}:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(command) == command()
"""


@pytest.mark.parametrize(
    ("file", "start", "command"),
    [
        ("tool/__main__.py", ["-m", "tool"], "python -m tool"),
        ("a/b/__main__.py", ["-m", "a.b"], "python -m a.b"),
        ("pack/train.py", ["-m", "pack.train"], "python -m pack.train"),
        ("own/script.py", ["own/script.py"], "python script.py"),
        ("bin/esbench", ["bin/esbench"], "esbench"),
        ("unused", ["-c", PROGRAM.format(spawn=False)], "python -c"),
    ],
)
def test_the_command_says_how_it_was_started_also_in_the_process_of_a_trial(
    tmp_path: Path, file: str, start: list[str], command: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file.split("/")[0] / "__init__.py").touch() if start[0] == "-m" else None
    path.write_text(PROGRAM.format(spawn=start[0] == "-m"))
    run = ["run", "--set", "a=[1, 2]"]
    assert finished(*start, *run, cwd=tmp_path) == (0, f"{command} run --set 'a=[1, 2]'\n", "")


def test_every_package_has_a_version() -> None:
    content = provenance()
    assert set(content["versions"]) == {"python", "esbench", CODE, *PACKAGES}
    assert all(content["versions"].values())
    assert content["hardware"]["cores"] == os.cpu_count()
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.exists() else []
    assert ("avx2" in content["hardware"]["instructions"].split()) == ("avx2" in flags)


def test_a_commit_says_if_files_are_changed_or_new(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    ran = tmp_path / "ran"
    git("config", "core.fsmonitor", f"touch {ran}; true")  # a command that came with the folder
    commit, date = commit_of(tmp_path, ["own"])
    assert not ran.exists()
    assert commit is not None
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert date
    (tmp_path / "notes.txt").touch()
    assert commit_of(tmp_path, ["own"])[0] == commit
    (tmp_path / "own" / "b.py").touch()
    assert commit_of(tmp_path, ["own"])[0] == f"{commit}+"
    assert commit_of(tmp_path)[0] == commit
    (tmp_path / "own" / "a.py").write_text("2")
    assert commit_of(tmp_path)[0] == f"{commit}+"
