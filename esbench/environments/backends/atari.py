"""Atari games without Gymnasium's Python code around every frame, bit-identical to Gymnasium's.

Each slot has an emulator. The emulators are stepped one after the other; then the changed parts of
their screens are made grey and small together (``atari.screens``). A slot differs from ``AtariEnv``
in three ways:

- Gymnasium reloads the ROM in every seeded reset, which takes longer than hundreds of steps. Here
  an emulator is loaded once. All episodes of a game begin in the same state, which is restored.
- The emulator seeds its stream of sticky actions only when it loads a ROM. That stream is unused
  here; the same numbers (``std::mt19937``, two per frame) are drawn in Python.
- A saved state of the ALE lacks a part of the emulator: whether the last frame was completed, and
  which sprites are being drawn. At the beginning of an episode, a reset before ``restoreState``
  clears that part. Inside an episode nothing does, so episodes are not ``movable``.

The ALE's own vector environment is no backend: a slot whose episode has ended restarts without a
seed, seeds and no-ops differ from Gymnasium's, and the first stack is filled with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast, final

import gymnasium
import numpy as np
import numpy.typing as npt

from esbench.environments.atari.games import DETERMINISTIC, NOOP, V5, Game, Preprocessing
from esbench.environments.atari.screens import Screens, camera
from esbench.environments.backends.base import Array, Backend, not_served, register_backend
from esbench.environments.backends.episode_ends import EpisodeEnds
from esbench.environments.make import entry_point, make_environment

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

ENTRY_POINTS: Final = frozenset({V5.entry_point, DETERMINISTIC.entry_point})
WORDS: Final = 624  # size of the state of MT19937
AHEAD: Final = 400  # frames per draw of sticky actions


@final
@register_backend("atari")
class AtariBackend(Backend):
    """The games of ``esbench.environments.atari``, near the speed of the emulator.

    Raises:
        UsageError: the environment cannot be made or is not one of them.
    """

    most_slots = 8  # each takes long to load, and more are no faster

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        self._env = make_environment(environment_id, kwargs)
        if not self.serves(environment_id, kwargs):
            raise not_served("atari", environment_id, "a game such as 'esbench/Pong-v5'")
        self._game = game_of(self._env)
        self._describe(self._env, slots)
        self._ends = EpisodeEnds(self._env, slots)
        self.live = self._ends.live
        emulator = cast("AtariEnv", self._env.unwrapped)
        _, grey = camera(emulator)
        self._stacks = self.observations.reshape(slots, -1)  # flat, for the shift by one frame
        self._frame = self._game.screen_size**2
        self._screens = Screens(emulator.ale.getScreenDims(), grey, self.observations[:, -1])
        self._start: _GameStart | None = None
        self._slots: list[_AtariSlot] = []  # made on first use
        self._rewards = np.zeros(slots)
        self._terminated = np.zeros(slots, np.bool_)
        self._truncated = np.zeros(slots, np.bool_)

    @classmethod
    def serves(cls, environment_id: str, kwargs: dict[str, Any]) -> bool:
        """Whether the environment is such a game and is not rendered."""
        return entry_point(environment_id, kwargs) in ENTRY_POINTS

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot."""
        while len(self._slots) <= slot:
            self._add_slot()
        self._slots[slot].begin(seed)
        self._screens.refresh()
        self.observations[slot, :-1] = self.observations[slot, -1]
        self._ends.begin(slot)

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        return self._slots[slot].info()

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The ALE environment of a slot, whose own sticky actions are off."""
        return self._slots[slot].emulator

    def chosen(self, slot: int) -> Any:
        """The emulator's action that the policy of a slot chose last."""
        return self._slots[slot].chosen

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step the live slots, one after the other; actions [k] are action numbers."""
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
        # Without sticky actions, because the emulator reseeds their stream only with its ROM.
        if self._slots or self._game.protocol.repeat_action_probability:
            emulator = self._game.emulator(repeat_action_probability=0.0)
        else:
            emulator = cast("AtariEnv", self._env.unwrapped)
        if self._start is None:
            self._start = _GameStart(emulator)
        self._slots.append(
            _AtariSlot(self._game, emulator, self._start, self._screens, len(self._slots))
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environment."""
        self._env.close()


@final
class _GameStart:
    """The beginning of every episode of a game, the same for all seeds.

    Attributes:
        state: of the emulator.
        picture: the screen, [H, W], in the emulator's colours.
    """

    def __init__(self, emulator: AtariEnv) -> None:
        """Read it from an emulator that has just been loaded."""
        emulator.ale.reset_game()
        self.state = emulator.ale.cloneState()
        self.picture = np.zeros(emulator.ale.getScreenDims(), np.uint8)
        camera(emulator)[0](self.picture)


@final
class _AtariSlot:
    """An emulator and its running episode.

    Attributes:
        emulator: the ALE environment, whose ``step`` is not used.
        chosen: the emulator's action of the last step, before sticky actions.
    """

    def __init__(
        self, game: Game, emulator: AtariEnv, start: _GameStart, screens: Screens, number: int
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
        """Hold an action as ``Preprocessing.step`` does: reward, terminated, truncated."""
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
        """The info of ``Preprocessing``."""
        return {**self.emulator._get_info(), **self._seeds}

    def _rewind(self, seed: int) -> None:
        """Go to the first frame of a seed's episode, as ``AtariEnv.reset`` does."""
        seeds = self.emulator.seed_game(seed)
        self._seeds = {"seeds": seeds}
        self._stream.state = mersenne_twister(int(seeds[1]))  # type: ignore[assignment]
        self._repeats = self._draw_repeats()
        self._held = self._noop
        self._reset_hidden_state()
        self._ale.restoreState(self._start.state)

    def _reset_hidden_state(self) -> None:
        """Reset what a saved state lacks, such as the half-drawn frame at the end of Q*bert."""
        self._ale.reset_game()

    def _draw_repeats(self) -> Iterator[bool]:
        """Whether each of the next frames repeats the previous action."""
        while self._sticky:
            # The ALE draws two numbers per frame, the second for another player.
            draws: npt.NDArray[np.uint64] = self._stream.random_raw(2 * AHEAD)
            yield from (draws[::2] < self._sticky).tolist()
        while True:
            yield False


def mersenne_twister(seed: int) -> dict[str, Any]:
    """The state of NumPy's MT19937 that equals the initial one of C++'s ``std::mt19937(seed)``.

    Matsumoto & Nishimura 2002, ``init_genrand``. NumPy's own seeding differs.
    """
    words = [seed]
    for index in range(1, WORDS):
        word = words[-1] ^ (words[-1] >> 30)
        words.append((1812433253 * word + index) % 2**32)
    key = np.array(words, np.uint32)
    return {"bit_generator": "MT19937", "state": {"key": key, "pos": WORDS}}


def game_of(env: gymnasium.Env[Any, Any]) -> Game:
    """The game of an environment of ``esbench.environments.atari``."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, Preprocessing):
            return env.game
        env = env.env
    raise AssertionError("an environment of ours is wrapped in its preprocessing")
