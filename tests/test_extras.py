import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from command_line import Run

from esbench.app.options import GridOptions, compose, skip_missing
from esbench.cli.printing import print_catalog
from esbench.core import extras
from esbench.core.errors import MissingPackageError, UsageError
from esbench.core.extras import extra_of, install_command
from esbench.environments.make_environment import make_environment
from esbench.grids import compose as compose_module
from esbench.publish.catalog import CatalogEntry


class Installed:
    """A distribution with an origin, as pip records it."""

    def __init__(self, origin: Any) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pip of an environment that is activated."""
    program = tmp_path / "env" / "bin" / "pip"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", str(program.parent))
    return program


@pytest.mark.parametrize(
    ("origin", "constrained", "here", "expected"),
    [
        (None, False, False, "pip install 'esbench-rl[tune]'"),
        (True, True, True, "pip install -c constraints.txt -e '.[tune]'"),
        (True, True, False, "pip install -c {0}/constraints.txt -e '{0}[tune]'"),
        (True, False, True, "pip install -e '.[tune]'"),
        (False, True, True, "pip install -c constraints.txt '.[tune]'"),
        (
            "https://x.org/a.whl",
            False,
            False,
            "pip install 'esbench-rl[tune] @ https://x.org/a.whl'",
        ),
        ("absent", True, True, "pip install -c constraints.txt -e '.[tune]'"),
    ],
)
def test_an_extra_is_added_to_what_is_installed(
    origin: bool | str | None,
    constrained: bool,
    here: bool,
    expected: str,
    tmp_path: Path,
    pip: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    if constrained:
        (checkout / "constraints.txt").touch()
    monkeypatch.setattr(extras, "_CHECKOUT", checkout)
    monkeypatch.chdir(checkout if here else tmp_path)
    folder = {"url": checkout.as_uri(), "dir_info": {"editable": origin}}
    file = {"url": origin, "archive_info": {}}

    def distribution(name: str) -> Installed:
        if origin == "absent":
            raise PackageNotFoundError(name)
        return Installed(origin and file if isinstance(origin, str | None) else folder)

    monkeypatch.setattr(extras, "distribution", distribution)
    command = (
        expected.format(checkout)
        .replace(f"{checkout}/c", f"'{checkout}/c")
        .replace("constraints.txt -e '/", "constraints.txt' -e '/")
    )
    assert install_command("tune") == command


def test_the_pip_of_an_environment_that_is_not_activated(
    pip: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    assert install_command("tune").startswith("env/bin/pip install ")
    monkeypatch.chdir("/")
    assert install_command("tune").startswith(f"{str(pip)[1:]} install ")


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("optuna", "tune"),
        ("sb3_contrib", "stable-baselines3"),
        ("stable_baselines3", "stable-baselines3"),
        ("imageio_ffmpeg", "video"),
        ("pygame", "video"),
        ("Box2D", "box2d"),
        ("ruff", None),
        ("nosuch", None),
    ],
)
def test_a_package_belongs_to_an_extra(module: str, extra: str | None) -> None:
    assert extra_of(module) == extra


@pytest.mark.usefixtures("without_box2d")
def test_a_package_that_gymnasium_misses_is_named_with_the_extra() -> None:
    with pytest.raises(UsageError, match=r"'Box2D' is not installed; .*\[box2d\]"):
        make_environment("LunarLander-v3", {})
    assert "LunarLander-v3" in gymnasium.registry


def test_names_that_lack_the_same_package_are_listed_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = "the package 'x' is not installed"
    print_catalog({"agents": [CatalogEntry(name, missing, "") for name in ("a2c", "ppo")]})
    lines = capsys.readouterr().out
    assert (lines.count(missing), lines.count("a2c"), lines.count("ppo")) == (1, 1, 1)


@pytest.fixture
def without_box2d(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("Box2D", "gymnasium.envs.box2d")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)


@pytest.mark.usefixtures("without_box2d")
def test_what_lacks_a_package_is_left_out_and_named() -> None:
    options: GridOptions = {"skip": ["ars"]}
    sentences = skip_missing("control", options)
    assert options["skip"] == ["ars", "LunarLander-v3", "BipedalWalker-v3"]
    assert all("[box2d]" in sentence for sentence in sentences)
    grid, _ = compose("control", options)
    assert list(grid.environments) == [
        *("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0")
    ]
    assert "ars" not in grid.algorithms
    with pytest.raises(UsageError, match="'LunarLander-v3'.*Box2D"):
        skip_missing("control", {"env": ["LunarLander-v3"]})


@pytest.mark.usefixtures("without_box2d")
def test_a_run_that_leaves_something_out_ends_with_its_own_exit_code(esbench: Run) -> None:
    command = ["run", "--env", "CartPole-v1", "--env", "LunarLander-v3", "--algorithm", "snes"]
    short = ["--seeds", "0", "--env-steps", "100", "--out", "out", "--workers", "1", "--quiet"]
    code, _, said = esbench(*command, *short, "--set", "evaluation.episodes=2")
    assert (code, "'LunarLander-v3'" in said) == (3, True)
    assert Path("out/CartPole-v1/snes/seed-0/result.json").exists()
    assert not Path("out/LunarLander-v3").exists()


@pytest.mark.usefixtures("without_box2d")
def test_agents_without_their_library_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(name: str) -> object:
        if name in ("ppo", "sac"):
            raise MissingPackageError(f"no library of {name}")
        return None

    monkeypatch.setattr(compose_module, "trainer_settings", settings)
    options: GridOptions = {}
    assert skip_missing("mujoco", options) == ["no library of ppo"]
    assert options["skip"] == ["ppo"]
    # Two environments lack a package too, but no algorithm is left in the others either.
    with pytest.raises(UsageError, match="^no library of sac$"):
        skip_missing("gradient", {})
