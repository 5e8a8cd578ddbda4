"""Every backend has all bits of Gymnasium, is chosen where it serves, and refuses the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import DiffersError, play

from esbench.core.errors import UsageError
from esbench.environments.backends import mujoco
from esbench.environments.backends.atari import AtariBackend
from esbench.environments.backends.backend import Backend, MovableBackend, backend_name
from esbench.environments.backends.cartpole import CartPoleBackend
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.backends.mujoco import MujocoBackend
from esbench.environments.backends.mujoco_robots import HalfCheetah
from esbench.environments.simulator_log import silenced

SMALL = {"screen_size": 42, "frame_skip": 3, "stack_size": 2}
gymnasium.register("MyHopper-v0", entry_point=str(gymnasium.spec("Hopper-v5").entry_point))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with silenced():
        yield


@pytest.mark.parametrize(
    ("backend", "environment_id", "kwargs", "steps", "episodes"),
    [
        (CartPoleBackend, "CartPole-v1", {}, 2000, 150),
        (CartPoleBackend, "CartPole-v0", {}, 2000, 150),
        (CartPoleBackend, "CartPole-v1", {"max_episode_steps": 12}, 1000, 75),
        (CartPoleBackend, "CartPole-v1", {"sutton_barto_reward": True}, 1000, 75),
        (GymnasiumBackend, "CartPole-v1", {}, 250, 6),
        (GymnasiumBackend, "Pendulum-v1", {"max_episode_steps": 60}, 250, 6),
        (GymnasiumBackend, "Hopper-v5", {"max_episode_steps": 25}, 250, 6),
        (GymnasiumBackend, "FrozenLake-v1", {}, 250, 6),
        (AtariBackend, "esbench/Breakout-v5", {"terminal_on_life_loss": True, **SMALL}, 60, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_every_bit_is_gymnasiums(
    backend: type[Backend], environment_id: str, kwargs: dict[str, Any], steps: int, episodes: int
) -> None:
    assert backend.serves(environment_id, kwargs)
    exposed = backend is not AtariBackend
    assert play(backend, environment_id, kwargs, steps, exposed=exposed) >= episodes


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "expected"),
    [
        ("Ant-v5", {}, "mujoco"),
        ("MyHopper-v0", {"healthy_reward": 0.5}, "mujoco"),
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


@pytest.mark.parametrize(
    ("backend", "environment_id", "wrong", "movable"),
    [
        (CartPoleBackend, "CartPole-v1", np.array([2]), True),
        (CartPoleBackend, "CartPole-v1", np.array([-1]), True),
        (MujocoBackend, "Hopper-v5", np.zeros((1, 2), np.float32), True),
        (AtariBackend, "esbench/Pong-ram-v5", np.array([6]), False),
        (AtariBackend, "esbench/Pong-ram-v5", np.array([-1]), False),
    ],
)
def test_other_environments_and_actions_are_refused(
    backend: Any, environment_id: str, wrong: np.ndarray, movable: bool
) -> None:
    with pytest.raises(UsageError, match=f"'{backend.name}' does not play 'Acrobot-v1'"):
        backend("Acrobot-v1", {}, 1)
    made = backend(environment_id, {}, 1)
    made.start(0, seed=0)
    with pytest.raises(ValueError, match=r"actions .*: expected "):
        made.step(wrong)
    assert isinstance(made, MovableBackend) == movable


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
