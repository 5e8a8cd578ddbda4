"""Atari games without Gymnasium's Python code around every frame, bit-identical to Gymnasium's.

The emulators of the slots are stepped one after the other; then the changed parts of their screens
are made gray and small together. No screen is looked at if the memory is observed. A slot differs
from ``AtariEnv`` in these ways:

- Gymnasium reloads the ROM in every seeded reset, which takes longer than hundreds of steps. Here
  the episodes of a game begin by restoring the same state.
- The emulator seeds its stream of sticky actions only when it loads a ROM. That stream is unused
  here; the same numbers (``std::mt19937``, two per frame) are drawn in Python.
- Some games, such as Berzerk, act in their reset and draw sticky actions there. Their slots reload
  the ROM and draw in the emulator, as Gymnasium does.
- A saved state lacks whether the last frame was completed and which sprites are being drawn. A
  reset before ``restoreState`` clears that, but only at the beginning of an episode. So running
  episodes are not ``movable``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import gymnasium
import numpy as np
import numpy.typing as npt

from esbench.environments.atari_frames import Frames, Screens, camera
from esbench.environments.atari_games import NOOP, Game
from esbench.environments.backends.backend import Array, FastBackend, StepResult, register_backend
from esbench.environments.registration import SUFFIXES

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

WORDS: Final = 624  # size of the state of MT19937
AHEAD: Final = 400  # frames per draw of sticky actions


@final
@register_backend("atari")
class AtariBackend(FastBackend):
    """The games of ``esbench.environments.atari``, near the speed of the emulator."""

    name = "atari"
    entry_points = tuple(f"esbench.environments.atari_games:{protocol}" for protocol in SUFFIXES)
    plays = "a game such as 'esbench/Pong-v5'"
    most_slots = 8  # each takes long to load, and more are no faster

    def __init__(self, environment_id: str, kwargs: dict[str, Any], slots: int) -> None:
        super().__init__(environment_id, kwargs, slots)
        self._game: Game = self._env.get_wrapper_attr("game")
        emulator: AtariEnv = self._plain
        self._screens: Screens | None = None
        if self._game.protocol != "ram":
            _, gray = camera(emulator)
            self._stacks = self.observations.reshape(slots, -1)  # flat, for the shift by one frame
            self._frame = self._game.screen_size**2
            self._screens = Screens(emulator.ale.getScreenDims(), gray, self.observations[:, -1])
        self._slots: list[_AtariSlot] = []  # made on first use
        self._earned = np.zeros(slots)
        self._ended = np.zeros((2, slots), np.bool_)

    def expose(self) -> None:
        """Do nothing: everything is kept anyway."""

    def start(self, slot: int, seed: int) -> None:
        """Begin an episode in one slot."""
        for number in range(len(self._slots), slot + 1):
            self._slots.append(self._make_slot(number))
        self._slots[slot].begin(seed)
        if self._screens is None:
            self._slots[slot].emulator.ale.getRAM(self.observations[slot])
        else:
            self._screens.refresh()
            self.observations[slot, :-1] = self.observations[slot, -1]
        self._begin(slot)

    def info(self, slot: int) -> dict[str, Any]:
        """The last info of a slot."""
        return self._slots[slot].info()

    def environment(self, slot: int) -> gymnasium.Env[Any, Any]:
        """The ALE environment of a slot; its own sticky actions are off, unless its reset acts."""
        return self._slots[slot].emulator

    def chosen(self, slot: int) -> Any:
        """The emulator's action that the policy of a slot chose last."""
        return self._slots[slot].chosen

    def step(self, actions: Array) -> StepResult:
        """Step the live slots, one after the other; actions [k] are action numbers."""
        count = len(actions)
        rewards, (terminated, truncated) = self._earned[:count], self._ended[:, :count]
        for slot in np.flatnonzero(self.live[:count]).tolist():
            rewards[slot], terminated[slot], truncated[slot] = self._slots[slot].step(
                int(actions[slot])
            )
            if self._screens is None:
                self._slots[slot].emulator.ale.getRAM(self.observations[slot])
            else:
                frames = self._stacks[slot]
                frames[: -self._frame] = frames[self._frame :]
        if self._screens is not None:
            self._screens.refresh()
        return self._settle(rewards, terminated, truncated)

    def _make_slot(self, number: int) -> _AtariSlot:
        sticky, emulator, start = self._game.repeat_action_probability, self._plain, None
        own = sticky if sticky and self._acts_in_reset else 0.0
        # Else without sticky actions, because the emulator reseeds them only with its ROM.
        if number or sticky != own:
            emulator = self._game.emulator(repeat_action_probability=own)
        if not own:
            start = self._slots[0].start if self._slots else _game_start(emulator)
        return _AtariSlot(self._game, emulator, start, self._screens, number)

    @cached_property
    def _acts_in_reset(self) -> bool:
        """Whether the reset of the game plays frames, as where it chooses a mode by buttons."""
        ale = self._game.emulator(repeat_action_probability=0.0).ale
        ale.reset_game()
        return bool(ale.getFrameNumber())


def _game_start(emulator: AtariEnv) -> tuple[Any, Frames]:
    """The state and the screen [H, W] at the start of every episode, the same for all seeds."""
    emulator.ale.reset_game()
    state, picture = emulator.ale.cloneState(), np.zeros(emulator.ale.getScreenDims(), np.uint8)
    camera(emulator)[0](picture)
    return state, picture


@final
class _AtariSlot:
    """An emulator, whose own ``step`` is not used, and its running episode.

    Without the state and screen of a ``start``, episodes begin by loading the ROM, and the emulator
    draws its sticky actions itself.
    """

    def __init__(
        self,
        game: Game,
        emulator: AtariEnv,
        start: tuple[Any, Frames] | None,
        screens: Screens | None,
        number: int,
    ) -> None:
        self.emulator, self.start = emulator, start
        self._game, self._ale = game, emulator.ale
        self._screens, self._number = screens, number
        if screens is not None:
            self._look, _ = camera(emulator)
            self._before, self._last = screens.pictures[:, number]
        every = emulator._action_set
        self._noop = self._held = self.chosen = every[NOOP]  # chosen: before sticky actions
        self._actions = [every[number] for number in game.action_numbers(emulator)]
        self._sticky = 0 if start is None else int(game.repeat_action_probability * 2**32)
        self._stream = np.random.MT19937()
        self._repeats = self._draw_repeats()
        self._seeds: dict[str, Any] = {}
        self._lives = 0

    def begin(self, seed: int) -> None:
        """Begin an episode as ``Preprocessing.reset`` does."""
        self._rewind(seed)
        most = self._game.noop_max
        for _ in range(self.emulator.np_random.integers(1, most + 1) if most else 0):
            next(self._repeats)
            self._ale.act(self._noop)
            if self._ale.game_over():
                self._rewind(seed)
        if self._screens is not None:
            if self.start is None or self._ale.getEpisodeFrameNumber():
                self._look(self._last)
            else:  # a restored state is not drawn
                self._last[:] = self.start[1]
            self._before[:] = self._last
        self._lives = self._ale.lives()

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Hold an action as ``Preprocessing.step`` does: reward, terminated, truncated."""
        ale, repeats, screens = self._ale, self._repeats, self._screens
        last = self._game.frame_skip - 1
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
                if screens is not None and frame == last > 0:
                    screens.keep_lighter(self._number)
                break
            if screens is None:
                continue
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
        self._held = self._noop
        if self.start is None:
            self.emulator.load_game()
            self._ale.reset_game()
            return
        self._stream.state = mersenne_twister(int(seeds[1]))  # type: ignore[assignment]
        self._repeats = self._draw_repeats()
        self._reset_hidden_state()
        self._ale.restoreState(self.start[0])

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
