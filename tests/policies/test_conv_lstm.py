"""The recurrent convolutional policy against PyTorch's own layers, over several steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import FlatParameters, loaded, members
from test_conv_networks import frames, make

from esbench.policies.policy import Policy

IMAGE = (1, 42, 42)
STEPS = 5


def torch_outputs(policy: Policy, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute one episode of rows [T, inputs] with Conv2d and LSTMCell, in float64."""
    settings: Any = policy.settings
    activate = getattr(torch.nn.functional, settings.activation)
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
        found = torch.stack(outputs)
        if settings.output_activation != "identity":
            found = getattr(torch.nn.functional, settings.output_activation)(found)
    return found.numpy()


def test_it_has_as_many_parameters_as_pytorch_es() -> None:
    convolutions = (9 * 1 * 32 + 32) + 3 * (9 * 32 * 32 + 32)
    gates = (32 * 3 * 3 + 256) * 4 * 256 + 4 * 256  # one bias, where LSTMCell adds two
    assert make("conv_lstm", IMAGE).num_params == convolutions + gates + 257 * 6


@pytest.mark.parametrize(
    ("image", "settings"),
    [
        (IMAGE, {}),
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
        expected = torch_outputs(policy, member, rows[slot])
        assert np.abs(expected[1:] - expected[:-1]).max() > 1e-3  # what was before shows
        npt.assert_allclose(outputs[:, slot], expected, atol=2e-5 * np.abs(expected).max())


def test_a_slot_that_is_not_live_keeps_its_state() -> None:
    policy = make("conv_lstm", IMAGE, units=16)
    rows = frames(2, IMAGE)
    batch, same = (loaded(policy, members(policy, 2)) for _ in range(2))
    batch.forward(rows)
    batch.forward(np.array([rows[0], np.full_like(rows[1], np.nan)]), [0])
    same.forward(rows)
    npt.assert_array_equal(batch.forward(rows)[1], same.forward(rows)[1])


def test_the_forget_gates_start_open() -> None:
    policy = make("conv_lstm", IMAGE)
    start = policy.initial_parameters(np.random.default_rng(0))
    gates = start[: -257 * 6][-4 * 256 :].reshape(4, 256)
    npt.assert_array_equal(gates, np.outer([0, 1, 0, 0], np.ones(256)))


def test_huge_sums_saturate_without_a_warning() -> None:
    policy = make("conv_lstm", (1, 3, 3), units=4)
    batch = loaded(policy, 1e4 * members(policy, 1))
    assert np.isfinite(batch.forward(frames(1, (1, 3, 3)))).all()
