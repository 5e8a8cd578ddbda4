"""Atari games under the protocols of the literature, as Gymnasium environments.

Scores of different protocols are not comparable. Each has environment names of its own:

- ``esbench/Pong-v5``: sticky actions (in every frame the action of the previous frame is repeated
  with probability 0.25) and no no-ops (Machado et al. 2018, "Revisiting the Arcade Learning
  Environment", arXiv:1709.06009). Rewards and ends equal those of ``ALE/Pong-v5`` for the same
  seeds and actions; only the observations differ.
- ``esbench/PongDeterministic-v5``: no sticky actions; an episode begins with 1 to 30 no-ops, whose
  number is drawn from its seed (Mnih et al. 2015; the ES and GA papers of 2017).
- ``esbench/Pong-ram-v5``: as ``esbench/Pong-v5``, but an observation is the memory of the console,
  [128] of uint8: ``ALE/Pong-v5`` with ``obs_type="ram"``, to the bit.

The others show small gray frames, [4, 84, 84] of uint8, bit-identical to those of Gymnasium's
``AtariPreprocessing`` (which needs OpenCV) and ``FrameStackObservation``. Rewards are not clipped,
lost lives do not end episodes, and FIRE is not pressed automatically.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from pydantic import Field

from esbench.core.errors import UsageError, unknown
from esbench.core.settings import Count, Settings, parse
from esbench.environments.atari_frames import AreaResize, Frames
from esbench.environments.registration import STICKY

if TYPE_CHECKING:
    from ale_py.env import AtariEnv

RenderMode: TypeAlias = Literal["human", "rgb_array"]
Protocol: TypeAlias = Literal["v5", "deterministic", "ram"]

NOOP: Final = 0
SET_BY_NAME: Final = frozenset(
    {"noop_max", "obs_type", "protocol", "repeat_action_probability", "rom"}
)
OF_FRAMES: Final = frozenset({"screen_size", "stack_size", "terminal_on_life_loss"})


@final
class Game(Settings):
    """A game, its protocol and its preprocessing; the names are those of Gymnasium's wrappers."""

    rom: str
    """Name in the ALE, such as "space_invaders"."""

    protocol: Protocol
    """What an episode is and what is observed."""

    frame_skip: Count = 4
    """Length of an action [frames]."""

    screen_size: Annotated[int, Field(ge=20, le=160)] = 84  # outside, OpenCV resizes otherwise
    """Height and width of a frame [pixels]."""

    stack_size: Count = 4
    """Size of an observation [frames]."""

    full_action_space: bool = False
    """Whether to use all 18 actions instead of those that have an effect in the game."""

    actions: Annotated[tuple[str, ...], Field(min_length=2)] | None = None
    """Names of the actions of the policy, such as NOOP, RIGHT and LEFT; all by default. Several
    names can have the same effect: in Pong, FIRE is NOOP after the serve."""

    terminal_on_life_loss: bool = False
    """Whether an episode ends when a life is lost."""

    max_num_frames_per_episode: Count = 108_000
    """Length after which an episode is truncated, with no-ops [frames]."""

    @property
    def repeat_action_probability(self) -> float:
        """The probability of a sticky action, in each frame."""
        return 0.0 if self.protocol == "deterministic" else STICKY

    @property
    def noop_max(self) -> int:
        """The largest number of no-ops at the start of an episode."""
        return 30 if self.protocol == "deterministic" else 0

    def action_numbers(self, emulator: AtariEnv) -> list[int]:
        """The emulator's numbers of ``actions``; UsageError unless these are different names."""
        known = emulator.get_action_meanings()
        names = known if self.actions is None else self.actions
        for name in names:
            if name not in known:
                raise unknown(f"action of {self.rom}", name, known)
        if len(set(names)) < len(names):
            raise UsageError(f"actions = {names!r}: expected different names, such as {known[:2]}")
        return [known.index(name) for name in names]

    def emulator(
        self,
        repeat_action_probability: float,
        render_mode: RenderMode | None = None,
        frame_skip: int = 1,
    ) -> AtariEnv:
        """The ALE environment, which observes the memory; its ROM is loaded."""
        import ale_py
        from ale_py.env import AtariEnv

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
        return AtariEnv(
            game=self.rom,
            obs_type="ram",  # frames are read separately
            frameskip=frame_skip,
            repeat_action_probability=repeat_action_probability,
            full_action_space=self.full_action_space,
            max_num_frames_per_episode=self.max_num_frames_per_episode,
            render_mode=render_mode,
        )


def _make(
    protocol: Protocol, /, game: str, render_mode: RenderMode | None = None, **settings: Any
) -> gymnasium.Env[Any, Any]:
    """A game under a protocol; ``settings`` are the others of ``Game``."""
    title = game.title().replace("_", "")
    for name in sorted(SET_BY_NAME & settings.keys()):
        raise UsageError(
            f"{name} is no argument of {game}: the name of the environment sets it, "
            f"esbench/{title}-v5, esbench/{title}Deterministic-v5 or esbench/{title}-ram-v5"
        )
    for name in sorted(OF_FRAMES & settings.keys() if protocol == "ram" else ()):
        raise UsageError(
            f"{name} is no argument of esbench/{title}-ram-v5, which has no frames; "
            f"esbench/{title}-v5 has it"
        )
    made = parse(Game, {**settings, "rom": game, "protocol": protocol}, game)
    if protocol == "ram":
        return Memory(made, render_mode)
    return FrameStackObservation(Preprocessing(made, render_mode), made.stack_size)


v5 = partial(_make, "v5")
deterministic = partial(_make, "deterministic")
ram = partial(_make, "ram")


@final
class Memory(gymnasium.ActionWrapper[Any, Any, Any]):
    """The ALE's own environment with the actions of the game."""

    def __init__(self, game: Game, render_mode: RenderMode | None = None) -> None:
        emulator = game.emulator(game.repeat_action_probability, render_mode, game.frame_skip)
        super().__init__(emulator)
        self.game = game
        self._numbers = game.action_numbers(emulator)
        self.action_space = spaces.Discrete(len(self._numbers))

    def action(self, action: Any) -> int:
        """The emulator's number of an action of the policy."""
        return self._numbers[int(action)]


@final
class Preprocessing(AtariPreprocessing):
    """Gymnasium's preprocessing without OpenCV: one small gray frame per step."""

    def __init__(self, game: Game, render_mode: RenderMode | None = None) -> None:
        emulator = game.emulator(game.repeat_action_probability, render_mode)
        # Not its own constructor, which needs OpenCV.
        gymnasium.Wrapper.__init__(self, emulator)
        RecordConstructorArgs.__init__(self)
        self.game = game
        self.noop_max, self.frame_skip = game.noop_max, game.frame_skip
        self.terminal_on_life_loss, self.grayscale_obs = game.terminal_on_life_loss, True
        screen = emulator.ale.getScreenGrayscale()
        self.obs_buffer = [screen, np.zeros_like(screen)]
        self._resize = AreaResize(screen.shape, game.screen_size)
        self._numbers = game.action_numbers(emulator)
        self.observation_space = spaces.Box(0, 255, (game.screen_size,) * 2, np.uint8)
        self.action_space = spaces.Discrete(len(self._numbers))

    def step(self, action: Any) -> Any:
        """Hold an action for ``frame_skip`` frames and add their rewards."""
        return super().step(self._numbers[action])

    def _get_obs(self) -> Frames:
        newest, before = self.obs_buffer
        if self.frame_skip > 1:
            np.maximum(newest, before, out=newest)
        small: Frames = self._resize(newest[np.newaxis])[0]
        return small
