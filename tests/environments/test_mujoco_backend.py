"""The fast path is Gymnasium to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from beside_gymnasium import SLOTS, DiffersError, play, require_equal

from esbench.environments.backends.base import MovableBackend
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.backends.mujoco import MujocoBackend, physics
from esbench.environments.backends.mujoco import backend as module
from esbench.environments.backends.mujoco.rules import Rules
from esbench.environments.backends.mujoco.runners import HalfCheetah, Hopper
from esbench.environments.backends.select import backend_name
from esbench.environments.simulator_log import silenced
from esbench.errors import UsageError

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
    assert MujocoBackend.serves(environment_id, kwargs)
    if kwargs:
        episodes = play(MujocoBackend, environment_id, {"max_episode_steps": 90, **kwargs}, 300)
    else:
        long = environment_id in {"Ant-v5", "HalfCheetah-v5", "HumanoidStandup-v5", "Swimmer-v5"}
        episodes = play(MujocoBackend, environment_id, kwargs, 1010 if long else 400)
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
    rules, draw = Hopper(env, 1), np.random.default_rng(0)
    healthy = []
    for _ in range(500):
        env.data.qpos[:] = draw.uniform(-1.2, 1.2, env.model.nq) * draw.choice([0.3, 1.0])
        env.data.qpos[1] = draw.uniform(0.0, 1.4)
        env.data.qvel[:] = draw.uniform(-0.4, 0.4, env.model.nv)
        rules.physics.row(0)[:] = rules.physics.window(env.data)
        healthy.append(env.is_healthy)
        assert rules._healthy(1)[0] == env.is_healthy
    assert 0 < sum(healthy) < 500


def test_all_rules_are_compared() -> None:
    served = {gymnasium.spec(name).entry_point for name in PLAIN}
    assert served == set(module.RULES)


def test_one_ulp_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(HalfCheetah):  # type: ignore[misc]
        def evaluate(self, actions: Any, live: Any) -> Any:
            rewards, ended = super().evaluate(actions, live)
            return np.nextafter(rewards, np.inf), ended

    entry = gymnasium.spec("HalfCheetah-v5").entry_point
    monkeypatch.setitem(module.RULES, entry, Broken)
    with pytest.raises(DiffersError, match=r"step 0, slot 0: reward"):
        play(MujocoBackend, "HalfCheetah-v5", {}, 3)


def test_an_incomplete_move_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def restore(self: HalfCheetah, slot: int, saved: list[bytes]) -> None:
        self.physics.row(slot)[:-8] = saved[0][:-8]  # all but the last control: harmless
        self.begin(slot)
        if spoiled:
            self.state["qacc_warmstart"][slot] = 0.0

    monkeypatch.setattr(Rules, "restore", restore)
    spoiled = False
    play(MujocoBackend, "HalfCheetah-v5", {}, 30)
    spoiled = True
    with pytest.raises(DiffersError):
        play(MujocoBackend, "HalfCheetah-v5", {}, 30)


def test_an_own_xml_is_played(tmp_path: Path) -> None:
    text = (ASSETS / "half_cheetah.xml").read_text()
    heavy = tmp_path / "heavy.xml"
    heavy.write_text(text.replace('gravity="0 0 -9.81"', 'gravity="0 0 -20"'))
    assert heavy.read_text() != text
    kwargs = {"xml_file": str(heavy), "max_episode_steps": 60}
    assert MujocoBackend.serves("HalfCheetah-v5", kwargs)
    assert play(MujocoBackend, "HalfCheetah-v5", kwargs, 200) >= SLOTS


FILTERS = ("<motor ", '<general dyntype="filter" dynprm="0.05" ')
DELAYS = ("<motor ", '<motor delay="0.02" nsample="6" ')


@pytest.mark.parametrize(("before", "after"), [FILTERS, DELAYS], ids=["filters", "delays"])
def test_actuators_that_remember_are_played(before: str, after: str, tmp_path: Path) -> None:
    xml = tmp_path / "slow.xml"
    xml.write_text((ASSETS / "hopper.xml").read_text().replace(before, after))
    model = mujoco.MjModel.from_xml_path(str(xml))
    assert model.na + model.nhistory > 0
    kwargs = {"xml_file": str(xml), "max_episode_steps": 40}
    assert MujocoBackend("Hopper-v5", kwargs, 1).movable == (model.nhistory == 0)
    assert play(MujocoBackend, "Hopper-v5", kwargs, 150) >= SLOTS


def test_bodies_that_fall_asleep_do_so_for_one_slot(tmp_path: Path) -> None:
    text = (ASSETS / "pusher.xml").read_text()
    pendulum = (
        '<body name="bob" pos="1 1 0"><joint type="hinge" axis="0 1 0" range="-3 3"/>'
        '<geom type="sphere" size="0.05" pos="0.2 0 0" contype="0" conaffinity="0"/></body>'
    )
    start = text.index("<worldbody>") + len("<worldbody>")
    text = text[:start] + pendulum + text[start:]
    flag = '<option sleep_tolerance="0.05"><flag sleep="enable"/></option>'
    text = text.replace("<worldbody>", f"{flag}<worldbody>", 1)
    xml = tmp_path / "sleepy.xml"
    xml.write_text(text)
    played = []
    for slots in (1, 6):
        backend = MujocoBackend("Pusher-v5", {"xml_file": str(xml)}, slots)
        for slot in range(slots):
            backend.start(slot, seed=slot)
        seen = []
        for step in range(60):
            actions = np.full((slots, 7), 0.3 if step < 20 else 0.0, np.float32)
            actions[1:] *= -1
            seen.append(backend.step(actions)[0][0].copy())
        played.append(np.array(seen))
    np.testing.assert_array_equal(*played)


def test_episodes_with_data_of_their_own_stay() -> None:
    exposed = MujocoBackend("Hopper-v5", {}, 2)
    exposed.expose()
    exposed.start(0, seed=0)
    assert not exposed.movable
    with pytest.raises(RuntimeError, match="MjData"):
        exposed.save(0)
    with pytest.raises(RuntimeError, match="MjData"):
        exposed.restore(1, None)
    assert not isinstance(GymnasiumBackend("Hopper-v5", {}, 1), MovableBackend)


def test_another_layout_of_the_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physics, "FIELDS", ("qpos", "qvel", "act", "sensordata", "xpos", "ctrl"))
    with pytest.raises(UsageError, match="MuJoCo .*use the backend 'gymnasium'"):
        MujocoBackend("Hopper-v5", {}, 1)


def test_what_an_own_xml_lacks_is_one_sentence(tmp_path: Path) -> None:
    xml = tmp_path / "reacher.xml"
    xml.write_text((ASSETS / "reacher.xml").read_text().replace('name="target"', 'name="aim"', 1))
    with pytest.raises(UsageError, match="cannot be made with kwargs"):
        MujocoBackend("Reacher-v5", {"xml_file": str(xml)}, 1)


gymnasium.register("MyHopper-v0", entry_point=str(gymnasium.spec("Hopper-v5").entry_point))


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "expected"),
    [
        ("Ant-v5", {}, "mujoco"),
        ("MyHopper-v0", {"healthy_reward": 0.5}, "mujoco"),
        ("Ant-v5", {"render_mode": "rgb_array"}, "gymnasium"),
        ("Ant-v4", {}, "gymnasium"),
        ("CartPole-v1", {}, "cartpole"),
        ("Acrobot-v1", {}, "gymnasium"),
        ("doubles:Walk-v0", {}, "gymnasium"),
        ("Absent-v0", {}, "gymnasium"),
        ("no_such_package:Absent-v0", {}, "gymnasium"),
    ],
)
def test_it_is_chosen_where_it_serves(
    environment_id: str, kwargs: dict[str, Any], expected: str
) -> None:
    assert backend_name("auto", environment_id, kwargs) == expected
    assert backend_name("gymnasium", environment_id, kwargs) == "gymnasium"


def test_the_name_without_a_limit_has_none() -> None:
    assert play(MujocoBackend, "MyHopper-v0", {"terminate_when_unhealthy": False}, 1200) == 0


def test_other_environments_and_actions_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'mujoco' .*'CartPole-v1'.*'gymnasium'"):
        MujocoBackend("CartPole-v1", {}, 1)
    backend = MujocoBackend("Hopper-v5", {}, 1)
    backend.start(0, seed=0)
    with pytest.raises(ValueError, match=r"actions of shape \(1, 2\): expected \(k, 3\)"):
        backend.step(np.zeros((1, 2), np.float32))


def test_the_environment_of_a_slot_stays_in_its_state() -> None:
    backend = MujocoBackend("Hopper-v5", {}, 2)
    backend.expose()
    plain: list[Any] = [gymnasium.make("Hopper-v5").unwrapped for _ in range(2)]
    for slot in range(2):
        backend.start(slot, seed=slot)
        plain[slot].reset(seed=slot)
    lent: list[Any] = [backend.environment(slot).unwrapped for slot in range(2)]
    for _ in range(12):  # until it touches the ground
        backend.step(np.ones((2, 3), np.float32))
        for env in plain:
            env.step(np.ones(3, np.float32))
    for slot in range(2):
        require_equal(lent[slot]._get_obs(), backend.observations[slot], "its observation")
        for field in ("qpos", "qvel", "cfrc_ext", "cfrc_int", "cacc", "ctrl"):
            theirs = getattr(plain[slot].data, field)
            require_equal(getattr(lent[slot].data, field), theirs, field)
    assert np.abs(plain[0].data.cfrc_ext).sum() > 0
    assert lent[0].data.qpos[0] != lent[1].data.qpos[0]


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


@pytest.mark.parametrize("value", [0, 1, None])
def test_what_gymnasium_takes_for_a_truth_value_is_one(value: object) -> None:
    for name in ("Hopper-v5", "Ant-v5", "Humanoid-v5"):
        play(MujocoBackend, name, {"terminate_when_unhealthy": value}, 60)


def test_a_module_that_cannot_be_imported_is_left_to_the_gymnasium_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_at_import.py").write_text("raise RuntimeError('no license')")
    monkeypatch.syspath_prepend(tmp_path)
    assert backend_name("auto", "broken_at_import:Env-v0", {}) == "gymnasium"


def test_what_is_not_finite_ends_as_it_does_in_gymnasium() -> None:
    for name in PLAIN:
        backend = MujocoBackend(name, {}, 1)
        plain = gymnasium.make(name)
        backend.start(0, seed=0)
        plain.reset(seed=0)
        for size in (1.0, np.nan, 1.0):
            action = np.full((1, *backend.single_action_space.shape), size, np.float32)
            observations, rewards, terminations, _, _ = backend.step(action)
            observation, reward, terminated, _, _ = plain.step(action[0])
            require_equal(observations[0], observation, name)
            require_equal(rewards[0], reward, name)
            require_equal(terminations[0], terminated, name)
            if terminated:
                break
