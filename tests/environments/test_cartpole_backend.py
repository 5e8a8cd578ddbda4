"""CartPole for all slots at once is Gymnasium's to the last bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from beside_gymnasium import SLOTS, DiffersError, play, require_equal

from esbench.environments.backends.cartpole import CartPoleBackend
from esbench.environments.backends.select import backend_name
from esbench.errors import UsageError


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


def play_states(steps: int) -> None:
    """Compare the states themselves, which are of 64 bits where observations are of 32."""
    backend, plain = CartPoleBackend("CartPole-v1", {}, 1), gymnasium.make("CartPole-v1")
    random = np.random.default_rng(0)
    for step in range(steps):
        if not backend.live[0]:
            backend.start(0, seed=step)
            plain.reset(seed=step)
        action = int(random.integers(2))
        backend.step(np.array([action]))
        plain.step(action)
        ours: Any = backend.environment(0).unwrapped
        theirs: Any = plain.unwrapped
        require_equal(ours.state, theirs.state, f"state after step {step}")


def test_the_states_are_the_same_too() -> None:
    play_states(2000)


def test_one_ulp_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CartPoleBackend._moved

    def wrong(self: Any, state: Any, actions: Any) -> Any:
        return np.nextafter(right(self, state, actions), np.inf)

    monkeypatch.setattr(CartPoleBackend, "_moved", wrong)
    with pytest.raises(DiffersError, match="step 0"):
        play_states(3)


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


def test_the_environment_of_a_slot_stays_in_its_state() -> None:
    backend = CartPoleBackend("CartPole-v1", {}, 2)
    for slot in range(2):
        backend.start(slot, seed=slot)
    lent: list[Any] = [backend.environment(slot).unwrapped for slot in range(2)]
    backend.step(np.array([0, 1]))
    for slot in range(2):
        seen = lent[slot].state.astype(np.float32)
        require_equal(seen, backend.observations[slot], "its state")
    assert lent[0].state[1] < 0 < lent[1].state[1]
