"""The fast path is Gymnasium to the last bit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, DiffersError, play

from esbench.core.errors import UsageError
from esbench.environments.backends import mujoco as module
from esbench.environments.backends.backend import MovableBackend
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.backends.mujoco import MujocoBackend
from esbench.environments.backends.mujoco_robots import Hopper
from esbench.environments.simulator_log import silenced

INFINITE = float("inf")
PLAIN: dict[str, dict[str, Any]] = {
    name: {}
    for name in (
        "Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5",
        "InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5",
        "Walker2d-v5",
    )
}  # fmt: skip
COSTS = {"ctrl_cost_weight": 0.3, "forward_reward_weight": 2, "reset_noise_scale": 0.03}
EVERYWHERE = {"exclude_current_positions_from_observation": False}
UNHEALTHY = {"terminate_when_unhealthy": False, "healthy_reward": 3}
LITTLE = {
    "include_cinert_in_observation": False,
    "include_cvel_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
    "include_cfrc_ext_in_observation": False,
}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, "main_body": "front_left_leg"}),
    ("Ant-v5", {
        "include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1,
        "contact_force_range": [-0.5, 0.2], "healthy_z_range": [0.4, 0.7], "frame_skip": 3,
    }),
    ("HalfCheetah-v5", {**COSTS, **EVERYWHERE, "frame_skip": 2, "max_episode_steps": 70}),
    ("Hopper-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, "healthy_state_range": [-2, 2]}),
    ("Hopper-v5", {
        "healthy_state_range": [-2.0, 2.0], "healthy_z_range": [0.5, 1.24],
        "healthy_angle_range": [-0.1, INFINITE],
    }),
    ("Humanoid-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, **LITTLE}),
    ("Humanoid-v5", {
        "contact_cost_weight": 1e-4, "contact_cost_range": [0.5, 1.0],
        "healthy_z_range": [1.3, 1.5],
    }),
    ("HumanoidStandup-v5", {**EVERYWHERE, **LITTLE, "impact_cost_range": [0.01, 0.02]}),
    ("HumanoidStandup-v5", {"uph_cost_weight": 2, "ctrl_cost_weight": 1, "frame_skip": 2}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 1, "reset_noise_scale": 0.5}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.15, "max_episode_steps": 7}),
    ("Pusher-v5", {"reward_near_weight": 2, "reward_dist_weight": 0.1, "frame_skip": 1}),
    ("Reacher-v5", {"reward_dist_weight": 3, "reward_control_weight": 0.2}),
    ("Swimmer-v5", {**COSTS, **EVERYWHERE}),
    ("Walker2d-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY}),
    ("Walker2d-v5", {"healthy_z_range": [1.1, 1.3], "healthy_angle_range": [-0.1, 0.3]}),
]  # fmt: skip
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
CASES = [*PLAIN.items(), *OTHERS]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with silenced():
        yield


@pytest.mark.parametrize(("environment_id", "kwargs"), CASES)
def test_every_bit_is_gymnasiums(environment_id: str, kwargs: dict[str, Any]) -> None:
    batched = isinstance(MujocoBackend(environment_id, kwargs, 1)._slots, module._BatchedSlots)
    assert batched != environment_id.startswith(("Ant", "Humanoid"))  # which feel contacts
    steps, limit = 300, {"max_episode_steps": 90}
    if environment_id == "HalfCheetah-v5" and not kwargs:
        steps, limit = 1010, {}  # its own
    episodes = play(MujocoBackend, environment_id, {**limit, **kwargs}, steps)
    assert episodes >= SLOTS


@pytest.mark.parametrize(
    "ranges",
    [
        {},
        {"healthy_state_range": [-0.5, 0.5], "healthy_angle_range": [-1.0, 1.0]},
        {"healthy_state_range": [-1.0, 1.0], "healthy_angle_range": [-0.5, 0.5]},
        {"healthy_state_range": [-INFINITE, 0.7], "healthy_z_range": [0.2, 0.6]},
    ],
)
def test_a_hopper_is_healthy_where_gymnasium_says_so(ranges: dict[str, Any]) -> None:
    """In states that no episode reaches: an angle at the edge and hardly any speed."""
    env: Any = gymnasium.make("Hopper-v5", **ranges).unwrapped
    state = {name: np.zeros((1, size)) for name, size in (("qpos", 6), ("qvel", 6), ("ctrl", 3))}
    rules, draw = Hopper(env, state), np.random.default_rng(0)
    healthy = []
    for _ in range(500):
        env.data.qpos[:] = draw.uniform(-1.2, 1.2, env.model.nq) * draw.choice([0.3, 1.0])
        env.data.qpos[1] = draw.uniform(0.0, 1.4)
        env.data.qvel[:] = draw.uniform(-0.4, 0.4, env.model.nv)
        state["qpos"][0], state["qvel"][0] = env.data.qpos, env.data.qvel
        healthy.append(env.is_healthy)
        assert rules._healthy(1)[0] == env.is_healthy
    assert 0 < sum(healthy) < 500


def test_all_rules_are_compared() -> None:
    served = {gymnasium.spec(name).entry_point for name in PLAIN}
    assert served == set(module.RULES)


@pytest.mark.parametrize("environment_id", ["HalfCheetah-v5", "Ant-v5"])
def test_an_incomplete_move_is_noticed(
    environment_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(self: MujocoBackend, slot: int, state: Any) -> None:
        right(self, slot, state)
        self._rules.before[slot] += 1e-9

    right = MujocoBackend._restore
    monkeypatch.setattr(MujocoBackend, "_restore", restore)
    with pytest.raises(DiffersError, match="reward"):
        play(MujocoBackend, environment_id, {}, 30)


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


def test_episodes_with_data_of_their_own_stay() -> None:
    exposed = MujocoBackend("Hopper-v5", {}, 2)
    exposed.expose()
    exposed.start(0, seed=0)
    assert not exposed.movable
    with pytest.raises(AssertionError):
        exposed.save(0)
    with pytest.raises(AssertionError):
        exposed.restore(1, None)
    assert not isinstance(GymnasiumBackend("Hopper-v5", {}, 1), MovableBackend)


def test_what_an_own_xml_lacks_is_one_sentence(tmp_path: Path) -> None:
    xml = tmp_path / "reacher.xml"
    xml.write_text((ASSETS / "reacher.xml").read_text().replace('name="target"', 'name="aim"', 1))
    with pytest.raises(UsageError, match="cannot be made with kwargs"):
        MujocoBackend("Reacher-v5", {"xml_file": str(xml)}, 1)


gymnasium.register("FreeHopper-v0", entry_point=str(gymnasium.spec("Hopper-v5").entry_point))


def test_the_name_without_a_limit_has_none() -> None:
    assert play(MujocoBackend, "FreeHopper-v0", {"terminate_when_unhealthy": False}, 1010, 1) == 0


def test_only_what_is_exposed_can_be_looked_at() -> None:
    backend = MujocoBackend("Hopper-v5", {}, 1)
    backend.start(0, seed=0)
    for look in (backend.info, backend.environment):
        with pytest.raises(RuntimeError, match=r"expose\(\)"):
            look(0)
    with pytest.raises(RuntimeError, match=r"expose\(\)"):
        backend.expose()
    backend.retire(0)
    backend.expose()
    backend.start(0, seed=0)
    assert set(backend.info(0)) == {"x_position", "z_distance_from_origin"}


@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_what_gymnasium_takes_for_a_truth_value_is_one(name: str) -> None:
    for value in (0, 1, None):
        play(MujocoBackend, name, {"terminate_when_unhealthy": value}, 40)


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_not_finite_ends_as_it_does_in_gymnasium(name: str) -> None:
    shape = gymnasium.make(name).action_space.shape or ()
    actions = [np.full((1, *shape), size, np.float32) for size in (1.0, np.nan, 1.0)]
    play(MujocoBackend, name, {}, 3, slots=1, actions=actions)
