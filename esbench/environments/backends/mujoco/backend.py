"""Steps many MuJoCo environments without Gymnasium's Python code around every step.

All slots share one model and one ``MjData``. A step calls ``mj_step`` for each live slot and then
computes rewards and observations for all slots at once. Episodes begin in the Gymnasium environment
itself, which owns that ``MjData``. An exposed backend has an ``MjData`` per slot.

``mujoco.rollout`` is not used: it restarts the solver without its warm start, which changes bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast, final

import gymnasium
import numpy as np

from esbench.environments.backends.base import Array, MovableBackend, not_served, register_backend
from esbench.environments.backends.episode_ends import EpisodeEnds
from esbench.environments.backends.mujoco.ant import Ant
from esbench.environments.backends.mujoco.arms import Pusher, Reacher
from esbench.environments.backends.mujoco.humanoids import Humanoid, HumanoidStandup
from esbench.environments.backends.mujoco.pendulums import InvertedDoublePendulum, InvertedPendulum
from esbench.environments.backends.mujoco.rules import Rules
from esbench.environments.backends.mujoco.runners import HalfCheetah, Hopper, Swimmer, Walker2d
from esbench.environments.make import entry_point, make_environment, making

# By entry point, because users register these environments under names of their own.
RULES: Final[dict[str, Callable[[Any, int], Rules]]] = {
    "gymnasium.envs.mujoco.ant_v5:AntEnv": Ant,
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": HalfCheetah,
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": Hopper,
    "gymnasium.envs.mujoco.humanoid_v5:HumanoidEnv": Humanoid,
    "gymnasium.envs.mujoco.humanoidstandup_v5:HumanoidStandupEnv": HumanoidStandup,
    "gymnasium.envs.mujoco.inverted_double_pendulum_v5:InvertedDoublePendulumEnv": (
        InvertedDoublePendulum
    ),
    "gymnasium.envs.mujoco.inverted_pendulum_v5:InvertedPendulumEnv": InvertedPendulum,
    "gymnasium.envs.mujoco.pusher_v5:PusherEnv": Pusher,
    "gymnasium.envs.mujoco.reacher_v5:ReacherEnv": Reacher,
    "gymnasium.envs.mujoco.swimmer_v5:SwimmerEnv": Swimmer,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": Walker2d,
}


@final
class _MujocoEpisode(NamedTuple):
    """A running episode."""

    state: list[bytes]
    observation: Array
    elapsed: int


@final
class _MujocoSlot(NamedTuple):
    """The memory that a step of one slot reads and writes."""

    data: Any
    window: memoryview
    physics: memoryview
    copies: list[tuple[memoryview, memoryview]]


@final
@register_backend("mujoco")
class MujocoBackend(MovableBackend):
    """Gymnasium's MuJoCo environments, v5, bit-identical and near the speed of the simulator.

    Raises:
        UsageError: the environment cannot be made or is not one of them.
    """

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        import mujoco

        self._env = make_environment(environment_id, kwargs)
        self._plain = plain = cast(Any, self._env.unwrapped)
        self._mujoco = mujoco
        make_rules = _rules_of(environment_id, kwargs)
        if make_rules is None:
            expected = "one of Gymnasium's MuJoCo environments, v5"
            raise not_served("mujoco", environment_id, expected)
        with making(environment_id, kwargs):  # a user's XML may lack a body
            self._model = plain.model
            self._rules = make_rules(plain, slots)
        self._describe(self._env, slots)
        self._ends = EpisodeEnds(self._env, slots)
        self.live = self._ends.live
        self._seen = np.zeros_like(self.observations)
        self._slots: list[_MujocoSlot] = []  # made on first use
        self._reset_infos: list[dict[str, Any]] = [{}] * slots
        self._exposed = False
        self._shared = self.movable = not _has_more_state(self._model)

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether the environment is one of them, under any name, and is not rendered."""
        return _rules_of(environment_id, kwargs) is not None

    def expose(self) -> None:
        """Give each slot an ``MjData``, from its next episode on."""
        if self.live.any():
            raise RuntimeError("expose() was called during an episode; call it before the first")
        if not self._exposed:
            self._slots.clear()
        self._exposed, self._shared = True, False
        self.movable = False

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot, with the reset of the Gymnasium environment."""
        data, window, physics, copies = self._slot(slot)
        self._plain.data = data
        self.observations[slot], self._reset_infos[slot] = self._env.reset(seed=seed)
        physics[:] = window
        for target, source in copies:
            target[:] = source
        self._rules.begin(slot)
        self._ends.begin(slot)

    def save(self, slot: int) -> _MujocoEpisode:
        """A copy of the running episode of a slot.

        Raises:
            RuntimeError: only the ``MjData`` of the slot holds its whole state.
        """
        self._require_movable()
        observation, elapsed = self.observations[slot].copy(), int(self._ends.elapsed[slot])
        return _MujocoEpisode(self._rules.save(slot), observation, elapsed)

    def restore(self, slot: int, saved: _MujocoEpisode) -> None:
        """Continue a saved episode.

        Raises:
            RuntimeError: only the ``MjData`` of a slot holds the whole state.
        """
        self._require_movable()
        self._slot(slot)
        self._rules.restore(slot, saved.state)
        self.observations[slot] = saved.observation
        self._ends.begin(slot, saved.elapsed)

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        data = self._data_of(slot)
        if not self._ends.elapsed[slot]:
            return self._reset_infos[slot]
        return self._rules.info(slot, data)

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """An environment whose ``data`` are those of the slot, also after later steps.

        Its other attributes are those of the environment in which all episodes begin.
        """
        lent: gymnasium.Env[Any, Any] = object.__new__(type(self._plain))
        vars(lent).update(vars(self._plain), data=self._data_of(slot))
        return lent

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots: the physics one after the other, the rest at once."""
        if actions.shape[1:] != (self._model.nu,):
            raise ValueError(f"actions of shape {actions.shape}: expected (k, {self._model.nu})")
        model, rules, skip = self._model, self._rules, self._plain.frame_skip
        step, forces = self._mujoco.mj_step, self._mujoco.mj_rnePostConstraint
        with_forces, count = rules.contact_forces or self._exposed, len(actions)
        live = np.flatnonzero(self.live).tolist()
        rules.state["ctrl"][:count] = actions
        for data, window, physics, copies in map(self._slots.__getitem__, live):
            window[:] = physics
            step(model, data, skip)
            if with_forces:
                forces(model, data)
            physics[:] = window
            for target, source in copies:
                target[:] = source
        rewards, terminated = rules.evaluate(actions, live)
        if len(live) == count:
            rules.observe(self.observations[:count])
        else:  # the others keep their last observation
            rules.observe(self._seen[:count])
            self.observations[live] = self._seen[live]
        ends = self._ends
        ends.settle(rewards, terminated)
        return self.observations, ends.rewards, ends.terminations, ends.truncations, {}

    def _require_movable(self) -> None:
        if not self.movable:
            raise RuntimeError("episodes with an MjData of their own stay in their slots")

    def _slot(self, slot: int) -> _MujocoSlot:
        while len(self._slots) <= slot:
            self._add_slot()
        return self._slots[slot]

    def _add_slot(self) -> None:
        slot, shared = len(self._slots), self._shared
        data = self._plain.data if shared else self._mujoco.MjData(self._model)
        physics, copies = self._rules.physics, self._rules.copies(slot, data)
        self._slots.append(_MujocoSlot(data, physics.window(data), physics.row(slot), copies))

    def _data_of(self, slot: int) -> Any:
        if not self._exposed:
            raise RuntimeError("info and environment need expose() before the first episode")
        return self._slots[slot].data

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self._env.close()


def _rules_of(environment_id: str, kwargs: dict[str, Any]) -> Callable[[Any, int], Rules] | None:
    """The constructor of an environment's rules; None if it is not one of them."""
    return RULES.get(entry_point(environment_id, kwargs) or "")


def _has_more_state(model: Any) -> bool:
    """Whether a step of the model depends on more state than ``Physics`` holds.

    Plugins and delayed actuators have such state, and so do bodies that may fall asleep, which
    MuJoCo's state omits. Gymnasium's own models have none and set no flag.
    """
    import mujoco

    state = mujoco.mjtState
    known = (state.mjSTATE_TIME, state.mjSTATE_QPOS, state.mjSTATE_QVEL, state.mjSTATE_ACT)
    rest = int(state.mjSTATE_FULLPHYSICS) & ~sum(map(int, known))
    return bool(model.opt.enableflags or mujoco.mj_stateSize(model, rest))
