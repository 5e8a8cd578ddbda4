"""Steps many MuJoCo environments without Gymnasium's Python code around every step.

Episodes begin in the Gymnasium environment itself. A slot is a row of ``mjSTATE_INTEGRATION``, all
that the next step depends on. ``mujoco.batch`` (from MuJoCo 3.17 on) steps the rows in one call; a
loop over ``mj_step`` does it where Gymnasium also computes contact forces, which the batch cannot,
where each slot needs an ``MjData`` of its own, and for older versions. Then rewards and
observations are computed for all slots at once.

``mujoco.rollout`` is not used: it restarts the solver without its warm start, which changes bits.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.core.arrays import Vector
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
from esbench.environments.make_environment import making
from esbench.environments.specifications import entry_point

# Parts of a row that are read or written here.
COMPONENTS: Final = {"qpos": "mjSTATE_QPOS", "qvel": "mjSTATE_QVEL", "ctrl": "mjSTATE_CTRL"}

# By entry point, because users register these environments under names of their own.
RULES: Final[dict[str, type[Rules]]] = {
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
class _BatchedSlots:
    """The slots as simulations of a batch; ``rows`` are their states, ``state`` parts of these."""

    def __init__(self, env: Any, slots: int, fields: Sequence[str], batch: Any) -> None:
        import mujoco

        self._env, self._batch = env, batch.Batch(env.model, slots, nthread=1)
        self._kind, self._get_state = int(mujoco.mjtState.mjSTATE_INTEGRATION), mujoco.mj_getState
        self.rows: Vector = self._batch.state
        self.state = {field: self._batch.bind(field) for field in (*COMPONENTS, *fields)}

    def prepare(self, slot: int) -> None:
        """Nothing to do."""

    def load(self, slot: int) -> None:
        """Copy the state of the environment to a slot."""
        self._get_state(self._env.model, self._env.data, self.rows[slot], self._kind)

    def step(self, live: Array) -> None:
        """Step some slots."""
        self._batch.step(live, self._env.frame_skip)


@final
class _LoopedSlots:
    """The slots one after the other, in one ``MjData``, which stays in the cache, or in one each.

    Bodies that may fall asleep and plugins have state that only an ``MjData`` holds; and a slot
    whose data can be looked at needs its own.
    """

    def __init__(
        self, env: Any, slots: int, fields: Sequence[str], *, own: bool, forces: bool
    ) -> None:
        import mujoco

        self._mujoco, self._env, self._own, self._forces = mujoco, env, own, forces
        self._kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        self.data: dict[int, Any] = {}  # of each slot, made on first use
        self.rows = np.zeros((slots, mujoco.mj_stateSize(env.model, self._kind)))
        shapes = {field: getattr(env.data, field).shape for field in fields}
        self._fields = {field: np.zeros((slots, *shape)) for field, shape in shapes.items()}
        self.state = self._fields | {name: self._part(bit) for name, bit in COMPONENTS.items()}

    def _part(self, name: str) -> Vector:
        """A component of all rows, [S, n]; components are in the order of their bits."""
        bit, size = int(getattr(self._mujoco.mjtState, name)), self._mujoco.mj_stateSize
        first = size(self._env.model, self._kind & (bit - 1))
        return self.rows[:, first : first + size(self._env.model, bit)]

    def prepare(self, slot: int) -> None:
        """Let the environment use the data of a slot."""
        if slot not in self.data:
            own = self._mujoco.MjData(self._env.model) if self._own else self._env.data
            self.data[slot] = own
        self._env.data = self.data[slot]

    def load(self, slot: int) -> None:
        """Copy the state and the fields from the data of a slot."""
        data = self.data[slot]
        self._mujoco.mj_getState(self._env.model, data, self.rows[slot], self._kind)
        for field, rows in self._fields.items():
            rows[slot] = getattr(data, field)

    def step(self, live: Array) -> None:
        """Step some slots."""
        mujoco, model, skip = self._mujoco, self._env.model, self._env.frame_skip
        for slot in live.tolist():
            data = self.data[slot]
            if self._own:
                data.ctrl[:] = self.state["ctrl"][slot]
            else:
                mujoco.mj_setState(model, data, self.rows[slot], self._kind)
            mujoco.mj_step(model, data, skip)
            if self._forces:
                mujoco.mj_rnePostConstraint(model, data)
            self.load(slot)


@final
@register_backend("mujoco")
class MujocoBackend(MovableBackend):
    """Gymnasium's MuJoCo environments, v5, bit-identical and near the speed of the simulator."""

    name = "mujoco"
    entry_points = RULES
    plays = "one of Gymnasium's MuJoCo environments, v5"

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        super().__init__(environment_id, kwargs, slots)
        model = self._plain.model
        self.movable = not (model.opt.enableflags or model.nplugin)
        self._make_rules = RULES[entry_point(environment_id, kwargs) or ""]
        self._seen = np.zeros_like(self.observations)
        self._reset_infos: list[dict[str, Any]] = [{}] * slots
        self._exposed = False
        with making(environment_id, kwargs):  # a user's XML may lack a body
            self._arrange()

    def _arrange(self) -> None:
        """Make the slots and the rules that read them."""
        env, made, slots = self._plain, self._make_rules, self.num_envs
        batch = None
        if self.movable and not made.contact_forces:
            with contextlib.suppress(ImportError):  # before MuJoCo 3.17
                batch = importlib.import_module("mujoco.batch")
        self._slots: _BatchedSlots | _LoopedSlots
        if batch is None:
            forces = made.contact_forces or self._exposed
            self._slots = _LoopedSlots(env, slots, made.fields, own=not self.movable, forces=forces)
        else:
            self._slots = _BatchedSlots(env, slots, made.fields, batch)
        self._rules = made(env, self._slots.state)

    def expose(self) -> None:
        """Give each slot an ``MjData``, from its next episode on."""
        self._exposed, self.movable = True, False
        self._arrange()

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot, with the reset of the Gymnasium environment."""
        self._slots.prepare(slot)
        self.observations[slot], self._reset_infos[slot] = self._env.reset(seed=seed)
        self._slots.load(slot)
        self._rules.begin(slot)
        self._begin(slot)

    def _save(self, slot: int) -> tuple[Vector, Vector]:
        return self._slots.rows[slot].copy(), self._rules.before[slot].copy()

    def _restore(self, slot: int, state: tuple[Vector, Vector]) -> None:
        self._slots.prepare(slot)
        self._slots.rows[slot], self._rules.before[slot] = state

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
        """Step the live slots, then compute rewards and observations for all at once."""
        rules, count, live = self._rules, len(actions), np.flatnonzero(self.live)
        rules.state["ctrl"][:count] = actions
        self._slots.step(live)
        rewards, terminated = rules.evaluate(actions, live.tolist())
        if len(live) == count:
            rules.observe(self.observations[:count])
        else:  # the others keep their last observation
            rules.observe(self._seen[:count])
            self.observations[live] = self._seen[live]
        return self._settle(rewards, terminated)

    def _data_of(self, slot: int) -> Any:
        assert isinstance(self._slots, _LoopedSlots), "expected expose() before the first episode"
        return self._slots.data[slot]
