"""Slots of MuJoCo that are stepped without Gymnasium's Python around every step.

One model and one ``MjData`` for all slots; a step is ``mj_step`` for each live slot, then rewards
and observations for all of them at once. Episodes begin in the Gymnasium environment itself, whose
data it is. A backend that is exposed has an ``MjData`` for each slot.

Measured on the same states and actions in one process, ``mj_step`` alone and all of this backend
(us a step, medians, on a machine busy enough to be half as fast as it can be): HalfCheetah-v5 with
65 slots 66.1 and 71.3, with 129 slots 62.6 and 66.4; Walker2d-v5 190.7 and 193.6; Hopper-v5 143.6
and 144.8. Half of HalfCheetah's difference is that stepping 65 robots in turn takes 3 % longer than
stepping one many times, whoever does it. What was tried:

- Rows copied as arrays: 115 to 360 ns for each small assignment, against 68 to 73 as memory.
- ``mujoco.rollout`` steps many at once, but begins the solver without its warm start: not exact.
- ``mj_rnePostConstraint``, which Gymnasium calls after every step, only writes ``cfrc_ext``,
  ``cfrc_int`` and ``cacc``: it is called where the rules or somebody who looks may read them.
- More slots share the fixed costs of a step, policy included: at best 4.4 us a step with 32 slots,
  3.2 with 64 and 3.1 with 72, where ``mj_step`` takes 40.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast, final

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from esbench.environments.backends.base import Array, Backend, register_backend
from esbench.environments.backends.episode_ends import Ends
from esbench.environments.backends.mujoco.ant import Ant
from esbench.environments.backends.mujoco.arms import Pusher, Reacher
from esbench.environments.backends.mujoco.humanoids import Humanoid, HumanoidStandup
from esbench.environments.backends.mujoco.pendulums import InvertedDoublePendulum, InvertedPendulum
from esbench.environments.backends.mujoco.rules import Rules
from esbench.environments.backends.mujoco.runners import HalfCheetah, Hopper, Swimmer, Walker2d
from esbench.environments.entry_points import entry_point
from esbench.environments.make import make_environment, making
from esbench.errors import UsageError

# By the entry point of the environment, because its name may be a person's own.
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


class _Saved(NamedTuple):
    """A running episode."""

    state: list[bytes]
    observation: Array
    elapsed: int


class _Slot(NamedTuple):
    """What a step of one slot touches; all but the data are memory."""

    data: Any
    window: memoryview
    physics: memoryview
    copies: list[tuple[memoryview, memoryview]]


@final
@register_backend("mujoco")
class MujocoBackend(Backend):
    """Gymnasium's MuJoCo environments, v5, bit-identical and near the speed of the simulator.

    Raises:
        UsageError: the environment cannot be made, or is none of them.
    """

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        import mujoco

        self._env = make_environment(environment_id, kwargs)
        self._plain = plain = cast(Any, self._env.unwrapped)
        self._mujoco = mujoco
        make_rules = _rules_of(environment_id, kwargs)
        if make_rules is None:
            raise UsageError(
                f"backend 'mujoco' does not play {environment_id!r}: expected one of Gymnasium's "
                "MuJoCo environments, v5, without render_mode or wrappers; use the backend "
                "'gymnasium'"
            )
        with making(environment_id, kwargs):  # a person's own XML may lack a body
            self._model = plain.model
            self._rules = make_rules(plain, slots)
        self.num_envs = slots
        space = self.single_observation_space = self._env.observation_space
        self.single_action_space = self._env.action_space
        self.observation_space = batch_space(self.single_observation_space, slots)
        self.action_space = batch_space(self.single_action_space, slots)
        self._ends = Ends(self._env, slots)
        self.live = self._ends.live
        self.observations = np.zeros((slots, *(space.shape or ())))
        self._seen = np.zeros_like(self.observations)
        self._slots: list[_Slot] = []  # made when they are first used
        self._reset_infos: list[dict[str, Any]] = [{}] * slots
        self._exposed = False
        self._shared = self.movable = not _has_more_state(self._model)

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Return whether it is one of them, whatever its name, and nothing is rendered."""
        return _rules_of(environment_id, kwargs) is not None

    def expose(self) -> None:
        """Give each slot data of its own, from the next episodes on."""
        if self.live.any():
            raise RuntimeError("expose a backend before episodes begin")
        if not self._exposed:
            self._slots.clear()
        self._exposed, self._shared = True, False
        self.movable = False

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot, in the words of the Gymnasium environment."""
        data, window, physics, copies = self._slot(slot)
        self._plain.data = data
        self.observations[slot], self._reset_infos[slot] = self._env.reset(seed=seed)
        physics[:] = window
        for target, source in copies:
            target[:] = source
        self._rules.begin(slot)
        self._ends.begin(slot)

    def save(self, slot: int) -> _Saved:
        """Return a copy of what a slot's running episode goes on from.

        Raises:
            RuntimeError: it goes on from more, which only its own data hold.
        """
        self._require_movable()
        observation, elapsed = self.observations[slot].copy(), int(self._ends.elapsed[slot])
        return _Saved(self._rules.save(slot), observation, elapsed)

    def restore(self, slot: int, saved: _Saved) -> None:
        """Go on with a saved episode.

        Raises:
            RuntimeError: its physics would need data of their own.
        """
        self._require_movable()
        self._slot(slot)
        self._rules.restore(slot, saved.state)
        self.observations[slot] = saved.observation
        self._ends.begin(slot, saved.elapsed)

    def info(self, slot: int) -> dict[str, Any]:
        """Return the last info of a slot."""
        data = self._data_of(slot)
        if not self._ends.elapsed[slot]:
            return self._reset_infos[slot]
        return self._rules.info(slot, data)

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Return an environment whose ``data`` are the slot's, from now on.

        Its other attributes are those of the environment that all episodes begin in.
        """
        lent: gymnasium.Env[Any, Any] = object.__new__(type(self._plain))
        vars(lent).update(vars(self._plain), data=self._data_of(slot))
        return lent

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots: MuJoCo one after the other, everything else at once."""
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
        else:  # the others keep what they have
            rules.observe(self._seen[:count])
            self.observations[live] = self._seen[live]
        ends = self._ends
        ends.settle(rewards, terminated)
        return self.observations, ends.rewards, ends.terminations, ends.truncations, {}

    def _require_movable(self) -> None:
        if not self.movable:
            raise RuntimeError("episodes with data of their own stay in their slots")

    def _slot(self, slot: int) -> _Slot:
        while len(self._slots) <= slot:
            self._add_slot()
        return self._slots[slot]

    def _add_slot(self) -> None:
        slot, shared = len(self._slots), self._shared
        data = self._plain.data if shared else self._mujoco.MjData(self._model)
        physics, copies = self._rules.physics, self._rules.copies(slot, data)
        self._slots.append(_Slot(data, physics.window(data), physics.row(slot), copies))

    def _data_of(self, slot: int) -> Any:
        if not self._exposed:
            raise RuntimeError("expose a backend before its infos and environments are asked for")
        return self._slots[slot].data

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self._env.close()


def _rules_of(environment_id: str, kwargs: dict[str, Any]) -> Callable[[Any, int], Rules] | None:
    """Return what makes the rules of an environment, or None if it is none of them."""
    return RULES.get(entry_point(environment_id, kwargs) or "")


def _has_more_state(model: Any) -> bool:
    """Return whether a step of an own XML goes on from more than ``Physics``.

    Plugins and delayed actuators do, and bodies that may fall asleep, which no state tells of; none
    of Gymnasium's own models sets a flag.
    """
    import mujoco

    state = mujoco.mjtState
    known = (state.mjSTATE_TIME, state.mjSTATE_QPOS, state.mjSTATE_QVEL, state.mjSTATE_ACT)
    rest = int(state.mjSTATE_FULLPHYSICS) & ~sum(map(int, known))
    return bool(model.opt.enableflags or mujoco.mj_stateSize(model, rest))
