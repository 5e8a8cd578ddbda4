"""Every backend is Gymnasium to the last bit, and the fast one is chosen where it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, DiffersError, play

from esbench.core.errors import UsageError
from esbench.environments.backends import mujoco
from esbench.environments.backends.atari import AtariBackend
from esbench.environments.backends.backend import Backend, backend_name
from esbench.environments.backends.cartpole import CartPoleBackend
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.backends.mujoco import MujocoBackend
from esbench.environments.backends.mujoco_robots import HalfCheetah

pytestmark = pytest.mark.usefixtures("quiet")
INFINITE = float("inf")
COSTS = {"ctrl_cost_weight": 0.3, "forward_reward_weight": 2, "reset_noise_scale": 0.03}
EVERYWHERE = {"exclude_current_positions_from_observation": False}
UNHEALTHY = {"terminate_when_unhealthy": False, "healthy_reward": 3}
LITTLE = {
    "include_cinert_in_observation": False,
    "include_cvel_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
    "include_cfrc_ext_in_observation": False,
}
MUJOCO: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {}),
    ("Ant-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, "main_body": "front_left_leg"}),
    ("Ant-v5", {
        "include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1,
        "contact_force_range": [-0.5, 0.2], "healthy_z_range": [0.4, 0.7], "frame_skip": 3,
    }),
    ("Ant-v5", {"terminate_when_unhealthy": None}),
    ("HalfCheetah-v5", {}),
    ("HalfCheetah-v5", {**COSTS, **EVERYWHERE, "frame_skip": 2, "max_episode_steps": 70}),
    ("Hopper-v5", {}),
    ("Hopper-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, "healthy_state_range": [-2, 2]}),
    ("Hopper-v5", {
        "healthy_state_range": [-2.0, 2.0], "healthy_z_range": [0.5, 1.24],
        "healthy_angle_range": [-0.1, INFINITE],
    }),
    ("Hopper-v5", {"healthy_state_range": [-0.5, 0.5], "healthy_angle_range": [-1.0, 1.0]}),
    ("Hopper-v5", {"healthy_state_range": [-INFINITE, 0.7], "healthy_z_range": [0.2, 1.4]}),
    ("Hopper-v5", {"terminate_when_unhealthy": 1}),
    ("Humanoid-v5", {}),
    ("Humanoid-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY, **LITTLE}),
    ("Humanoid-v5", {
        "contact_cost_weight": 1e-4, "contact_cost_range": [0.5, 1.0],
        "healthy_z_range": [1.3, 1.5], "terminate_when_unhealthy": 1,
    }),
    ("HumanoidStandup-v5", {}),
    ("HumanoidStandup-v5", {**EVERYWHERE, **LITTLE, "impact_cost_range": [0.01, 0.02]}),
    ("HumanoidStandup-v5", {"uph_cost_weight": 2, "ctrl_cost_weight": 1, "frame_skip": 2}),
    ("InvertedDoublePendulum-v5", {}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 1, "reset_noise_scale": 0.5}),
    ("InvertedPendulum-v5", {}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.15, "max_episode_steps": 7}),
    ("Pusher-v5", {}),
    ("Pusher-v5", {"reward_near_weight": 2, "reward_dist_weight": 0.1, "frame_skip": 1}),
    ("Reacher-v5", {}),
    ("Reacher-v5", {"reward_dist_weight": 3, "reward_control_weight": 0.2}),
    ("Swimmer-v5", {}),
    ("Swimmer-v5", {**COSTS, **EVERYWHERE}),
    ("Walker2d-v5", {}),
    ("Walker2d-v5", {**COSTS, **EVERYWHERE, **UNHEALTHY}),
    ("Walker2d-v5", {"healthy_z_range": [1.1, 1.3], "healthy_angle_range": [-0.1, 0.3]}),
]  # fmt: skip
SMALL = {"screen_size": 42, "frame_skip": 3, "stack_size": 2}
SHORT = {"max_episode_steps": 70}  # so that a second one begins where another has ended
ACTS = {"max_episode_steps": 60}  # of a game that draws sticky actions in its reset
ATARI: list[tuple[str, dict[str, Any]]] = [
    *((f"{game}Deterministic", SHORT) for game in ("Pong", "Breakout", "SpaceInvaders", "Qbert")),
    *((game, ACTS) for game in ("Berzerk", "DoubleDunk-ram")),
    ("QbertDeterministic", {"max_num_frames_per_episode": 120, **SMALL}),
    ("Pong", {"max_episode_steps": 25, "full_action_space": True, "frame_skip": 1}),
    ("PongDeterministic", {"max_episode_steps": 25, "actions": ["RIGHT", "LEFT"]}),
    # Episodes that end in the first, the last or another frame of a step.
    ("Pong", {"screen_size": 21, "max_num_frames_per_episode": 84}),
    ("Qbert", {"max_num_frames_per_episode": 83}),
    ("SolarisDeterministic", {"max_num_frames_per_episode": 89}),
    ("BeamRider", {"frame_skip": 1, "max_num_frames_per_episode": 25}),
    ("Enduro", {"frame_skip": 2, "max_num_frames_per_episode": 62}),
    ("LaserGates", {"frame_skip": 2, "max_num_frames_per_episode": 61}),
]  # fmt: skip
# Backend, environment, kwargs, steps and slots.
MATRIX: list[tuple[type[Backend], str, dict[str, Any], int, int]] = [
    (CartPoleBackend, "CartPole-v1", {}, 1000, SLOTS),
    (CartPoleBackend, "CartPole-v0", {}, 1000, SLOTS),
    (CartPoleBackend, "CartPole-v1", {"max_episode_steps": 12}, 1000, SLOTS),
    (CartPoleBackend, "CartPole-v1", {"sutton_barto_reward": True}, 1000, SLOTS),
    (GymnasiumBackend, "CartPole-v1", {}, 250, SLOTS),
    (GymnasiumBackend, "Pendulum-v1", {"max_episode_steps": 60}, 250, SLOTS),
    (GymnasiumBackend, "Hopper-v5", {"max_episode_steps": 25}, 250, SLOTS),
    (GymnasiumBackend, "FrozenLake-v1", {}, 250, SLOTS),
    *((MujocoBackend, name, {"max_episode_steps": 45, **own}, 100, SLOTS) for name, own in MUJOCO),
    (MujocoBackend, "HalfCheetah-v5", {}, 1010, 1),  # to its own limit
    (MujocoBackend, "FreeHopper-v0", {"terminate_when_unhealthy": False}, 1010, 1),
    *(
        (AtariBackend, f"esbench/{name}-v5", kwargs, kwargs.get("max_episode_steps", 25) + 30, 1)
        for name, kwargs in ATARI
    ),
    (AtariBackend, "esbench/Breakout-v5", {"terminal_on_life_loss": True, **SMALL}, 60, 3),
]

# Without a time limit.
gymnasium.register("FreeHopper-v0", entry_point=str(gymnasium.spec("Hopper-v5").entry_point))


@pytest.mark.parametrize(("backend", "environment_id", "kwargs", "steps", "slots"), MATRIX)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_every_bit_is_gymnasiums(
    backend: type[Backend], environment_id: str, kwargs: dict[str, Any], steps: int, slots: int
) -> None:
    assert backend.serves(environment_id, kwargs)
    exposed = backend is not AtariBackend  # games take long to load
    episodes = play(backend, environment_id, kwargs, steps, slots, exposed=exposed)
    assert episodes >= 1 or environment_id == "FreeHopper-v0"


def test_all_rules_of_mujoco_are_compared() -> None:
    assert {gymnasium.spec(name).entry_point for name, _ in MUJOCO} == set(mujoco.RULES)


@pytest.mark.parametrize("name", sorted({name for name, _ in MUJOCO}))
def test_an_action_that_is_not_finite_ends_an_episode_as_in_gymnasium(name: str) -> None:
    shape = gymnasium.make(name).action_space.shape or ()
    actions = [np.full((1, *shape), size, np.float32) for size in (1.0, np.nan, 1.0)]
    play(MujocoBackend, name, {}, 3, slots=1, actions=actions)


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "expected"),
    [
        ("Ant-v5", {}, "mujoco"),
        ("FreeHopper-v0", {"healthy_reward": 0.5}, "mujoco"),
        ("Ant-v5", {"render_mode": "rgb_array"}, "gymnasium"),
        ("Ant-v4", {}, "gymnasium"),
        ("CartPole-v1", {}, "cartpole"),
        ("CartPole-v1", {"render_mode": "rgb_array"}, "gymnasium"),
        ("Acrobot-v1", {}, "gymnasium"),
        ("doubles:Walk-v0", {}, "gymnasium"),
        ("Absent-v0", {}, "gymnasium"),
        ("no_such_package:Absent-v0", {}, "gymnasium"),
        ("broken_at_import:Env-v0", {}, "gymnasium"),
        ("esbench/Pong-v5", {}, "atari"),
        ("esbench/PongDeterministic-v5", {}, "atari"),
        ("esbench/Pong-ram-v5", {}, "atari"),
        ("esbench/Pong-v5", {"render_mode": "rgb_array"}, "gymnasium"),
    ],
)
def test_the_fast_backend_is_chosen_where_it_serves(
    environment_id: str,
    kwargs: dict[str, Any],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "broken_at_import.py").write_text("raise RuntimeError('no license')")
    monkeypatch.syspath_prepend(tmp_path)
    assert backend_name("auto", environment_id, kwargs) == expected
    assert backend_name("gymnasium", environment_id, kwargs) == "gymnasium"


@pytest.mark.parametrize("backend", [CartPoleBackend, MujocoBackend, AtariBackend])
def test_a_fast_backend_refuses_other_environments(backend: Any) -> None:
    with pytest.raises(UsageError, match=f"'{backend.name}' does not play 'Acrobot-v1'"):
        backend("Acrobot-v1", {}, 1)


def test_one_ulp_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(HalfCheetah):  # type: ignore[misc]
        def evaluate(self, actions: Any, live: Any) -> Any:  # type: ignore[misc]
            rewards, ended = super().evaluate(actions, live)
            return np.nextafter(rewards, np.inf), ended

    def moved(self: Any, state: Any, actions: Any) -> Any:
        return np.nextafter(right(self, state, actions), np.inf)

    entry: Any = gymnasium.spec("HalfCheetah-v5").entry_point
    monkeypatch.setitem(mujoco.RULES, entry, Broken)
    right = CartPoleBackend._moved
    monkeypatch.setattr(CartPoleBackend, "_moved", moved)
    with pytest.raises(DiffersError, match=r"step 0, slot 0: reward"):
        play(MujocoBackend, "HalfCheetah-v5", {}, 3)
    with pytest.raises(DiffersError, match="step 0: state"):
        play(CartPoleBackend, "CartPole-v1", {}, 3)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(
    ("place", "limit"), [(0, "x_threshold"), (2, "theta_threshold_radians")], ids=["x", "angle"]
)
def test_a_cart_pole_episode_ends_just_beyond_each_limit(place: int, limit: str, side: int) -> None:
    """Random actions tip the pole over long before the cart reaches an end of its track."""
    backend, plain = CartPoleBackend("CartPole-v1", {}, 2), gymnasium.make("CartPole-v1")
    env: Any = plain.unwrapped
    edge = getattr(env, limit)
    expected = []
    for slot, distance in enumerate((edge, np.nextafter(edge, np.inf))):
        backend.start(slot, seed=0)
        plain.reset(seed=0)
        lent: Any = backend.environment(slot).unwrapped
        lent.state[:] = np.eye(4)[place] * side * distance
        env.state = lent.state.copy()
        expected.append(env.step(0)[2])
    _, _, terminated, _, _ = backend.step(np.zeros(2, np.int64))
    assert terminated.tolist() == expected == [False, True]
