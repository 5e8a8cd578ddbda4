"""Tiny trials in environments of other packages, by their documented names: tox -e third-party."""

import importlib.metadata
import importlib.util
import json
import math
from pathlib import Path
from typing import Final

import pytest
from checkout import ROOT
from command_line import finished

PAGE: Final = ROOT / "docs" / "how-to" / "other-environments.md"
MISSION: Final = "minigrid.wrappers:ImgObsWrapper"
NEW: Final = "esbench.environments.wrappers:NewInstance"
# Name, module that it needs, wrapper, and the first version of mujoco with which it fails.
ENVIRONMENTS: Final = [
    ("minigrid:MiniGrid-Empty-5x5-v0", "minigrid", MISSION, ()),
    ("highway_env:highway-fast-v0", "highway_env", "", ()),
    ("flappy_bird_gymnasium:FlappyBird-v0", "flappy_bird_gymnasium", "", ()),
    ("gym_pusht:gym_pusht/PushT-v0", "gym_pusht", "", ()),
    ("pybullet_envs_gymnasium:ReacherBulletEnv-v0", "pybullet_envs_gymnasium", "", ()),
    ("pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0", "pybullet_envs_gymnasium", NEW, ()),
    ("gymnasium_robotics:PointMaze_UMaze-v3", "gymnasium_robotics", "", ()),
    ("gymnasium_robotics:FetchReach-v4", "gymnasium_robotics", "", (3, 12)),
    ("shimmy:dm_control/cartpole-balance-v0", "dm_control", "", (4,)),
]


@pytest.mark.parametrize(
    ("name", "module", "wrapper", "fails"), ENVIRONMENTS, ids=[row[0] for row in ENVIRONMENTS]
)
def test_a_tiny_trial(
    name: str, module: str, wrapper: str, fails: tuple[int, ...], tmp_path: Path
) -> None:
    for package in (name.partition(":")[0], module):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    mujoco = importlib.metadata.version("mujoco")
    if fails and tuple(map(int, mujoco.split(".")[:2])) >= fails:
        pytest.skip(f"mujoco {mujoco} is installed; needs one before {'.'.join(map(str, fails))}")
    settings = ["algorithms.openai_es.population_size=4", "evaluation.episodes=1"]
    if wrapper:
        settings.append(f'environment."{name}".wrappers=[{{wrapper="{wrapper}"}}]')
    code, _, err = finished(  # in a process without pytest's filter of warnings
        "-m", "esbench", "run", "--env", name, "--algorithm", "openai_es", "--seeds", "0",
        "--env-steps", "60", "--workers", "1", "--quiet", "--out", "out",
        *(argument for setting in settings for argument in ("--set", setting)),
        cwd=tmp_path,
    )  # fmt: skip
    assert code == 0, err
    (result,) = (tmp_path / "out").rglob("result.json")
    assert math.isfinite(json.loads(result.read_text())["score"])


def test_the_documentation_lists_what_is_tried() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [row[0] for row in ENVIRONMENTS if row[0] not in page] == []
