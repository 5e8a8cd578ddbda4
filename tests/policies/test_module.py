import random
import threading

import numpy as np
import pytest
import torch
from flat_parameters import loaded
from torch import nn

from esbench.core.errors import TrainingError, UsageError
from esbench.core.settings import parse
from esbench.policies.module import ModulePolicy


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
    """Has one oddity, most of which are faults."""

    def __init__(self, num_inputs, num_outputs, kind):
        with torch.device("meta" if kind == "meta" else "cpu"):
            super().__init__(num_inputs, num_outputs, num_inputs)
        self.kind = kind
        match kind:
            case "positive":  # only positive numbers show that it is random
                self.hidden.weight.data.copy_(torch.eye(num_inputs))
                self.hidden.bias.data.zero_()
            case "lazy":
                self.hidden = nn.LazyLinear(8)
            case "double":
                self.double()
            case "nan":
                nn.init.constant_(self.out.weight, torch.nan)
            case "lock":
                self.lock = threading.Lock()
            case "frozen":
                self.hidden.requires_grad_(False)
            case "other random numbers":
                self.gain = nn.Parameter(torch.tensor(random.random()))
            case "random buffer":
                self.register_buffer("noise", torch.randn(3))
            case "buffers":  # whose values cannot be compared as they are
                self.register_buffer("sparse", torch.eye(2).to_sparse())
                self.register_buffer("meta", torch.empty(2, device="meta"))
                self.register_buffer("nan", torch.tensor([torch.nan, 1.0]))

    def forward(self, observations):
        if self.kind == "positive":
            return self.out(nn.functional.dropout(torch.relu(self.hidden(observations)), 0.5))
        outputs = super().forward(observations.double() if self.kind == "double" else observations)
        match self.kind:
            case "dropout":
                return nn.functional.dropout(outputs, 0.5)
            case "dropout in training":
                return nn.functional.dropout(outputs, 0.5, self.training)
            case "complex":
                return outputs.to(torch.complex64)
            case "no batch":
                return self.hidden(observations)[0, :4]
            case "shrinks":
                return outputs[:, : 1 if observations.max() > 9 else None]
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


class Affine(nn.Linear):
    pass


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


class AnyOptions(nn.Module):
    def __init__(self, num_inputs, num_outputs, **options):
        super().__init__()
        self.layer = nn.Linear(num_inputs, num_outputs, **options)

    def forward(self, observations):
        return self.layer(observations)


class NoParameters(nn.Module):
    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.num_outputs = num_outputs

    def forward(self, observations):
        return observations[:, : self.num_outputs]


class NoModule:
    def __init__(self, num_inputs, num_outputs):
        pass


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


def make(factory="TwoLayers", inputs=4, outputs=3, shape=None, pixels=None, **arguments):
    name = factory if ":" in factory else f"{__name__}:{factory}"
    table = {"factory": name, "arguments": arguments}
    settings = parse(ModulePolicy.Settings, table, "test")
    return ModulePolicy(settings, inputs, outputs, shape, pixels)


def members(policy, count):
    return np.random.default_rng(0).standard_normal((count, policy.num_params))


def observations(count, inputs=4):
    return np.random.default_rng(1).standard_normal((count, inputs)).astype(np.float32)


def own_outputs(module, parameters, row):
    """Return the outputs of the module itself for one observation, [outputs]."""
    start = 0
    for parameter in module.parameters():
        values = parameters[start : start + parameter.numel()].astype(np.float32)
        parameter.data = torch.from_numpy(values).reshape(parameter.shape)
        start += parameter.numel()
    assert start == len(parameters)
    with torch.no_grad():
        return module(torch.from_numpy(row[None])).numpy()[0]


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
    size = int(np.prod(shape))
    policy = make("Sees", size, size, shape, pixels)
    images = np.random.default_rng(0).uniform(*pixels, (3, *shape)).astype(np.float32)
    batch = policy.batch(3)
    for slot in range(3):
        batch.load(slot, np.ones(1))
    before, after = layout.split("->")
    axes = [before.index(axis) for axis in after]
    low, high = map(np.float32, pixels)
    wanted = (images.transpose(axes).reshape(3, *expected) - low) / (high - low)
    assert wanted.min() >= 0.0
    assert wanted.max() <= 1.0
    np.testing.assert_array_equal(batch.forward(images.reshape(3, -1)), wanted.reshape(3, -1))


@pytest.mark.parametrize("pixels", [(0.0, 255.0), (-np.inf, np.inf)])
def test_images_that_are_normalized_are_not_scaled_again(pixels):
    table = {"factory": f"{__name__}:Sees", "normalize_observations": True}
    settings = parse(ModulePolicy.Settings, table, "test")
    batch = ModulePolicy(settings, 24, 24, (2, 3, 4), pixels).batch(1)
    batch.load(0, np.ones(1))
    rows = observations(1, 24)
    np.testing.assert_array_equal(batch.forward(rows), rows)


def test_the_bits_of_an_image_do_not_depend_on_the_other_slots():
    policy = make("Pixels", 8 * 9 * 3, 5, (8, 9, 3), (0.0, 255.0))
    parameters, rows = members(policy, 7), 255 * np.abs(observations(7, 8 * 9 * 3))
    batch, alone = policy.batch(7), policy.batch(1)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    for slot, member in enumerate(parameters):
        alone.load(0, member)
        assert alone.forward(rows[slot : slot + 1]).tobytes() == outputs[slot].tobytes()


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 1), (11, 3), (17, 6)])
def test_the_bits_of_a_member_do_not_depend_on_its_slot(inputs, outputs):
    policy = make("Affine", inputs, outputs)
    (member,), (row,) = members(policy, 1), observations(1, inputs)
    batch = loaded(policy, [member] * 9)
    found = batch.forward(np.stack([row] * 9))
    assert len({each.tobytes() for each in found}) == 1


@pytest.mark.parametrize(
    ("factory", "shape", "pixels", "words"),
    [
        ("Pixels", (4,), None, r"Class\(4, 3, .*shape \[4\]: TypeError"),
        ("TwoLayers", (2, 3, 4), (0.0, 1.0), r"Class\(\(2, 3, 4\), 3, "),
        ("Sees", (2, 3, 4), (0.0, np.inf), r"images \(2, 3, 4\) .*expected finite bounds"),
        ("Sees", (2, 3, 4), (-np.inf, 255.0), "normalize_observations = true"),
        ("Sees", (4,), None, r"given \[1, 4\] and raised "),
    ],
)
def test_a_module_of_other_observations_is_refused(factory, shape, pixels, words):
    with pytest.raises(UsageError, match=words):
        make(factory, int(np.prod(shape)), 3, shape, pixels)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no batch", r"given \[1, 4\] and returned \[4\]; expected \[1, 3\]"),
        ("dropout", "depend on the worker.*dropout"),
        ("positive", "depend on the worker.*dropout"),
        ("lazy", "'hidden.weight' is lazy"),
        ("double", "'out.weight' is float64"),
        ("nan", "'out.weight' is not finite"),
        ("meta", "'out.weight' is on the device meta"),
        ("lock", "Odd cannot be copied .*TypeError: "),
        ("complex", "complex64 numbers; expected float32"),
        ("random buffer", "'noise'"),
        ("frozen", "'hidden.weight'"),
        ("other random numbers", "'gain'"),
    ],
)
def test_a_faulty_module_is_refused(kind, words):
    with pytest.raises(UsageError, match=words):
        make("Odd", kind=kind).initial_parameters(np.random.default_rng(0))


def test_outputs_are_the_modules_own():
    policy = make(hidden=5, gain=2.0)
    parameters, rows = members(policy, 3), observations(3)
    outputs = loaded(policy, parameters).forward(rows)
    assert outputs.shape == (3, 3)
    own = TwoLayers(4, 3, hidden=5, gain=2.0)
    for slot, member in enumerate(parameters):
        assert outputs[slot].tobytes() == own_outputs(own, member, rows[slot]).tobytes()


def test_initial_parameters_are_the_modules_own():
    start = make().initial_parameters(np.random.default_rng(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.default_rng(0).integers(2**63)))
        own = TwoLayers(4, 3)
    expected = [p.detach().numpy().astype(np.float64).ravel() for p in own.parameters()]
    np.testing.assert_array_equal(start, np.concatenate(expected))


def test_frozen_parameters_stay_and_the_others_are_trained():
    policy = make("Frozen")
    assert policy.shapes == ((3, 8), (3,))
    (row,) = observations(1)
    hidden = torch.tanh(Frozen(4, 3).hidden(torch.from_numpy(row)))
    (parameters,) = members(policy, 1)
    weights, bias = np.split(parameters.astype(np.float32), [24])
    expected = weights.reshape(3, 8) @ hidden.detach().numpy() + bias
    outputs = loaded(policy, parameters[None]).forward(row[None])
    np.testing.assert_allclose(outputs[0], expected, rtol=1e-5)
    assert policy.initial_parameters(np.random.default_rng(0)).shape == (27,)
    module = policy.torch_layers(parameters, None)
    assert [p.requires_grad for p in module.parameters()] == [False, True, True, False, False]


def test_buffers_of_any_kind_are_compared():
    assert make("Odd", kind="buffers").initial_parameters(np.random.default_rng(0)).size == 35


def test_another_number_of_outputs_than_before_is_an_error():
    policy = make("Odd", kind="shrinks")
    batch = loaded(policy, members(policy, 2))
    rows = observations(2)
    assert batch.forward(rows).shape == (2, 3)
    rows[1] = 10
    with pytest.raises(TrainingError, match=r"Odd .*\[1, 1\].*\[1, 3\]"):
        batch.forward(rows)


def test_the_global_torch_generator_is_left_alone():
    before = torch.get_rng_state()
    policy = make()
    policy.initial_parameters(np.random.default_rng(0))
    policy.batch(3).load(0, np.zeros(policy.num_params))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_module_is_in_evaluation_mode():
    policy = make("Odd", kind="dropout in training")
    batch, rows = loaded(policy, members(policy, 1)), observations(1)
    assert batch.forward(rows).tobytes() == batch.forward(rows).tobytes()
    assert batch.forward(rows).all()


def test_a_module_may_take_any_argument():
    assert make("AnyOptions", bias=False).num_params == 12


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        ("TwoLayers", {"hiden": 4}, r":TwoLayers .*'hiden'; .*'hidden'"),
        ("TwoLayers", {"num_inputs": 4}, "'num_inputs'"),
        ("TwoLayers", {"num_outputs": 4}, "'num_outputs'"),
        ("TwoLayer", {}, "'TwoLayer'; did you mean 'TwoLayers'"),
        ("NoParameters", {}, "NoParameters has no parameters"),
        ("NoModule", {}, r"NoModule; expected a torch\.nn\.Module"),
        *((name, {}, name) for name in ("math:pi", "math:sqrt", "collections:OrderedDict")),
    ],
)
def test_what_cannot_be_a_policy_is_refused(factory, arguments, words):
    with pytest.raises(UsageError, match=words):
        make(factory, **arguments)
