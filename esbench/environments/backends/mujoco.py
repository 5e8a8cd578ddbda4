"""Steps many MuJoCo environments without Gymnasium's Python code around every step.

All slots share one model and one ``MjData``. A step calls ``mj_step`` for each live slot and then
computes rewards and observations for all slots at once. Episodes begin in the Gymnasium environment
itself, which owns that ``MjData``. An exposed backend has an ``MjData`` per slot.

``mujoco.rollout`` is not used: it restarts the solver without its warm start, which changes bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

import gymnasium
import numpy as np

from esbench.environments.backends.backend import (
    Array,
    MovableBackend,
    StepResult,
    register_backend,
)
from esbench.environments.backends.mujoco_robots import (
    Ant,
    HalfCheetah,
    Hopper,
    Humanoid,
    HumanoidStandup,
    Swimmer,
    Walker2d,
)
from esbench.environments.backends.mujoco_rules import (
    InvertedDoublePendulum,
    InvertedPendulum,
    Pusher,
    Reacher,
    Rules,
)
from esbench.environments.make_environment import entry_point, making

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
class _MujocoSlot(NamedTuple):
    data: Any
    window: memoryview
    physics: memoryview
    copies: list[tuple[memoryview, memoryview]]


@final
@register_backend("mujoco")
class MujocoBackend(MovableBackend):
    """Gymnasium's MuJoCo environments, v5, bit-identical and near the speed of the simulator."""

    name = "mujoco"
    entry_points = RULES
    plays = "one of Gymnasium's MuJoCo environments, v5"

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        import mujoco

        super().__init__(environment_id, kwargs, slots)
        self._mujoco = mujoco
        make_rules = RULES[entry_point(environment_id, kwargs) or ""]
        with making(environment_id, kwargs):  # a user's XML may lack a body
            self._model = self._plain.model
            self._rules = make_rules(self._plain, slots)
        self._seen = np.zeros_like(self.observations)
        self._slots: list[_MujocoSlot] = []  # made on first use
        self._reset_infos: list[dict[str, Any]] = [{}] * slots
        self._exposed = False
        self._shared = self.movable = not _has_more_state(self._model)

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
        self._begin(slot)

    def _save(self, slot: int) -> list[bytes]:
        return self._rules.save(slot)

    def _restore(self, slot: int, state: list[bytes]) -> None:
        self._slot(slot)
        self._rules.restore(slot, state)

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        data = self._data_of(slot)
        if not self._elapsed[slot]:
            return self._reset_infos[slot]
        return self._rules.info(slot, data)

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """An environment whose ``data`` are those of the slot, even after later steps.

        Its other attributes are those of the environment in which all episodes begin.
        """
        return self._lend(data=self._data_of(slot))

    def step(self, actions: Array) -> StepResult:
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
        return self._settle(rewards, terminated)

    def _slot(self, slot: int) -> _MujocoSlot:
        physics = self._rules.physics
        for number in range(len(self._slots), slot + 1):
            data = self._plain.data if self._shared else self._mujoco.MjData(self._model)
            memory = physics.window(data), physics.row(number), self._rules.copies(number, data)
            self._slots.append(_MujocoSlot(data, *memory))
        return self._slots[slot]

    def _data_of(self, slot: int) -> Any:
        if not self._exposed:
            raise RuntimeError("info and environment need expose() before the first episode")
        return self._slots[slot].data


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
