"""Atari games without Gymnasium's Python around every frame, bit-identical to Gymnasium's.

An emulator a slot, stepped one after the other; of their pictures only what has changed is made
grey and small, together (``atari.screens``). What a slot does not take from ``AtariEnv``
as it is:

- Every seeded reset of Gymnasium's loads the ROM anew: 0.2 s, as long as hundreds of steps, nearly
  all of it for a table of colours. Here an emulator is loaded once. All episodes of a game begin in
  the same state, which is restored; 8 ms, most of it for the reset before it (below).
- Only loading seeds the emulator's stream of sticky actions. So that is left idle, and the same
  numbers (``std::mt19937``, two a frame) are drawn here.
- A saved state of the ALE lacks a part of the emulator's: whether the last frame was drawn to its
  end, and which sprites are being drawn. With a reset before it, a restored beginning was exact in
  all nine games, from anywhere; without, Q*bert went another way at once. In the middle of an
  episode nothing vouches for it, so episodes are not ``movable``.

Measured with eight emulators in one process, CPU time per step of four frames with random actions,
the fastest of 40 rounds in turn on a busy machine, in us: the emulator alone, here, and here if
every frame is made grey and small as a whole (the two grey pictures alone take 31, the resize 78).

    Pong 21 x 21 x 2       274   349   397
    Pong 84 x 84 x 4       283   350   441
    Qbert 84 x 84 x 4      342   432   531
    Seaquest 84 x 84 x 4   380   477   569
    Breakout 84 x 84 x 4   397   556   668
    BeamRider 84 x 84 x 4  430   558   675
    Enduro 84 x 84 x 4     474   638   703
    Solaris 84 x 84 x 4    694   712   760   (a tenth of its pictures change nearly as a whole)

In another run, beside 284 for the emulator of Pong alone: 416 in ``ale_py.AtariVectorEnv``, 520 in
the Gymnasium environment, without resets.

All but the emulator's frames takes 45 us a step in Pong at 84 x 84, 105 with whole grey frames: 7
in the slot (two pictures at 1.7 each among it), the search for what has changed 13, making it grey
and joining it 8, the resize 12, half of it for means in the middle of two whole numbers. Not worth
it: comparing a slot's pictures as soon as they are taken; adding every mean up in OpenCV's order
instead of multiplying matrices (twice as long).

End to end on two cores, as a share of the emulators alone on the same actions (``esbench bench``
with two workers, 64 members, episodes of 400 steps, medians of three rounds on a busy machine):
0.68 with the small network of the grid pong, small_conv 0.47, openai_conv 0.32; eggroll with
nature_conv 0.23 in episodes of 60 steps. With whole grey frames it was 0.64, 0.43, 0.32 and 0.22:
the larger networks spend their time in their own products. More than 0.6 is not to be had with the
last one: its 19 million operations a step take 190 us at the 100 thousand million a second that
BLAS reaches on a core here, beside 284 in the
emulator. Emulator and policy take turns in a worker, and the workers' turns overlap: their cores
wait for 2 to 7 % of a generation, at its end.

The ALE's vector environment (0.12.1) plays the same frames in C++, but is no backend: a slot
that has ended begins again by itself, without a seed (there is no ``AutoresetMode.DISABLED``); it
takes the emulator's seed rather than Gymnasium's, and ignores the half of them that is negative; it
draws 0 to 29 no-ops where Gymnasium draws 1 to 30, from a stream of its own; it fills the first
stack with zeros; and a seeded reset, though it can be of some slots only, loads the ROM too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

from esbench.environments.atari.games import DETERMINISTIC, NOOP, V5, Game, Preprocessing
from esbench.environments.atari.screens import Screens, camera
from esbench.environments.backends.base import Array, Backend, register_backend
from esbench.environments.backends.episode_ends import Ends
from esbench.environments.entry_points import entry_point
from esbench.environments.make import make_environment
from esbench.errors import UsageError

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

ENTRY_POINTS: Final = frozenset({V5.entry_point, DETERMINISTIC.entry_point})
WORDS: Final = 624  # of the state of MT19937
AHEAD: Final = 400  # frames for which sticky actions are drawn at once


@final
@register_backend("atari")
class AtariBackend(Backend):
    """The games of ``esbench.environments.atari``, near the speed of the emulator.

    Raises:
        UsageError: the environment cannot be made, or is none of them.
    """

    most_slots = 8  # a step is dear enough; 0.2 s to load, for each

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        self._env = make_environment(environment_id, kwargs)
        if not self.serves(environment_id, kwargs):
            raise UsageError(
                f"backend 'atari' does not play {environment_id!r}: expected a game such as "
                "'esbench/Pong-v5', without render_mode or wrappers; use the backend 'gymnasium'"
            )
        self._game = game_of(self._env)
        self.num_envs = slots
        space = self.single_observation_space = self._env.observation_space
        self.single_action_space = self._env.action_space
        self.observation_space = batch_space(space, slots)
        self.action_space = batch_space(self.single_action_space, slots)
        self._ends = Ends(self._env, slots)
        self.live = self._ends.live
        self.observations = np.zeros((slots, *(space.shape or ())), np.uint8)
        emulator = cast("AtariEnv", self._env.unwrapped)
        _, grey = camera(emulator)
        self._stacks = self.observations.reshape(slots, -1)  # flat ones move within themselves
        self._frame = self._game.screen_size**2
        self._screens = Screens(emulator.ale.getScreenDims(), grey, self.observations[:, -1])
        self._start: _Start | None = None
        self._slots: list[_Slot] = []  # made when they are first used
        self._rewards = np.zeros(slots)
        self._terminated = np.zeros(slots, np.bool_)
        self._truncated = np.zeros(slots, np.bool_)

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Return whether it is one of ours, and nothing is rendered."""
        return entry_point(environment_id, kwargs) in ENTRY_POINTS

    def expose(self) -> None:
        """Do nothing more: everything is kept anyway."""

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot."""
        while len(self._slots) <= slot:
            self._add_slot()
        self._slots[slot].begin(seed)
        self._screens.refresh()
        self.observations[slot, :-1] = self.observations[slot, -1]
        self._ends.begin(slot)

    def info(self, slot: int) -> dict[str, Any]:
        """Return the last info of a slot."""
        return self._slots[slot].info()

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Return the ALE's environment of a slot; its sticky actions are not its own."""
        return self._slots[slot].emulator

    def chosen(self, slot: int) -> Any:
        """Return the emulator's action that a slot's policy chose last."""
        return self._slots[slot].chosen

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots, one after the other; actions [k] are numbers of actions."""
        most = int(self.single_action_space.n) - 1  # type: ignore[attr-defined]
        if actions.min() < 0 or actions.max() > most:
            raise ValueError(
                f"actions from {actions.min()} to {actions.max()}: expected 0 to {most}"
            )
        count, ends = len(actions), self._ends
        rewards, terminated = self._rewards[:count], self._terminated[:count]
        truncated = self._truncated[:count]
        live = np.flatnonzero(self.live[:count]).tolist()
        for slot in live:
            rewards[slot], terminated[slot], truncated[slot] = self._slots[slot].step(
                int(actions[slot])
            )
            frames = self._stacks[slot]
            frames[: -self._frame] = frames[self._frame :]
        self._screens.refresh()
        ends.settle(rewards, terminated, truncated)
        return self.observations, ends.rewards, ends.terminations, ends.truncations, {}

    def _add_slot(self) -> None:
        # Without sticky actions: the emulator's stream of them begins anew only with its ROM.
        if self._slots or self._game.protocol.repeat_action_probability:
            emulator = self._game.emulator(repeat_action_probability=0.0)
        else:
            emulator = cast("AtariEnv", self._env.unwrapped)
        if self._start is None:
            self._start = _Start(emulator)
        self._slots.append(
            _Slot(self._game, emulator, self._start, self._screens, len(self._slots))
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self._env.close()


@final
class _Start:
    """Where every episode of a game begins, whatever its seed.

    Attributes:
        state: of the emulator.
        picture: what is seen, [H, W], in the emulator's colours.
    """

    def __init__(self, emulator: AtariEnv) -> None:
        """Take it from an emulator that has just been loaded."""
        emulator.ale.reset_game()
        self.state = emulator.ale.cloneState()
        self.picture = np.zeros(emulator.ale.getScreenDims(), np.uint8)
        camera(emulator)[0](self.picture)


@final
class _Slot:
    """An emulator with the episode that runs in it.

    Attributes:
        emulator: the ALE's environment, whose ``step`` is not used.
        chosen: the emulator's action of the last step, before any frame repeats another.
    """

    def __init__(
        self, game: Game, emulator: AtariEnv, start: _Start, screens: Screens, number: int
    ) -> None:
        self.emulator = emulator
        self._game, self._ale, self._start = game, emulator.ale, start
        self._screens, self._number = screens, number
        self._look, _ = camera(emulator)
        self._before, self._last = screens.pictures[:, number]
        every = emulator._action_set
        self._noop = self._held = self.chosen = every[NOOP]
        self._actions = [every[number] for number in game.action_numbers(emulator)]
        self._sticky = int(game.protocol.repeat_action_probability * 2**32)
        self._stream = np.random.MT19937()
        self._repeats = self._draw_repeats()
        self._seeds: dict[str, Any] = {}
        self._lives = 0

    def begin(self, seed: int) -> None:
        """Begin an episode as ``Preprocessing.reset`` does."""
        self._rewind(seed)
        most = self._game.protocol.noop_max
        for _ in range(self.emulator.np_random.integers(1, most + 1) if most else 0):
            next(self._repeats)
            self._ale.act(self._noop)
            if self._ale.game_over():
                self._rewind(seed)
        if self._ale.getEpisodeFrameNumber():
            self._look(self._last)
        else:  # a restored state is not drawn
            self._last[:] = self._start.picture
        self._before[:] = self._last
        self._lives = self._ale.lives()

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Hold an action as ``Preprocessing.step`` does; return reward, terminated, truncated."""
        ale, repeats, last = self._ale, self._repeats, self._game.frame_skip - 1
        chosen = self.chosen = self._actions[action]
        total, terminated, truncated = 0.0, False, False
        for frame in range(last + 1):
            if not next(repeats):
                self._held = chosen
            total += ale.act(self._held)
            if ale.game_over():
                terminated = ale.game_over(with_truncation=False)
                truncated = ale.game_truncated()
            if self._game.terminal_on_life_loss:
                lives = ale.lives()
                terminated, self._lives = terminated or lives < self._lives, lives
            if terminated or truncated:
                if frame == last > 0:
                    self._screens.keep_lighter(self._number)
                break
            if frame == last - 1 or not last:
                self._look(self._before)
            if frame == last:
                self._look(self._last)
        self._seeds = {}
        return total, terminated, truncated

    def info(self) -> dict[str, Any]:
        """Return what ``Preprocessing`` gives as its info."""
        return {**self.emulator._get_info(), **self._seeds}

    def _rewind(self, seed: int) -> None:
        """Go to the first frame of the episode of a seed, as ``AtariEnv.reset`` does."""
        seeds = self.emulator.seed_game(seed)
        self._seeds = {"seeds": seeds}
        self._stream.state = mersenne_twister(int(seeds[1]))  # type: ignore[assignment]
        self._repeats = self._draw_repeats()
        self._held = self._noop
        self._reset_hidden_state()
        self._ale.restoreState(self._start.state)

    def _reset_hidden_state(self) -> None:
        """Begin anew with what a state does not hold: half a frame, as Q*bert's episodes end in."""
        self._ale.reset_game()

    def _draw_repeats(self) -> Iterator[bool]:
        """Give for each of the next frames whether it repeats the action before."""
        while self._sticky:
            # The ALE draws two numbers a frame, the second for another player.
            draws: npt.NDArray[np.uint64] = self._stream.random_raw(2 * AHEAD)
            yield from (draws[::2] < self._sticky).tolist()
        while True:
            yield False


def mersenne_twister(seed: int) -> dict[str, Any]:
    """Return the state of NumPy's MT19937 in which C++'s ``std::mt19937(seed)`` begins.

    Matsumoto & Nishimura 2002, ``init_genrand``; NumPy's own seeding goes another way.
    """
    words = [seed]
    for index in range(1, WORDS):
        word = words[-1] ^ (words[-1] >> 30)
        words.append((1812433253 * word + index) % 2**32)
    key = np.array(words, np.uint32)
    return {"bit_generator": "MT19937", "state": {"key": key, "pos": WORDS}}


def game_of(env: gymnasium.Env[Any, Any]) -> Game:
    """Return the game that an environment of ``esbench.environments.atari`` plays."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, Preprocessing):
            return env.game
        env = env.env
    raise AssertionError("an environment of ours is wrapped in its preprocessing")
