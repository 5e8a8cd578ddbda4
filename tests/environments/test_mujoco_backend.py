"""The MuJoCo backend with models of users, and with older versions of MuJoCo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, play

from esbench.core.errors import UsageError
from esbench.environments.backends import mujoco as module
from esbench.environments.backends.mujoco import MujocoBackend

pytestmark = pytest.mark.usefixtures("quiet")
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@pytest.mark.parametrize(("name", "batched"), [("Ant-v5", False), ("Hopper-v5", True)])
def test_slots_are_stepped_in_a_batch_unless_they_feel_contacts(name: str, batched: bool) -> None:
    slots = MujocoBackend(name, {}, 1)._slots
    assert isinstance(slots, module._BatchedSlots) == batched


@pytest.mark.parametrize(
    "environment_id", ["HalfCheetah-v5", "Hopper-v5", "InvertedDoublePendulum-v5", "Reacher-v5"]
)
def test_a_loop_replaces_the_batch_of_newer_versions(
    environment_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)
    backend = MujocoBackend(environment_id, {}, 1)
    assert isinstance(backend._slots, module._LoopedSlots)
    assert play(MujocoBackend, environment_id, {"max_episode_steps": 40}, 150) >= SLOTS


SLEEPY = (
    '<option sleep_tolerance="0.05"><flag sleep="enable"/></option><worldbody>'
    '<body name="bob" pos="1 1 0"><joint type="hinge" axis="0 1 0" range="-3 3"/>'
    '<geom type="sphere" size="0.05" pos="0.2 0 0" contype="0" conaffinity="0"/></body>'
)


@pytest.mark.parametrize(
    ("environment_id", "before", "after", "movable"),
    [
        ("HalfCheetah-v5", "0 0 -9.81", "0 0 -20", True),
        ("Hopper-v5", "<motor ", '<general dyntype="filter" dynprm="0.05" ', True),
        ("Hopper-v5", "<motor ", '<motor delay="0.02" nsample="6" ', True),
        ("Pusher-v5", "<worldbody>", SLEEPY, False),  # bodies that fall asleep
    ],
)
def test_an_own_xml_is_played(
    environment_id: str, before: str, after: str, movable: bool, tmp_path: Path
) -> None:
    plain: Any = gymnasium.make(environment_id).unwrapped
    text, xml = Path(plain.fullpath).read_text(), tmp_path / "own.xml"
    assert before in text
    xml.write_text(text.replace(before, after))
    kwargs = {"xml_file": str(xml), "max_episode_steps": 60}
    assert MujocoBackend(environment_id, kwargs, 1).movable == movable
    actions = None
    if environment_id == "Pusher-v5":
        sizes = [0.3 if step % 60 < 20 else 0.0 for step in range(150)]
        actions = [np.full((SLOTS, 7), size, np.float32) for size in sizes]
    assert play(MujocoBackend, environment_id, kwargs, 150, actions=actions) >= SLOTS


def test_exposed_episodes_cannot_move() -> None:
    backend = MujocoBackend("Hopper-v5", {}, 1)
    assert backend.movable
    backend.expose()
    backend.start(0, seed=0)
    assert not backend.movable
    assert set(backend.info(0)) == {"x_position", "z_distance_from_origin"}


def test_what_an_own_xml_lacks_is_one_sentence(tmp_path: Path) -> None:
    xml = tmp_path / "reacher.xml"
    xml.write_text((ASSETS / "reacher.xml").read_text().replace('name="target"', 'name="aim"', 1))
    with pytest.raises(UsageError, match="cannot be made with kwargs"):
        MujocoBackend("Reacher-v5", {"xml_file": str(xml)}, 1)
