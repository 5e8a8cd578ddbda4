"""Atari games under the two protocols of the literature, as Gymnasium environments.

``ALE/Pong-v5`` shows the full screen, 210 x 160 in colour. The policies of the papers play a
preprocessed game, under one of two protocols whose scores are not comparable. Each protocol has
environment names of its own, and no argument turns one into the other:

- ``esbench/Pong-v5``: sticky actions (in every frame the action of the previous frame is repeated
  with probability 0.25) and no no-ops (Machado et al. 2018, "Revisiting the Arcade Learning
  Environment", arXiv:1709.06009). Rewards and ends equal those of ``gymnasium.make("ALE/Pong-v5")``
  for the same seeds and actions; only the observations differ.
- ``esbench/PongDeterministic-v5``: no sticky actions; an episode begins with 1 to 30 no-ops, whose
  number is drawn from its seed (Mnih et al. 2015; the ES and GA papers of 2017).

The preprocessing is the same for both: an action is held for 4 frames; the last two, in grey, are
combined by a pixelwise maximum, resized to 84 x 84 and stacked with the three before them,
[4, 84, 84] of uint8. The first frame of an episode fills the stack. The result is bit-identical to
``gymnasium.wrappers.AtariPreprocessing`` (which needs OpenCV) and ``FrameStackObservation`` around
``ALE/Pong-v5`` with ``frameskip=1``. Rewards are not clipped, lost lives do not end episodes, and
FIRE is not pressed automatically.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from esbench.environments.atari.resizing import AreaResize, Frames
from esbench.errors import UsageError, suggestion

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

RenderMode: TypeAlias = Literal["human", "rgb_array"]

NAMESPACE: Final = "esbench"
SCREEN_SIZES: Final = range(20, 161)  # OpenCV uses other algorithms outside this range
# Games without a version for one player in the ALE.
OTHERS: Final = frozenset({"combat", "joust", "maze_craze", "warlords"})
NOOP: Final = 0


@final
@dataclass(frozen=True)
class AtariProtocol:
    """The rules under which scores are comparable.

    Attributes:
        entry_point: of the environments with this protocol.
        repeat_action_probability: probability of a sticky action, in each frame.
        noop_max: largest number of no-ops at the start of an episode; at least 1, unless this is 0.
    """

    entry_point: str
    repeat_action_probability: float
    noop_max: int


V5: Final = AtariProtocol("esbench.environments.atari.games:v5", 0.25, 0)
DETERMINISTIC: Final = AtariProtocol("esbench.environments.atari.games:deterministic", 0.0, 30)


@final
@dataclass(frozen=True)
class Game:
    """A game and its preprocessing; the names are those of Gymnasium's wrappers.

    Attributes:
        rom: its name in the ALE, such as "space_invaders".
        protocol: sticky actions and no-ops.
        frame_skip: frames for which an action is held.
        screen_size: height and width of a frame.
        stack_size: frames per observation.
        full_action_space: all 18 actions instead of those that have an effect in the game.
        actions: names of the actions of the policy, such as NOOP, RIGHT and LEFT; all by default.
            Several names can have the same effect: in Pong, FIRE is NOOP after the serve.
        terminal_on_life_loss: whether an episode ends when a life is lost.
        max_num_frames_per_episode: frames after which an episode is truncated, with no-ops.
    """

    rom: str
    protocol: AtariProtocol
    frame_skip: int = 4
    screen_size: int = 84
    stack_size: int = 4
    full_action_space: bool = False
    actions: Sequence[str] | None = None
    terminal_on_life_loss: bool = False
    max_num_frames_per_episode: int = 108_000

    def __post_init__(self) -> None:
        """Check the values, which come from an untyped table.

        Raises:
            UsageError: a value of the wrong type or outside its range.
        """
        for name in ("frame_skip", "stack_size", "max_num_frames_per_episode"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise UsageError(f"{name} = {value!r}: expected a whole number of at least 1")
        for name in ("full_action_space", "terminal_on_life_loss"):
            if not isinstance(value := getattr(self, name), bool):
                raise UsageError(f"{name} = {value!r}: expected true or false")
        if type(self.screen_size) is not int or self.screen_size not in SCREEN_SIZES:
            raise UsageError(
                f"screen_size = {self.screen_size!r}: expected a whole number "
                f"from {SCREEN_SIZES.start} to {SCREEN_SIZES.stop - 1}"
            )

    def action_numbers(self, emulator: AtariEnv) -> list[int]:
        """The emulator's number of each action of the policy.

        Raises:
            UsageError: ``actions`` are not names of at least two different actions.
        """
        known = emulator.get_action_meanings()
        if self.actions is None:
            return list(range(len(known)))
        names = self.actions if isinstance(self.actions, list | tuple) else []
        if len(names) < 2 or any(names.count(name) > 1 for name in names):
            raise UsageError(
                f"actions = {self.actions!r}: expected a list of two or more different names, such "
                f"as {known[:2]}"
            )
        for name in names:
            if name not in known:
                raise UsageError(f"actions: no {name!r} in {self.rom}; {suggestion(name, known)}")
        return [known.index(name) for name in names]

    def emulator(
        self, repeat_action_probability: float, render_mode: RenderMode | None = None
    ) -> AtariEnv:
        """The ALE environment with one grey frame per step; its ROM is loaded."""
        import ale_py
        from ale_py.env import AtariEnv

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
        return AtariEnv(
            game=self.rom,
            obs_type="grayscale",
            frameskip=1,
            repeat_action_probability=repeat_action_probability,
            full_action_space=self.full_action_space,
            max_num_frames_per_episode=self.max_num_frames_per_episode,
            render_mode=render_mode,
        )


def v5(
    game: str, render_mode: RenderMode | None = None, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """A game with sticky actions; ``settings`` are those of ``Game``."""
    return _make(_game(game, V5, settings), render_mode)


def deterministic(
    game: str, render_mode: RenderMode | None = None, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """A game with no-ops and without sticky actions; ``settings`` are those of ``Game``."""
    return _make(_game(game, DETERMINISTIC, settings), render_mode)


def _game(rom: str, protocol: AtariProtocol, settings: dict[str, Any]) -> Game:
    known = list(Game.__dataclass_fields__)[2:]
    for name in settings:
        if name in ("repeat_action_probability", "noop_max"):
            raise UsageError(
                f"{name} is set by the protocol, here to {getattr(protocol, name)}, and is no "
                "argument; choose the protocol by name, such as esbench/Pong-v5 or "
                "esbench/PongDeterministic-v5"
            )
        if name not in known:
            raise UsageError(f"no argument {name!r}; {suggestion(name, known)}")
    return Game(rom, protocol, **settings)


def _make(game: Game, render_mode: RenderMode | None) -> gymnasium.Env[Any, Any]:
    return FrameStackObservation(Preprocessing(game, render_mode), game.stack_size)


@final
class Preprocessing(gymnasium.Wrapper[Frames, int, Frames, int]):
    """``gymnasium.wrappers.AtariPreprocessing`` without OpenCV: one small grey frame per step.

    If an episode ends while an action is still held, the last frame shows the step before, combined
    with the frames seen since, as in Gymnasium.
    """

    def __init__(self, game: Game, render_mode: RenderMode | None = None) -> None:
        emulator = game.emulator(game.protocol.repeat_action_probability, render_mode)
        super().__init__(emulator)
        self.game = game
        size = game.screen_size
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)
        self._numbers = game.action_numbers(emulator)
        self.action_space = spaces.Discrete(len(self._numbers))  # type: ignore[assignment]
        self._emulator = emulator
        self._joined = emulator.ale.getScreenGrayscale()
        self._resize = AreaResize(self._joined.shape, size)
        self._lives = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Begin an episode, with the no-ops of the protocol."""
        self._joined, info = self.env.reset(seed=seed, options=options)
        most = self.game.protocol.noop_max
        for _ in range(self._emulator.np_random.integers(1, most + 1) if most else 0):
            self._joined, _, terminated, truncated, after = self.env.step(NOOP)
            info.update(after)
            if terminated or truncated:
                self._joined, info = self.env.reset(seed=seed, options=options)
        self._lives = self._emulator.ale.lives()
        return self._small(), info

    def step(self, action: int) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Hold an action for ``frame_skip`` frames and add their rewards."""
        total, skip, frames = 0.0, self.game.frame_skip, []
        number = self._numbers[action]
        for _ in range(skip):
            frame, reward, terminated, truncated, info = self.env.step(number)
            total += float(reward)
            if self.game.terminal_on_life_loss:
                lives = self._emulator.ale.lives()
                terminated, self._lives = terminated or lives < self._lives, lives
            if terminated or truncated:
                break
            frames.append(frame)
        if len(frames) == skip:
            self._joined = np.maximum.reduce(frames[-2:])
        elif len(frames) == skip - 1 > 0:
            self._joined = np.maximum(self._joined, frames[-1])
        return self._small(), total, terminated, truncated, info

    def _small(self) -> Frames:
        small: Frames = self._resize(self._joined[np.newaxis])[0]
        return small


def register() -> None:
    """Register every game of the ALE with Gymnasium, under both protocols."""
    for rom in roms():
        title = rom.title().replace("_", "")
        for suffix, protocol in (("", V5), ("Deterministic", DETERMINISTIC)):
            name = f"{NAMESPACE}/{title}{suffix}-v5"
            if name not in gymnasium.registry:
                gymnasium.register(name, entry_point=protocol.entry_point, kwargs={"game": rom})


@cache
def roms() -> tuple[str, ...]:
    """The names of all games for one player, sorted, without the slow import of the ALE."""
    found = importlib.util.find_spec("ale_py")
    folders = found.submodule_search_locations if found else None
    files = [path for folder in folders or [] for path in Path(folder, "roms").glob("*.bin")]
    return tuple(sorted({path.stem for path in files} - OTHERS))
