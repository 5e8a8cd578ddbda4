from itertools import pairwise

import numpy as np
import pytest
import torch

import esbench
from esbench.errors import UsageError
from esbench.policies.base import POLICIES
from esbench.settings import parse

LAYERS = [(17, 64, 64, 6), (3, 5, 2), (348, 64, 64, 17), (1, 1), (11, 3), (7, 13, 1)]


def make(sizes, activation="tanh", bias=True):
    """Return the policy of these layers: linear if there is no hidden one."""
    inputs, *hidden, outputs = sizes
    settings = {"bias": bias}
    if hidden:
        settings |= {"hidden": hidden, "activation": activation}
    cls = POLICIES.get("mlp" if hidden else "linear")
    return cls(parse(cls.Settings, settings, "test"), inputs, outputs)


def unpack(sizes, bias, parameters):
    """Return [(W [in, out], b [out]), ...] from the flat parameters."""
    layers, rest = [], parameters
    for inputs, outputs in pairwise(sizes):
        weights, rest = rest[: inputs * outputs].reshape(inputs, outputs), rest[inputs * outputs :]
        biases, rest = np.split(rest, [outputs if bias else 0])
        layers.append((weights, biases))
    assert rest.size == 0
    return layers


def torch_network(sizes, activation, bias, parameters):
    """Return the network with the parameters rounded to float32, computing in float64."""
    between = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "identity": torch.nn.Identity}
    modules = []
    for weights, biases in unpack(sizes, bias, parameters):
        linear = torch.nn.Linear(*weights.shape, bias=bias)
        linear.weight.data = torch.from_numpy(weights.T.astype(np.float32)).double()
        if bias:
            linear.bias.data = torch.from_numpy(biases.astype(np.float32)).double()
        modules += [linear, between[activation]()]
    return torch.nn.Sequential(*modules[:-1])


def members(policy, count, seed=0):
    """Return parameters [count, P] in the range of trained networks."""
    generator = np.random.default_rng(seed)
    start = policy.initial_parameters(generator)
    return start + 0.1 * generator.standard_normal((count, policy.num_params))


def observations(policy, count, seed=1):
    values = np.random.default_rng(seed).standard_normal((count, policy.num_inputs)) * 2
    return np.clip(values, -5, 5).astype(np.float32)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
@pytest.mark.parametrize("sizes", LAYERS)
def test_forward_is_the_torch_network_of_the_same_parameters(sizes, activation, bias):
    policy = make(sizes, activation, bias)
    parameters, rows = members(policy, 5), observations(policy, 5)
    batch = policy.batch(5)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    assert outputs.dtype == np.float32
    assert outputs.shape == (5, sizes[-1])
    for slot, member in enumerate(parameters):
        network = torch_network(sizes, activation, bias, member)
        with torch.inference_mode():
            expected = network(torch.from_numpy(rows[slot : slot + 1]).double()).numpy()[0]
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(outputs[slot], expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize(
    ("sizes", "bias", "expected"),
    [
        ((17, 64, 64, 6), True, 17 * 64 + 64 + 64 * 64 + 64 + 64 * 6 + 6),
        ((17, 64, 64, 6), False, 17 * 64 + 64 * 64 + 64 * 6),
        ((3, 5, 2), True, 32),
        ((4, 2), False, 8),
        ((4, 2), True, 10),
    ],
)
def test_number_of_parameters(sizes, bias, expected):
    policy = make(sizes, bias=bias)
    assert policy.num_params == expected
    assert policy.initial_parameters(np.random.default_rng(0)).shape == (expected,)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(17, 64, 64, 6), (3, 5, 2), (7, 13, 1)])
def test_initial_columns_have_length_1_and_the_last_ones_a_hundredth(sizes, bias):
    policy = make(sizes, bias=bias)
    parameters = policy.initial_parameters(np.random.default_rng(0))
    *hidden, last = unpack(sizes, bias, parameters)
    for weights, biases in hidden:
        np.testing.assert_allclose(np.linalg.norm(weights, axis=0), 1.0, rtol=1e-12)
        assert not biases.any()
    np.testing.assert_allclose(np.linalg.norm(last[0], axis=0), 0.01, rtol=1e-12)
    assert not last[1].any()
    directions = np.concatenate([np.sign(weights).ravel() for weights, _ in [*hidden, last]])
    assert abs(directions.mean()) < 0.5


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_policy_starts_at_zero(bias):
    policy = make((5, 3), bias=bias)
    np.testing.assert_array_equal(
        policy.initial_parameters(np.random.default_rng(0)), np.zeros(18 if bias else 15)
    )


def test_the_defaults_are_the_papers():
    assert {"linear", "mlp", "module"} <= set(esbench.list_policies())
    mlp, linear = (POLICIES.get(name).Settings() for name in ("mlp", "linear"))
    assert (mlp.hidden, mlp.activation, mlp.bias) == ((64, 64), "tanh", True)
    assert linear.bias is False
    for settings in (mlp, linear):
        assert (settings.normalize_observations, settings.observation_clip) == (False, 5.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": [64, 0]}, "hidden.1 = 0"),
        ({"hidden": 64}, "hidden = 64"),
        ({"activation": "tahn"}, "did you mean 'tanh'"),
        ({"hiden": [64]}, "did you mean 'hidden'"),
        ({"observation_clip": 0.0}, "observation_clip = 0"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(UsageError, match=message):
        parse(POLICIES.get("mlp").Settings, settings, "test")
