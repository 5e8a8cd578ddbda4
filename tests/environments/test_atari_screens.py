"""What is made anew of what has changed is what would be made of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from esbench.environments.atari import screens
from esbench.environments.atari.games import V5, Game
from esbench.environments.atari.resizing import AreaResize, Frames
from esbench.environments.atari.screens import Screens, camera
from esbench.environments.backends.atari import AtariBackend

GREY = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint8)


def shown(pictures: Frames, size: int) -> Frames:
    """Return the small frames [S, size, size] of pictures [2, S, H, W], all made anew."""
    return AreaResize(pictures.shape[2:], size)(GREY[pictures].max(0))


def change(pictures: Frames, random: np.random.Generator, share: float) -> None:
    """Draw another colour for some pixels, most of them in one of the two pictures only."""
    where = random.random(pictures.shape) < share
    pictures[where] = random.integers(0, 256, where.sum())


@pytest.mark.parametrize(
    ("height", "size"), [(210, 84), (210, 21), (210, 64), (210, 83), (220, 80), (250, 84)]
)
def test_small_frames_are_those_of_the_whole_pictures(height: int, size: int) -> None:
    random = np.random.default_rng(0)
    small = np.zeros((3, 2, size, size), np.uint8)  # the second frames of stacks of two
    screens = Screens((height, 160), GREY, small[:, 1])
    change(screens.pictures, random, 1.0)
    for share in (0.0, 1e-5, 1e-3, 0.1, 1.0, 1e-4):
        change(screens.pictures, random, share)
        screens.refresh()
        np.testing.assert_array_equal(small[:, 1], shown(screens.pictures, size))
        before = small.copy()
        screens.refresh()
        np.testing.assert_array_equal(small, before)
        change(screens.pictures[:, 1:2], random, 1e-4)  # and the others of none
    assert not small[:, 0].any()


def test_slots_do_not_depend_on_others_beside_them() -> None:
    """However many blocks are made at once: of one slot few, of the others many or none."""
    random = np.random.default_rng(1)
    alone, among = (np.zeros((slots, 84, 84), np.uint8) for slots in (1, 9))
    one, nine = Screens((210, 160), GREY, alone), Screens((210, 160), GREY, among)
    for share in (1.0, 1e-3, 0.0, 1e-3):
        change(one.pictures, random, 1e-3)
        change(nine.pictures, random, share)
        nine.pictures[:, 4] = one.pictures[:, 0]
        one.refresh()
        nine.refresh()
        assert among[4].tobytes() == alone[0].tobytes()


def test_the_lighter_of_two_pictures_is_kept_beside_a_third() -> None:
    random = np.random.default_rng(2)
    small = np.zeros((2, 42, 42), np.uint8)
    screens = Screens((210, 160), GREY, small)
    change(screens.pictures, random, 1.0)
    screens.refresh()
    three = np.concatenate([screens.pictures, np.zeros((1, 2, 210, 160), np.uint8)])
    change(screens.pictures[:1], random, 0.5)
    three[2] = screens.pictures[0]
    screens.keep_lighter(1)
    screens.refresh()
    np.testing.assert_array_equal(small[1], shown(three, 42)[1])


@pytest.mark.parametrize("rom", ["journey_escape", "qbert"])
def test_every_colour_is_as_grey_as_the_ale_shows_it(rom: str) -> None:
    """In two games that show most of the 128."""
    emulator = Game(rom, V5).emulator(0.0)
    look, grey = camera(emulator)
    picture = np.zeros(emulator.ale.getScreenDims(), np.uint8)
    random = np.random.default_rng(0)
    met = np.zeros(256, np.bool_)
    emulator.reset(seed=0)
    for _ in range(150):
        for _ in range(4):
            emulator.ale.act(random.choice(emulator._action_set))
        look(picture)
        np.testing.assert_array_equal(grey[picture], emulator.ale.getScreenGrayscale())
        met[picture] = True
    assert met.sum() > 64


class Spied:
    """An emulator that keeps the grey picture of every frame."""

    def __init__(self, ale: Any) -> None:
        self._ale = ale
        self.frames: list[Frames] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)

    def act(self, action: Any) -> float:
        reward: float = self._ale.act(action)
        self.frames.append(self._ale.getScreenGrayscale())
        return reward

    def taken(self) -> list[Frames]:
        """Return the frames since the last call."""
        frames, self.frames = self.frames, []
        return frames


def play_plainly(name: str, slots: int, steps: int, **kwargs: Any) -> set[int]:
    """Compare with whole grey frames, joined by Gymnasium's rules; some episodes are cut short.

    Returns:
        In which frames of a step an episode has ended.
    """
    backend = AtariBackend(name, kwargs, slots)
    size, skip = backend.observations.shape[-1], kwargs.get("frame_skip", 4)
    random = np.random.default_rng(0)
    spies: list[Spied] = []
    joined: list[Frames] = []
    seed, ends = 0, set()
    for slot in range(slots):
        backend.start(slot, slot)  # makes the emulator
        spies.append(Spied(backend._slots[slot]._ale))
        backend._slots[slot]._ale = spies[slot]  # type: ignore[assignment]
        emulator = backend.environment(slot).unwrapped
        emulator.ale.reset_game()
        joined.append(emulator.ale.getScreenGrayscale())
        backend.retire(slot)
    begin, resize = joined[0], AreaResize(joined[0].shape, size)
    for _ in range(steps):
        for slot, spy in enumerate(spies):
            if not backend.live[slot] or random.random() < 0.03:
                seed += 1
                backend.start(slot, seed)
                joined[slot] = [begin, *spy.taken()][-1]
                small = resize(joined[slot][np.newaxis])[0]
                for frame in backend.observations[slot]:
                    np.testing.assert_array_equal(frame, small)
        older = backend.observations[:, 1:].copy()
        backend.step(random.integers(0, backend.single_action_space.n, slots))  # type: ignore[attr-defined]
        for slot, spy in enumerate(spies):
            frames = spy.taken()
            if not backend.live[slot]:
                ends.add(len(frames))
                frames.pop()
            if len(frames) == skip:
                joined[slot] = np.maximum.reduce(frames[-2:])
            elif len(frames) == skip - 1 > 0:
                joined[slot] = np.maximum(joined[slot], frames[-1])
        np.testing.assert_array_equal(backend.observations[:, -1], resize(np.stack(joined)))
        np.testing.assert_array_equal(backend.observations[:, :-1], older)
    return ends


@pytest.mark.parametrize(
    ("name", "kwargs", "ends"),
    [
        ("esbench/Pong-v5", {"screen_size": 21, "max_num_frames_per_episode": 84}, {4}),
        ("esbench/Qbert-v5", {"max_num_frames_per_episode": 83}, {3}),
        ("esbench/SolarisDeterministic-v5", {"max_num_frames_per_episode": 89}, {2, 4}),
        ("esbench/BeamRider-v5", {"frame_skip": 1, "max_num_frames_per_episode": 50}, {1}),
        ("esbench/Enduro-v5", {"frame_skip": 2, "max_num_frames_per_episode": 62}, {2}),
        ("esbench/LaserGates-v5", {"frame_skip": 2, "max_num_frames_per_episode": 61}, {1}),
    ],
)
def test_what_is_seen_is_the_last_frames_of_the_emulator(
    name: str, kwargs: dict[str, Any], ends: set[int]
) -> None:
    assert play_plainly(name, 2, 80, **kwargs) >= ends


def test_an_ale_of_other_greys_is_taken_in_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    kwargs = {"max_num_frames_per_episode": 84, "screen_size": 21}
    assert camera(Game("pong", V5).emulator(0.0))[1].tolist() != list(range(256))
    monkeypatch.setattr(screens, "NTSC", bytes(level ^ 1 for level in screens.NTSC))
    assert camera(Game("pong", V5).emulator(0.0))[1].tolist() == list(range(256))
    play_plainly("esbench/Pong-v5", 1, 40, **kwargs)
