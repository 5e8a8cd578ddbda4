"""CartPole for all slots at once is Gymnasium's to the last bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, DiffersError, play

from esbench.core.errors import UsageError
from esbench.environments.backends.backend import backend_name
from esbench.environments.backends.cartpole import CartPoleBackend


@pytest.mark.parametrize(
    ("environment_id", "kwargs"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v0", {}),
        ("CartPole-v1", {"max_episode_steps": 12}),
        ("CartPole-v1", {"sutton_barto_reward": True}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_every_bit_is_gymnasiums(environment_id: str, kwargs: dict[str, Any]) -> None:
    assert backend_name("auto", environment_id, kwargs) == "cartpole"
    assert play(CartPoleBackend, environment_id, kwargs, 2000) > 50 * SLOTS


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(
    ("place", "limit"), [(0, "x_threshold"), (2, "theta_threshold_radians")], ids=["x", "angle"]
)
def test_an_episode_ends_just_beyond_each_limit(place: int, limit: str, side: int) -> None:
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


def test_one_ulp_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CartPoleBackend._moved

    def wrong(self: Any, state: Any, actions: Any) -> Any:
        return np.nextafter(right(self, state, actions), np.inf)

    monkeypatch.setattr(CartPoleBackend, "_moved", wrong)
    with pytest.raises(DiffersError, match="step 0: state"):
        play(CartPoleBackend, "CartPole-v1", {}, 3)


def test_it_does_not_play_what_is_rendered_or_another() -> None:
    assert backend_name("auto", "CartPole-v1", {"render_mode": "rgb_array"}) == "gymnasium"
    with pytest.raises(UsageError, match="'cartpole' does not play 'Acrobot-v1'"):
        CartPoleBackend("Acrobot-v1", {}, 1)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_other_actions_are_refused(wrong: int) -> None:
    backend = CartPoleBackend("CartPole-v1", {}, 2)
    for slot in range(2):
        backend.start(slot, seed=slot)
    with pytest.raises(ValueError, match="expected 0 and 1"):
        backend.step(np.array([0, wrong]))
