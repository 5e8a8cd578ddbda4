"""Noise by key and row: its streams, its blocks, and low-rank matrices."""

import math

import numpy as np
import pytest
from searches import philox

from esbench.core.noise import BLOCK, GaussianNoise, LowRankNoise, UniformNoise

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
POLICY = ((4, 3), (4,), (5, 2, 2, 2), (5,), (1, 5), ())  # an MLP's, a convolution's and a scalar


def size_of(shapes):
    return sum(math.prod(shape) for shape in shapes)


def low_rank(shapes, rank, key=KEY):
    return LowRankNoise(key, size_of(shapes), shapes, rank)


def tensors(vector, shapes):
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(vector, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def every_noise(num_params):
    return [
        GaussianNoise(KEY, num_params),
        UniformNoise(KEY, num_params),
        LowRankNoise(KEY, num_params, ((num_params,),), 1),
        LowRankNoise(KEY, num_params, ((num_params, 1),), 1),
        LowRankNoise(KEY, num_params, ((1, num_params),), 1),
    ]


@pytest.mark.parametrize("num_params", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_lie_side_by_side_and_make_the_row(num_params):
    for noise in every_noise(num_params):
        end, whole = 0, noise.row(3)
        for place, block in noise.blocks(3):
            assert place.start == end
            end = place.stop
            np.testing.assert_array_equal(block, whole[place])
        assert end == num_params == whole.size


@pytest.mark.parametrize("num_params", [1, BLOCK, 2 * BLOCK + 3])
def test_a_vector_is_one_draw_however_many_blocks_it_comes_in(num_params):
    normal, uniform, flat, *_ = every_noise(num_params)
    for row in (0, 1, 2**40):
        expected = np.random.Generator(np.random.Philox(key=KEY, counter=[0, 0, row, 0]))
        drawn = expected.standard_normal(num_params)
        np.testing.assert_array_equal(normal.row(row), drawn)
        np.testing.assert_array_equal(flat.row(row), drawn)
    np.testing.assert_array_equal(uniform.row(2), philox(2, KEY).uniform(-1, 1, num_params))


@pytest.mark.parametrize("rank", [1, 2, 3, 100])
def test_low_rank_noise_is_the_papers(rank):
    for row in range(3):
        generator = philox(row, KEY)
        for tensor in tensors(low_rank(POLICY, rank).row(row), POLICY):
            if tensor.ndim < 2:
                np.testing.assert_array_equal(tensor, generator.standard_normal(tensor.shape))
                continue
            matrix = tensor.reshape(len(tensor), -1)
            r = min(rank, *matrix.shape)
            a = generator.standard_normal((matrix.shape[0], r))
            b = generator.standard_normal((r, matrix.shape[1])).T
            np.testing.assert_allclose(matrix, a @ b.T / np.sqrt(r), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", [GaussianNoise, UniformNoise])
def test_rows_can_be_read_side_by_side_and_in_any_order(kind):
    noise = kind(KEY, 3 * BLOCK)
    alone = [kind(KEY, 3 * BLOCK).row(row) for row in range(2)]
    for (place, first), (_, second) in zip(noise.blocks(0), noise.blocks(1), strict=True):
        np.testing.assert_array_equal(first, alone[0][place])
        np.testing.assert_array_equal(second, alone[1][place])
    with noise.stream(1) as generator:
        generator.integers(5, dtype=np.uint32)  # leaves half a word behind
    for row in (1, 0, 1):
        np.testing.assert_array_equal(noise.row(row), alone[row])


@pytest.mark.parametrize("num_params", [5, BLOCK - 1, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_helpers_draw_the_same_rows(threads, num_params):
    rows = [7, 1, 2, 2, 30, 4, 5]
    for noise in every_noise(num_params):
        for row, blocks in zip(rows, noise.in_turn(rows, threads), strict=True):
            drawn = np.full(num_params, np.nan)
            for place, block in blocks:
                drawn[place] = block
            np.testing.assert_array_equal(drawn, noise.row(row))
        assert list(noise.in_turn([], threads)) == []
