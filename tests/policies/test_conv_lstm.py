"""The recurrent convolutional policy against PyTorch's own layers, over several steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import FlatParameters
from test_conv_networks import frames, make

from esbench.errors import UsageError
from esbench.policies.base import Policy

IMAGE = (1, 42, 42)
STEPS = 5
ACTIVATIONS = {
    "relu": torch.relu,
    "elu": torch.nn.functional.elu,
    "selu": torch.selu,
    "tanh": torch.tanh,
}


def members(policy: Policy, count: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    start = policy.initial_parameters(generator)
    return start + 0.05 * generator.standard_normal((count, policy.num_params))


def torch_outputs(policy: Policy, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute one episode of rows [T, inputs] with Conv2d and LSTMCell, in float64."""
    settings: Any = policy.settings
    activate = ACTIVATIONS[settings.activation]
    take = FlatParameters(parameters)
    values = torch.from_numpy(rows.astype(np.float64)).reshape(-1, *policy.shape) / 255.0
    before = policy.shape[0]
    with torch.no_grad():
        for channels, window, stride in settings.layers:
            layer = torch.nn.Conv2d(before, channels, window, stride, settings.padding).double()
            layer.weight.copy_(take(window, window, before, channels).permute(3, 2, 0, 1))
            layer.bias.copy_(take(channels))
            values, before = activate(layer(values)), channels
        values = values.permute(0, 2, 3, 1).flatten(1)
        features, units = values.shape[1], settings.units
        cell = torch.nn.LSTMCell(features, units).double()
        cell.weight_ih.copy_(take(features, 4 * units).T)
        cell.weight_hh.copy_(take(units, 4 * units).T)
        cell.bias_ih.copy_(take(4 * units))
        cell.bias_hh.zero_()
        weights, bias = take(units, policy.num_outputs), take(policy.num_outputs)
        assert take.left == 0
        state, outputs = None, []
        for row in values:
            state = cell(row[None], state)
            outputs.append(state[0][0] @ weights + bias)
    return torch.stack(outputs).numpy()


def test_it_has_as_many_parameters_as_pytorch_es() -> None:
    convolutions = (9 * 1 * 32 + 32) + 3 * (9 * 32 * 32 + 32)
    gates = (32 * 3 * 3 + 256) * 4 * 256 + 4 * 256  # one bias, where LSTMCell adds two
    assert make("conv_lstm", IMAGE).num_params == convolutions + gates + 257 * 6


@pytest.mark.parametrize(
    ("image", "settings"),
    [
        (IMAGE, {}),
        ((3, 13, 20), {"layers": [(5, 4, 3), (4, 3, 1)], "padding": 2, "activation": "relu"}),
        ((2, 9, 8), {"layers": [(5, 3, 2)], "padding": 0, "units": 7, "activation": "elu"}),
        ((1, 1, 1), {"layers": [(2, 3, 2)], "units": 3, "activation": "tanh"}),
    ],
)
def test_several_steps_are_those_of_torch(image: tuple[int, ...], settings: dict[str, Any]) -> None:
    policy = make("conv_lstm", image, **settings)
    parameters = members(policy, 2)
    rows = frames(2 * STEPS, image).reshape(2, STEPS, -1)
    batch = policy.batch(2)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = np.array([batch.forward(rows[:, step]) for step in range(STEPS)])
    assert outputs.dtype == np.float32
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, member, rows[slot])
        assert np.abs(expected[1:] - expected[:-1]).max() > 1e-3  # what was before shows
        npt.assert_allclose(outputs[:, slot], expected, atol=2e-5 * np.abs(expected).max())


def test_a_slot_that_is_not_live_keeps_its_state() -> None:
    policy = make("conv_lstm", IMAGE, units=16)
    rows = frames(2, IMAGE)
    batch, same = policy.batch(2), policy.batch(2)
    for slot, member in enumerate(members(policy, 2)):
        batch.load(slot, member)
        same.load(slot, member)
    batch.forward(rows)
    batch.forward(np.array([rows[0], np.full_like(rows[1], np.nan)]), [0])
    same.forward(rows)
    npt.assert_array_equal(batch.forward(rows)[1], same.forward(rows)[1])


def test_it_starts_with_columns_of_length_1_and_open_forget_gates() -> None:
    policy = make("conv_lstm", IMAGE)
    parameters, start = policy.initial_parameters(np.random.default_rng(0)), 0
    for number, shape in enumerate(policy.shapes):
        part = parameters[start : start + np.prod(shape)].reshape(shape)
        start += part.size
        if len(shape) == 2:
            length = 0.01 if number == len(policy.shapes) - 2 else 1.0
            npt.assert_allclose(np.linalg.norm(part, axis=0), length)
        elif number == len(policy.shapes) - 3:
            npt.assert_array_equal(part.reshape(4, 256)[1], 1.0)
            npt.assert_array_equal(part.reshape(4, 256)[[0, 2, 3]], 0.0)
        else:
            npt.assert_array_equal(part, 0.0)
    assert start == policy.num_params


def test_huge_sums_saturate_without_a_warning() -> None:
    policy = make("conv_lstm", (1, 3, 3), units=4)
    batch = policy.batch(1)
    batch.load(0, 1e4 * members(policy, 1)[0])
    assert np.isfinite(batch.forward(frames(1, (1, 3, 3)))).all()


@pytest.mark.parametrize(
    ("image", "settings", "complaint"),
    [
        ((17,), {}, r"observations of shape \[17\].*takes images"),
        ((1, 4, 4), {"layers": [(2, 7, 1)]}, "window of 7"),
        ((1, 42, 42), {"padding": -1}, "padding = -1"),
    ],
)
def test_what_does_not_fit_is_refused(
    image: tuple[int, ...], settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        make("conv_lstm", image, **settings)
