import random

import numpy as np
import pytest
import torch
from flat_parameters import loaded
from torch import nn

from esbench.core.errors import UsageError
from esbench.core.settings import parse
from esbench.policies.module import ModulePolicy
from esbench.policies.policy_check import check_own


class TwoLayers(nn.Module):
    """Its output layer is defined, and so ordered, before its hidden one."""

    def __init__(self, num_inputs, num_outputs, hidden=8, gain=1.0):
        super().__init__()
        self.out = nn.Linear(hidden, num_outputs)
        self.hidden = nn.Linear(num_inputs, hidden)
        self.gain = gain

    def forward(self, observations):
        return self.gain * self.out(torch.tanh(self.hidden(observations)))


class Odd(TwoLayers):
    """A module with the peculiarity ``kind``, which in most cases is a fault."""

    def __init__(self, num_inputs, num_outputs, kind):
        super().__init__(num_inputs, num_outputs, num_inputs)
        self.kind = kind
        match kind:
            case "nan":
                nn.init.constant_(self.out.weight, torch.nan)
            case "frozen":
                self.hidden.requires_grad_(False)
            case "other random numbers":
                self.gain = nn.Parameter(torch.tensor(random.random()))
            case "random buffer":
                self.register_buffer("noise", torch.randn(3))
            case "buffers":
                self.register_buffer("sparse", torch.eye(2).to_sparse())
                self.register_buffer("nan", torch.tensor([torch.nan, 1.0]))

    def forward(self, observations):
        outputs = super().forward(observations)
        match self.kind:
            case "dropout":
                return nn.functional.dropout(outputs, 0.5)
            case "dropout in training":
                return nn.functional.dropout(outputs, 0.5, self.training)
            case "no batch":
                return outputs[0]
            case "infinite":
                return outputs / 0.0
        return outputs


class Recurrent(nn.Module):
    """Remembers in an attribute and counts in a buffer, as people's networks do."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.cell = nn.Linear(num_inputs + num_outputs, num_outputs)
        self.register_buffer("steps", torch.zeros(1))
        self.state = torch.zeros(1, num_outputs)

    def forward(self, observations):
        self.steps += 1
        self.state = torch.tanh(self.cell(torch.cat([observations, self.state], 1)))
        return self.state + self.steps


class Frozen(TwoLayers):
    """Its hidden layer stays as it is, in numbers of its own."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__(num_inputs, num_outputs)
        self.hidden.requires_grad_(False)
        generator = torch.Generator().manual_seed(5)
        self.hidden.weight.copy_(torch.randn(self.hidden.weight.shape, generator=generator))
        self.hidden.bias.zero_()
        self.index = nn.Parameter(torch.arange(num_inputs), requires_grad=False)

    def forward(self, observations):
        return super().forward(observations[:, self.index])


class NoParameters(nn.Module):
    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.num_outputs = num_outputs

    def forward(self, observations):
        return observations[:, : self.num_outputs]


class Sees(nn.Module):
    """Gives what it was shown, flat, and its only parameter is a factor."""

    def __init__(self, shape, num_outputs):
        super().__init__()
        self.shape = shape
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, images):
        assert images.shape[1:] == self.shape
        return self.factor * images.flatten(1)


class Pixels(nn.Module):
    """A convolutional network of any image."""

    def __init__(self, shape, num_outputs):
        super().__init__()
        channels, height, width = shape
        self.convolution = nn.Conv2d(channels, 5, 3, padding=1)
        self.out = nn.Linear(5 * height * width, num_outputs)

    def forward(self, images):
        return self.out(torch.relu(self.convolution(images)).flatten(1))


class Alignment(nn.Linear):
    """Gives the place of its observation in a row of 64 bytes."""

    def forward(self, observations):
        return torch.full((1, self.out_features), observations.data_ptr() % 64, dtype=torch.float32)


def make(factory="TwoLayers", shape=(4,), pixels=None, outputs=3, normalize=False, **arguments):
    name = factory if ":" in factory else f"{__name__}:{factory}"
    table = {"factory": name, "arguments": arguments, "normalize_observations": normalize}
    settings = parse(ModulePolicy.Settings, table, "test")
    return ModulePolicy(settings, int(np.prod(shape)), outputs, shape, pixels)


def members(policy, count):
    return np.random.default_rng(0).standard_normal((count, policy.num_params))


def observations(count, inputs=4):
    return np.random.default_rng(1).standard_normal((count, inputs)).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "expected", "layout"),
    [
        ((7, 9, 3), (3, 7, 9), "NHWC->NCHW"),
        ((3, 7, 9), (3, 7, 9), "NCHW->NCHW"),
        ((7, 9), (1, 7, 9), "NHW->NHW"),
        ((4, 7, 9, 3), (12, 7, 9), "NFHWC->NFCHW"),
        ((4, 2, 7, 9), (8, 7, 9), "NFCHW->NFCHW"),
    ],
)
@pytest.mark.parametrize("pixels", [(0.0, 255.0), (-1.0, 1.0)])
def test_a_module_sees_images_of_any_shape(shape, expected, layout, pixels):
    policy = make("Sees", shape, pixels, int(np.prod(shape)))
    images = np.random.default_rng(0).uniform(*pixels, (3, *shape)).astype(np.float32)
    batch = loaded(policy, np.ones((3, 1)))
    before, after = layout.split("->")
    axes = [before.index(axis) for axis in after]
    low, high = map(np.float32, pixels)
    wanted = (images.transpose(axes).reshape(3, *expected) - low) / (high - low)
    assert wanted.min() >= 0.0
    assert wanted.max() <= 1.0
    np.testing.assert_array_equal(batch.forward(images.reshape(3, -1)), wanted.reshape(3, -1))


def test_every_slot_sees_its_observation_at_an_aligned_address():
    policy = make("Alignment", (3,))
    outputs = loaded(policy, members(policy, 9)).forward(observations(9, 3))
    np.testing.assert_array_equal(outputs, np.zeros((9, 3)))


IMAGES = {"shape": (2, 3, 4), "pixels": (0.0, 1.0)}


@pytest.mark.parametrize(
    ("factory", "given", "words"),
    [
        ("Pixels", {}, r"Class\(4, 3, .*shape \[4\]: TypeError"),
        ("TwoLayers", IMAGES, r"Class\(\(2, 3, 4\), 3, "),
        ("Sees", {**IMAGES, "pixels": (0.0, np.inf)}, r"\(2, 3, 4\) .*expected finite bounds"),
        ("Sees", {}, "Sees': .*Error: .*test_module.py, line"),
        ("TwoLayers", {"hiden": 4}, r":TwoLayers .*'hiden'; .*'hidden'"),
        ("NoParameters", {}, "NoParameters has no parameters"),
        *((name, {}, name) for name in ("math:pi", "math:sqrt", "collections:OrderedDict")),
        ("esbench.policies.vector:VectorPolicy", {}, r"is a template; expected its name"),
        ("Odd", {"kind": "no batch"}, r"returns \(3,\) of float32 .*expected \(1, 3\)"),
        ("Odd", {"kind": "dropout"}, "no random numbers in forward"),
        ("Odd", {"kind": "nan"}, "initial parameters are not finite"),
        ("Odd", {"kind": "random buffer"}, "'noise' is not trained, but random"),
        ("Odd", {"kind": "frozen"}, "'hidden.weight' is not trained, but random"),
        ("Odd", {"kind": "other random numbers"}, "other numbers for the same generator"),
    ],
)
def test_what_cannot_be_a_policy_is_refused(factory, given, words):
    with pytest.raises(UsageError, match=words):
        check_own(make(factory, **given))


@pytest.mark.parametrize("kind", ["buffers", "dropout in training", "infinite"])
def test_an_unusual_module_passes_the_check(kind):
    check_own(make("Odd", kind=kind))


def test_outputs_are_the_modules_own():
    policy, own = make(hidden=5, gain=2.0), TwoLayers(4, 3, hidden=5, gain=2.0)
    parameters, rows = members(policy, 3), observations(3)
    outputs = loaded(policy, parameters).forward(rows)
    assert outputs.shape == (3, 3)
    for member, row, found in zip(parameters, rows, outputs, strict=True):
        nn.utils.vector_to_parameters(torch.tensor(member, dtype=torch.float32), own.parameters())
        with torch.inference_mode():
            assert found.tobytes() == own(torch.from_numpy(row[None])).numpy().tobytes()


def test_initial_parameters_are_the_modules_own_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    policy = make()
    start = policy.initial_parameters(np.random.default_rng(0))
    policy.batch(3).load(0, start)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.default_rng(0).integers(2**63)))
        own = TwoLayers(4, 3)
    expected = [p.detach().numpy().astype(np.float64).ravel() for p in own.parameters()]
    np.testing.assert_array_equal(start, np.concatenate(expected))


def test_frozen_parameters_stay_and_the_others_are_trained():
    policy = make("Frozen")
    check_own(policy)
    assert policy.shapes == ((3, 8), (3,))
    (row,) = observations(1)
    hidden = torch.tanh(Frozen(4, 3).hidden(torch.from_numpy(row)))
    (parameters,) = members(policy, 1)
    weights, bias = np.split(parameters.astype(np.float32), [24])
    expected = weights.reshape(3, 8) @ hidden.detach().numpy() + bias
    outputs = loaded(policy, parameters[None]).forward(row[None])
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-5)
    module = policy.torch_layers(parameters, None)
    assert [p.requires_grad for p in module.parameters()] == [False, True, True, False, False]
