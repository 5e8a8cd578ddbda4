from typing import get_args

import numpy as np
import pytest
import torch
from flat_parameters import LAYERS, FlatParameters, loaded, make_policy, members

from esbench.policies.kernels.feedforward import ACTIVATIONS, Activation


def make(sizes, activation="tanh", bias=True, output_activation="identity"):
    """Return the policy of these layers: linear if there is no hidden one."""
    inputs, *hidden, outputs = sizes
    settings = {"bias": bias, "output_activation": output_activation}
    if hidden:
        settings |= {"hidden": hidden, "activation": activation}
    return make_policy("mlp" if hidden else "linear", (inputs,), outputs, **settings)


def activate(name, values):
    """Apply an activation of PyTorch."""
    return values if name == "identity" else getattr(torch.nn.functional, name)(values)


def torch_outputs(policy, activation, bias, parameters, row, output_activation="identity"):
    """Compute the outputs with PyTorch in float64, from parameters rounded to float32."""
    take, values = FlatParameters(parameters), torch.from_numpy(row).double()
    matrices = [shape for shape in policy.shapes if len(shape) == 2]
    for number, (inputs, units) in enumerate(matrices):
        values = values @ take(inputs, units)
        values = values + take(units) if bias else values
        last = number == len(matrices) - 1
        values = activate(output_activation if last else activation, values)
    assert take.left == 0
    return values.numpy()


def observations(policy, count, seed=1):
    values = np.random.default_rng(seed).standard_normal((count, policy.num_inputs)) * 2
    return np.clip(values, -5, 5).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
@pytest.mark.parametrize("sizes", LAYERS)
def test_forward_is_the_torch_network_of_the_same_parameters(sizes, activation, bias):
    policy = make(sizes, activation, bias)
    parameters, rows = members(policy, 5, 0.1), observations(policy, 5)
    outputs = loaded(policy, parameters).forward(rows)
    assert outputs.dtype == np.float32
    assert outputs.shape == (5, sizes[-1])
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, activation, bias, member, rows[slot])
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(outputs[slot], expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("name", get_args(Activation))
def test_every_activation_is_pytorchs(name):
    values = np.concatenate([np.linspace(-12, 12, 4001), [-1e4, -88.8, 1e4, 0.0]])
    values = values.astype(np.float32)
    expected = activate(name, torch.from_numpy(values).double()).numpy()
    assert ACTIVATIONS[name](values) is None  # in place
    np.testing.assert_allclose(values, expected, rtol=5e-7, atol=2e-7)


@pytest.mark.parametrize("name", get_args(Activation))
@pytest.mark.parametrize("sizes", [(11, 3), (7, 13, 1)])
def test_the_outputs_have_an_activation_of_their_own(name, sizes):
    policy = make(sizes, name, output_activation=name)
    (member,), rows = members(policy, 1, 0.5), observations(policy, 1)
    batch = policy.batch(1)
    batch.load(0, member)
    expected = torch_outputs(policy, name, True, member, rows[0], name)
    np.testing.assert_allclose(batch.forward(rows)[0], expected, rtol=0, atol=2e-6)
