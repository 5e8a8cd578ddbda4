"""Small frames of Atari games have the bits of OpenCV, made whole or only where they changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from esbench.environments import atari_frames
from esbench.environments.atari_frames import AreaResize, Frames, Screens, camera, taps
from esbench.environments.atari_games import Game

GRAY = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint8)


def plainly(frame: Frames, size: int) -> Frames:
    """Return a small frame in OpenCV's own steps: along rows in float32, then along columns.

    Compared with opencv-python-headless 5.0.0: the same bits for the sizes and frames below.
    """
    height, width = frame.shape
    short = np.zeros((height, size), np.float32)
    for columns, weights in zip(*taps(width, size, size), strict=True):
        short = short + frame[:, columns].astype(np.float32) * weights
    small = np.zeros((size, size), np.float32)
    for rows, weights in zip(*taps(height, size, size), strict=True):
        small = small + weights[:, None] * short[rows]
    return np.rint(small).astype(np.uint8)


def frames(height: int, count: int) -> Frames:
    """Return frames of noise, and of few values, which often lie in the middle of two numbers."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (count, height, 160))
    few = random.integers(0, 3, (count, height, 160)) * random.integers(1, 127, (count, 1, 1))
    return np.concatenate([noise, few]).astype(np.uint8)


@pytest.mark.parametrize("height", [210, 250])
@pytest.mark.parametrize("size", [20, 42, 64, 80, 83, 84, 105, 128, 160])
def test_a_resized_frame_has_the_bits_of_opencvs_steps(height: int, size: int) -> None:
    large = frames(height, 6)
    expected = np.stack([plainly(frame, size) for frame in large])
    resize = AreaResize((height, 160), size)
    for count in (12, 1, 9):  # whole and broken chunks, with leftovers in the work space
        np.testing.assert_array_equal(resize(large[:count]), expected[:count])


def test_a_mean_half_way_needs_opencvs_order_of_addition(monkeypatch: pytest.MonkeyPatch) -> None:
    large = frames(210, 6)
    expected = np.stack([plainly(frame, 84) for frame in large])
    monkeypatch.setattr(atari_frames, "HALF", np.float32(1))  # no mean is doubtful
    wrong = AreaResize((210, 160), 84)(large) != expected
    assert 0 < wrong.mean() < 0.01


@pytest.mark.parametrize("pixels", [160, 210, 214, 220, 230, 250])
def test_all_blocks_of_a_frame_have_the_weights_of_the_first(pixels: int) -> None:
    """Of every size that is served, and every height that a game has."""
    for size in range(20, 161):
        blocks = math.gcd(pixels, size)
        indices, weights = (
            part.T.reshape(blocks, size // blocks, -1) for part in taps(pixels, size, size)
        )
        assert (weights == weights[0]).all()
        begins = np.arange(blocks)[:, np.newaxis, np.newaxis] * (pixels // blocks)
        assert ((indices - begins == indices[0]) | (weights == 0)).all()


def shown(pictures: Frames, size: int) -> Frames:
    """Return the small frames [S, size, size] of pictures [2, S, H, W], all made anew."""
    return AreaResize(pictures.shape[2:], size)(GRAY[pictures].max(0))


def change(pictures: Frames, random: np.random.Generator, share: float) -> None:
    """Draw another color for some pixels, most of them in one of the two pictures only."""
    where = random.random(pictures.shape) < share
    pictures[where] = random.integers(0, 256, where.sum())


@pytest.mark.parametrize(
    ("height", "size"), [(210, 84), (210, 21), (210, 64), (210, 83), (220, 80), (250, 84)]
)
def test_updated_frames_equal_those_of_whole_pictures(height: int, size: int) -> None:
    random = np.random.default_rng(0)
    small = np.zeros((3, 2, size, size), np.uint8)  # the second frames of stacks of two
    screens = Screens((height, 160), GRAY, small[:, 1])
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


def test_keep_lighter_keeps_the_maximum_of_two_pictures_beside_a_third() -> None:
    random = np.random.default_rng(2)
    small = np.zeros((2, 42, 42), np.uint8)
    screens = Screens((210, 160), GRAY, small)
    change(screens.pictures, random, 1.0)
    screens.refresh()
    three = np.concatenate([screens.pictures, np.zeros((1, 2, 210, 160), np.uint8)])
    change(screens.pictures[:1], random, 0.5)
    three[2] = screens.pictures[0]
    screens.keep_lighter(1)
    screens.refresh()
    np.testing.assert_array_equal(small[1], shown(three, 42)[1])


@pytest.mark.parametrize("rom", ["journey_escape", "qbert"])
def test_every_color_has_the_gray_of_the_ale(rom: str) -> None:
    """In two games that show most of the 128."""
    emulator = Game(rom=rom, protocol="v5").emulator(0.0)
    look, gray = camera(emulator)
    picture = np.zeros(emulator.ale.getScreenDims(), np.uint8)
    random = np.random.default_rng(0)
    met = np.zeros(256, np.bool_)
    emulator.reset(seed=0)
    for _ in range(150):
        for _ in range(4):
            emulator.ale.act(random.choice(emulator._action_set))
        look(picture)
        np.testing.assert_array_equal(gray[picture], emulator.ale.getScreenGrayscale())
        met[picture] = True
    assert met.sum() > 64
