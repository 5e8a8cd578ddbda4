"""Frames are made small as OpenCV does it, whatever way they are added up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from esbench.environments import atari_frames as resizing
from esbench.environments.atari_frames import AreaResize, Frames, taps


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
def test_the_fast_way_has_the_bits_of_the_plain_one(height: int, size: int) -> None:
    large = frames(height, 6)
    expected = np.stack([plainly(frame, size) for frame in large])
    resize = AreaResize((height, 160), size)
    for count in (12, 1, 9):  # whole and broken chunks, with leftovers in the work space
        np.testing.assert_array_equal(resize(large[:count]), expected[:count])


def test_a_mean_in_the_middle_needs_opencvs_order(monkeypatch: pytest.MonkeyPatch) -> None:
    large = frames(210, 6)
    expected = np.stack([plainly(frame, 84) for frame in large])
    monkeypatch.setattr(resizing, "HALF", np.float32(1))  # nothing is doubtful any more
    wrong = AreaResize((210, 160), 84)(large) != expected
    assert 0 < wrong.mean() < 0.01


def test_a_small_pixel_is_the_mean_of_what_it_covers() -> None:
    frame = np.zeros((210, 160), np.uint8)
    frame[:, :2] = 200  # of the first small pixel 40/21 wide all, of the second 2/21 of a pixel
    small = AreaResize((210, 160), 84)(frame[np.newaxis])[0]
    assert small[:, 0].tolist() == [200] * 84
    assert small[:, 1].tolist() == [10] * 84  # 200 * (2/21) / (40/21)
    assert not small[:, 2:].any()


@pytest.mark.parametrize("pixels", [160, 210, 214, 220, 230, 250])
def test_every_block_is_made_as_the_first(pixels: int) -> None:
    """Of every size that is served, and every height that a game has."""
    for size in range(20, 161):
        blocks = math.gcd(pixels, size)
        indices, weights = (
            part.T.reshape(blocks, size // blocks, -1) for part in taps(pixels, size, size)
        )
        assert (weights == weights[0]).all()
        begins = np.arange(blocks)[:, np.newaxis, np.newaxis] * (pixels // blocks)
        assert ((indices - begins == indices[0]) | (weights == 0)).all()
