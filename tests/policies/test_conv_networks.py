"""The convolutional policies against PyTorch's own layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import FlatParameters, loaded, make_policy, members

from esbench.core.noise import LowRankNoise
from esbench.core.population import SampledPopulation
from esbench.policies.policy import LowRankBatch, Policy

IMAGE = (4, 84, 84)
NAMES = ["small_conv", "openai_conv", "nature_conv"]
SMALL, EPSILON = (2, 20, 21), 1e-3
NORMALIZED = {
    "layers": [(3, 5, 2), (4, 3, 1)], "hidden": (7, 5),
    "virtual_batch_norm": True, "reference_size": 9,
}  # fmt: skip
GELU = {"activation": "gelu", "output_activation": "sigmoid"}
MORE: list[dict[str, Any]] = [{}, {"hidden": ()}, GELU]
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
    return make_policy(name, image, outputs, **settings)


def frames(count: int, image: tuple[int, ...] = IMAGE, seed: int = 5) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, int(np.prod(image))), np.uint8)
    return pixels.astype(np.float32)


def through_cell(rows: torch.Tensor, units: int, take: FlatParameters) -> torch.Tensor:
    """Compute the outputs [T, units] of a recurrent layer for the rows of one episode."""
    cell = torch.nn.LSTMCell(rows.shape[1], units).double().requires_grad_(False)
    cell.weight_ih.copy_(take(rows.shape[1], 4 * units).T)
    cell.weight_hh.copy_(take(units, 4 * units).T)
    cell.bias_ih.copy_(take(4 * units))
    cell.bias_hh.zero_()
    state, outputs = None, []
    for row in rows:
        state = cell(row[None], state)
        outputs.append(state[0][0])
    return torch.stack(outputs)


def torch_outputs(
    policy: Policy, parameters: np.ndarray, rows: np.ndarray, reference: np.ndarray | None
) -> np.ndarray:
    """Compute the outputs with PyTorch in float64, from parameters rounded to float32.

    The rows of a recurrent policy are those of one episode. With a reference batch, its batch
    normalization is in training mode on that batch, whose statistics it keeps, and in evaluation
    mode on the rows.
    """
    settings: Any = policy.settings
    activate = getattr(torch.nn.functional, settings.activation)
    take = FlatParameters(parameters)

    def units(sums: list[torch.Tensor], count: int) -> list[torch.Tensor]:
        if reference is None:
            return [activate((sums[0].movedim(1, -1) + take(count)).movedim(-1, 1))]
        gamma, beta = take(count), take(count)
        mean, variance = torch.zeros(count).double(), torch.ones(count).double()
        first = torch.nn.functional.batch_norm(
            sums[0], mean, variance, gamma, beta, training=True, momentum=1.0, eps=EPSILON
        )
        number = sums[0].numel() // count
        biased = variance * (number - 1) / number  # it keeps the unbiased one, and uses the other
        second = torch.nn.functional.batch_norm(sums[1], mean, biased, gamma, beta, eps=EPSILON)
        return [activate(first), activate(second)]

    values = [
        torch.from_numpy(given.astype(np.float64)).reshape(-1, *policy.shape) / settings.pixel_max
        for given in ([rows] if reference is None else [reference, rows])
    ]
    before, padding = policy.shape[0], getattr(settings, "padding", 0)
    for channels, window, stride in settings.layers:
        kernel = take(window, window, before, channels).permute(3, 2, 0, 1)
        values = units([torch.conv2d(x, kernel, None, stride, padding) for x in values], channels)
        before = channels
    values = [x.permute(0, 2, 3, 1).flatten(1) for x in values]
    if hasattr(settings, "units"):
        values = [through_cell(values[0], settings.units, take)]
    for inputs, count in pairwise([values[0].shape[1], *getattr(settings, "hidden", ())]):
        weights = take(inputs, count)
        values = units([x @ weights for x in values], count)
    outputs = values[-1] @ take(values[-1].shape[1], policy.num_outputs) + take(policy.num_outputs)
    assert take.left == 0
    if settings.output_activation != "identity":
        outputs = getattr(torch.nn.functional, settings.output_activation)(outputs)
    return outputs.numpy()


@pytest.mark.parametrize("name", NAMES)
def test_it_has_as_many_parameters_as_its_paper(name: str) -> None:
    assert make(name).num_params == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "image", "settings"),
    [
        *((name, IMAGE, {}) for name in NAMES),
        ("small_conv", (1, 42, 42), {"activation": "selu"}),
        ("small_conv", (1, 42, 42), GELU),
        ("small_conv", (3, 30, 47), {"activation": "tanh", "layers": [(5, 3, 2)], "hidden": ()}),
        ("small_conv", (2, 20, 21), {"layers": [(3, 5, 1), (4, 2, 3)], "hidden": (7, 9)}),
        ("small_conv", (1, 9, 9), {"layers": [(2, 9, 1)], "pixel_max": 1.0}),
        *(("small_conv", SMALL, {**NORMALIZED, **more}) for more in MORE),
    ],
)
def test_forward_is_the_torch_network_of_the_same_parameters(
    name: str, image: tuple[int, ...], settings: dict[str, Any]
) -> None:
    policy = make(name, image, **settings)
    parameters, rows = members(policy, 3), frames(3, image)
    batch: Any = policy.batch(3)
    reference = None
    if policy.reference_size:
        reference = frames(9, image, seed=8)
        batch.refer(reference)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    assert outputs.dtype == np.float32
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, member, rows[slot : slot + 1], reference)[0]
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


def test_members_around_one_center_are_those_of_the_population() -> None:
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


def test_members_around_one_center_do_not_see_each_other() -> None:
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


@pytest.mark.parametrize("name", ["small_conv", "nature_conv"])
def test_normalized_observations_are_not_divided_by_the_largest_pixel(name: str) -> None:
    normalizing = make(name, normalize_observations=True)
    rows = np.random.default_rng(1).standard_normal((2, int(np.prod(IMAGE)))).astype(np.float32)
    (parameters,) = members(normalizing, 1)
    whole = make(name, pixel_max=1.0)
    outputs = [loaded(policy, [parameters]).forward(rows[:1]) for policy in (normalizing, whole)]
    npt.assert_array_equal(*outputs)


FRAME = (1, 42, 42)
STEPS = 5


def test_the_recurrent_policy_has_as_many_parameters_as_pytorch_es() -> None:
    convolutions = (9 * 1 * 32 + 32) + 3 * (9 * 32 * 32 + 32)
    gates = (32 * 3 * 3 + 256) * 4 * 256 + 4 * 256  # one bias, where LSTMCell adds two
    assert make("conv_lstm", FRAME).num_params == convolutions + gates + 257 * 6


@pytest.mark.parametrize(
    ("image", "settings"),
    [
        (FRAME, {}),
        ((3, 13, 20), {"layers": [(5, 4, 3), (4, 3, 1)], "padding": 2, "activation": "relu"}),
        ((2, 9, 8), {"layers": [(5, 3, 2)], "padding": 0, "units": 7, "activation": "gelu"}),
        ((1, 1, 1), {"layers": [(2, 3, 2)], "units": 3, "output_activation": "tanh"}),
    ],
)
def test_several_steps_are_those_of_torch(image: tuple[int, ...], settings: dict[str, Any]) -> None:
    policy = make("conv_lstm", image, **settings)
    parameters = members(policy, 2)
    rows = frames(2 * STEPS, image).reshape(2, STEPS, -1)
    batch = loaded(policy, parameters)
    outputs = np.array([batch.forward(rows[:, step]) for step in range(STEPS)])
    assert outputs.dtype == np.float32
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, member, rows[slot], None)
        assert np.abs(expected[1:] - expected[:-1]).max() > 1e-3  # what was before shows
        npt.assert_allclose(outputs[:, slot], expected, atol=2e-5 * np.abs(expected).max())


def test_a_slot_that_is_not_live_keeps_its_state() -> None:
    policy = make("conv_lstm", FRAME, units=16)
    rows = frames(2, FRAME)
    batch, same = (loaded(policy, members(policy, 2)) for _ in range(2))
    batch.forward(rows)
    batch.forward(np.array([rows[0], np.full_like(rows[1], np.nan)]), [0])
    same.forward(rows)
    npt.assert_array_equal(batch.forward(rows)[1], same.forward(rows)[1])
