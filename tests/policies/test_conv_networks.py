"""The convolutional policies against PyTorch's own layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import FlatParameters

from esbench.algorithms.noise import GaussianNoise, LowRankNoise
from esbench.algorithms.population import SampledPopulation
from esbench.errors import UsageError
from esbench.policies.base import POLICIES, LowRankBatch, Policy
from esbench.settings import parse

IMAGE = (4, 84, 84)
NAMES = ["small_conv", "openai_conv", "nature_conv"]
# Hand-counted: windows x channels x units + biases, and so on.
PARAMETERS = {
    "small_conv": (8 * 8 * 4 * 8 + 8) + (4 * 4 * 8 * 16 + 16) + (81 * 16 * 32 + 32) + 33 * 6,
    "openai_conv": (256 * 16 + 16) + (256 * 32 + 32) + (81 * 32 * 256 + 256) + 257 * 6,
    "nature_conv": (256 * 32 + 32)
    + (512 * 64 + 64)
    + (576 * 64 + 64)
    + (3136 * 512 + 512)
    + 513 * 6,
}


def make(name: str, image: tuple[int, ...] = IMAGE, outputs: int = 6, **settings: Any) -> Policy:
    cls = POLICIES.get(name)
    typed = parse(cls.Settings, settings, "test")
    return cls(typed, int(np.prod(image)), outputs, image)


def frames(count: int, image: tuple[int, ...] = IMAGE) -> np.ndarray:
    pixels = np.random.default_rng(5).integers(0, 256, (count, int(np.prod(image))), np.uint8)
    return pixels.astype(np.float32)


def members(policy: Policy, count: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    start = policy.initial_parameters(generator)
    return start + 0.05 * generator.standard_normal((count, policy.num_params))


def torch_outputs(policy: Policy, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute the outputs with PyTorch in float64, from parameters rounded to float32."""
    settings: Any = policy.settings
    activate = {"relu": torch.relu, "selu": torch.selu, "tanh": torch.tanh}[settings.activation]
    values = torch.from_numpy(rows.astype(np.float64)).reshape(-1, *policy.shape)
    values = values / settings.pixel_max
    take = FlatParameters(parameters)
    before = policy.shape[0]
    for channels, window, stride in settings.layers:
        kernel = take(window, window, before, channels).permute(3, 2, 0, 1)
        values = activate(torch.conv2d(values, kernel, take(channels), stride=stride))
        before = channels
    values = values.permute(0, 2, 3, 1).flatten(1)
    sizes = [values.shape[1], *settings.hidden, policy.num_outputs]
    for number, (inputs, units) in enumerate(pairwise(sizes)):
        values = values @ take(inputs, units) + take(units)
        if number < len(settings.hidden):
            values = activate(values)
    assert take.left == 0
    return values.numpy()


@pytest.mark.parametrize("name", NAMES)
def test_it_has_as_many_parameters_as_its_paper(name: str) -> None:
    assert make(name).num_params == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "image", "settings"),
    [
        *((name, IMAGE, {}) for name in NAMES),
        ("small_conv", (1, 42, 42), {"activation": "selu"}),
        ("small_conv", (3, 30, 47), {"activation": "tanh", "layers": [(5, 3, 2)], "hidden": ()}),
        ("small_conv", (2, 20, 21), {"layers": [(3, 5, 1), (4, 2, 3)], "hidden": (7, 9)}),
        ("small_conv", (1, 9, 9), {"layers": [(2, 9, 1)], "pixel_max": 1.0}),
    ],
)
def test_forward_is_the_torch_network_of_the_same_parameters(
    name: str, image: tuple[int, ...], settings: dict[str, Any]
) -> None:
    policy = make(name, image, **settings)
    parameters, rows = members(policy, 3), frames(3, image)
    batch = policy.batch(3)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    assert outputs.dtype == np.float32
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, member, rows[slot : slot + 1])[0]
        scale = np.abs(expected).max()
        npt.assert_allclose(outputs[slot], expected, atol=2e-5 * scale)


def low_rank_population(policy: Policy, key: int = 5, rank: int = 2) -> SampledPopulation:
    start = policy.initial_parameters(np.random.default_rng(key))
    noise = LowRankNoise(key, policy.num_params, policy.shapes, rank)
    return SampledPopulation(center=start, sigma=0.05, noise=noise, size=6)


def load_low_rank(
    batch: LowRankBatch, slot: int, population: SampledPopulation, index: int
) -> None:
    member = population.low_rank(index)
    assert batch.takes_low_rank
    assert member is not None
    batch.load_low_rank(slot, member)


def test_members_around_one_centre_are_those_of_the_population() -> None:
    """Nearly: x W + (x A) B^T is rounded otherwise than x (W + A B^T)."""
    policy = make("openai_conv")
    population, later = low_rank_population(policy), low_rank_population(policy, key=6)
    around, dense, rows = policy.batch(6), policy.batch(6), frames(6)
    for index in range(6):
        load_low_rank(around, index, population, index)
        dense.load(index, population.member(index))
    expected = dense.forward(rows)
    outputs = around.forward(rows)
    npt.assert_allclose(outputs, expected, atol=2e-5 * np.abs(expected).max())
    load_low_rank(around, 5, later, 3)  # of the next generation, beside those of this one
    dense.load(5, later.member(3))
    npt.assert_array_equal(around.forward(rows)[:5], outputs[:5])
    expected = dense.forward(rows)
    npt.assert_allclose(around.forward(rows), expected, atol=2e-5 * np.abs(expected).max())


def test_members_around_one_centre_do_not_see_each_other() -> None:
    policy = make("openai_conv")
    population, rows = low_rank_population(policy), frames(6)
    together = policy.batch(6)
    for index in range(6):
        load_low_rank(together, index, population, index)
    outputs = together.forward(rows)
    for index in range(6):
        alone = policy.batch(1)
        load_low_rank(alone, 0, population, index)
        npt.assert_array_equal(alone.forward(rows[[index]])[0], outputs[index])
    live = together.forward(rows, [0, 3, 5])
    npt.assert_array_equal(live[[0, 3, 5]], outputs[[0, 3, 5]])


def test_narrow_layers_and_noise_of_full_rank_are_loaded_as_they_are() -> None:
    small = make("small_conv")
    batch = small.batch(1)
    assert isinstance(batch, LowRankBatch)
    assert not batch.takes_low_rank
    noise = GaussianNoise(1, small.num_params)
    full = SampledPopulation(center=np.zeros(small.num_params), sigma=0.1, noise=noise, size=2)
    assert full.low_rank(0) is None


def test_it_starts_with_columns_of_length_1_and_small_outputs() -> None:
    policy = make("openai_conv")
    parameters, start = policy.initial_parameters(np.random.default_rng(0)), 0
    for number, shape in enumerate(policy.shapes):
        part = parameters[start : start + np.prod(shape)].reshape(shape)
        start += part.size
        if len(shape) == 1:
            npt.assert_array_equal(part, 0.0)
        else:
            length = 0.01 if number == len(policy.shapes) - 2 else 1.0
            npt.assert_allclose(np.linalg.norm(part, axis=0), length)
    assert start == policy.num_params


@pytest.mark.parametrize(
    ("image", "settings", "complaint"),
    [
        ((17,), {}, r"observations of shape \[17\].*takes images"),
        ((4, 7, 84), {}, "window of 8"),
        ((1, 20, 20), {}, "20 x 20 has shrunk to 4 x 4 before the window of 4|window"),
        ((4, 84, 84), {"layers": []}, "layers"),
        ((4, 84, 84), {"layers": [(8, 8, 0)]}, "layers"),
    ],
)
def test_what_does_not_fit_is_refused(
    image: tuple[int, ...], settings: dict[str, Any], complaint: str
) -> None:
    if image == (1, 20, 20):  # 20 -> 4 -> 1 fits; a third convolution does not
        settings = {"layers": [(8, 8, 4), (16, 4, 2), (16, 3, 1)]}
    with pytest.raises(UsageError, match=complaint):
        make("small_conv", image, **settings)
