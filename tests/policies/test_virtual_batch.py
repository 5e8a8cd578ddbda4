"""Virtual batch normalisation against PyTorch's batch normalisation in training mode."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import FlatParameters
from test_conv_networks import frames, make

from esbench.errors import UsageError
from esbench.policies import VirtualBatchNorm
from esbench.policies.base import Policy, ReferredBatch
from esbench.policies.module import ModulePolicy
from esbench.settings import parse

IMAGE = (2, 20, 21)
LAYERS = [(3, 5, 2), (4, 3, 1)]
EPSILON = 1e-3


def normalized(**settings: Any) -> Policy:
    own = {"layers": LAYERS, "hidden": (7, 5), "virtual_batch_norm": True, "reference_size": 9}
    return make("small_conv", IMAGE, **{**own, **settings})


def members(policy: Policy, count: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    start = policy.initial_parameters(generator)
    return start + 0.3 * generator.standard_normal((count, policy.num_params))


def reference(seed: int = 8, image: tuple[int, ...] = IMAGE, size: int = 9) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (size, int(np.prod(image))), np.uint8)
    return pixels.astype(np.float32)


def torch_outputs(
    policy: Policy, parameters: np.ndarray, batch: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Compute the outputs for rows with PyTorch's batch normalisation, in float64.

    In training mode on the reference batch, whose statistics it keeps, and on them in evaluation.
    """
    settings: Any = policy.settings
    activate = {"relu": torch.relu, "selu": torch.selu}[settings.activation]
    take = FlatParameters(parameters)

    def normalize(pair: list[torch.Tensor], units: int) -> list[torch.Tensor]:
        gamma, beta = take(units), take(units)
        mean, variance = torch.zeros(units).double(), torch.ones(units).double()
        first = torch.nn.functional.batch_norm(
            pair[0], mean, variance, gamma, beta, training=True, momentum=1.0, eps=EPSILON
        )
        count = pair[0].numel() // units
        biased = variance * (count - 1) / count  # it keeps the unbiased one, and uses the other
        second = torch.nn.functional.batch_norm(pair[1], mean, biased, gamma, beta, eps=EPSILON)
        return [activate(first), activate(second)]

    pair = [
        torch.from_numpy(given.astype(np.float64)).reshape(-1, *policy.shape) / settings.pixel_max
        for given in (batch, rows)
    ]
    before = policy.shape[0]
    for channels, window, stride in settings.layers:
        kernel = take(window, window, before, channels).permute(3, 2, 0, 1)
        pair = normalize([torch.conv2d(x, kernel, stride=stride) for x in pair], channels)
        before = channels
    pair = [x.permute(0, 2, 3, 1).flatten(1) for x in pair]
    for inputs, units in pairwise([pair[0].shape[1], *settings.hidden]):
        weights = take(inputs, units)
        pair = normalize([x @ weights for x in pair], units)
    outputs = pair[1] @ take(pair[1].shape[1], policy.num_outputs) + take(policy.num_outputs)
    assert take.left == 0
    return outputs.numpy()


@pytest.mark.parametrize("settings", [{}, {"hidden": ()}, {"activation": "selu"}])
def test_outputs_are_those_of_torchs_batch_normalization(settings: dict[str, Any]) -> None:
    policy = normalized(**settings)
    parameters, rows = members(policy, 3), frames(3, IMAGE)
    batch = policy.batch(3)
    batch.refer(reference())
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    for slot, member in enumerate(parameters):
        expected = torch_outputs(policy, member, reference(), rows[slot : slot + 1])[0]
        npt.assert_allclose(outputs[slot], expected, atol=2e-5 * np.abs(expected).max())


def test_another_reference_batch_makes_another_policy() -> None:
    policy = normalized()
    batch, rows = policy.batch(1), frames(1, IMAGE)
    member = members(policy, 1)[0]
    outputs = []
    for seed in (8, 9, 8):
        batch.refer(reference(seed))
        batch.load(0, member)
        outputs.append(batch.forward(rows))
    assert np.abs(outputs[1] - outputs[0]).max() > 1e-4
    npt.assert_array_equal(outputs[2], outputs[0])


def test_gains_start_at_1_and_offsets_at_0_and_weights_as_without() -> None:
    policy, plain = normalized(), normalized(virtual_batch_norm=False)
    with_, without = (p.initial_parameters(np.random.default_rng(3)) for p in (policy, plain))
    parts, start = [], 0
    for number, shape in enumerate(policy.shapes):
        part = with_[start : start + np.prod(shape)]
        start += part.size
        kind = number % 3 if number < len(policy.shapes) - 2 else "output"
        if kind == 1:
            npt.assert_array_equal(part, 1.0)
        else:
            parts.append(part)
    assert start == policy.num_params
    npt.assert_array_equal(np.concatenate(parts), without)
    assert policy.num_params - plain.num_params == 3 + 4 + 7 + 5
    assert (policy.reference_size, plain.reference_size) == (9, 0)


def test_a_unit_that_is_the_same_for_all_of_the_batch_stays_finite() -> None:
    policy = normalized()
    batch = policy.batch(1)
    batch.refer(np.full_like(reference(), 7.0))
    batch.load(0, members(policy, 1)[0])
    assert np.isfinite(batch.forward(frames(1, IMAGE))).all()


def test_a_policy_without_it_takes_no_reference_batch() -> None:
    policy = normalized(virtual_batch_norm=False)
    assert policy.reference_size == 0
    assert not isinstance(policy.batch(1), ReferredBatch)


class Network(torch.nn.Module):
    """The network of ``normalized``, as a person would write it; it counts what it has seen."""

    def __init__(self, num_inputs: int, num_outputs: int, side: int = 24) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, 3, 5, stride=2, bias=False)
        self.norm1 = VirtualBatchNorm(3, eps=EPSILON)
        self.second = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm2 = VirtualBatchNorm(4)
        self.hidden = torch.nn.Linear(4 * 6 * 7, 7, bias=False)
        self.norm3 = VirtualBatchNorm(7)
        self.out = torch.nn.Linear(7, num_outputs)
        self.seen = 0

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        self.seen += len(observations)
        x = observations.reshape(-1, *IMAGE) / 255.0
        x = torch.relu(self.norm1(self.first(x)))
        x = torch.relu(self.norm2(self.second(x)))
        x = x.permute(0, 2, 3, 1).flatten(1)
        x = torch.relu(self.norm3(self.hidden(x)))
        return self.out(x)


class OneRow(Network):
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations.view(1, 840))


def module_policy(name: str) -> ModulePolicy:
    table = {"factory": f"{__name__}:{name}", "reference_size": 9}
    inputs = int(np.prod(IMAGE))
    return ModulePolicy(parse(ModulePolicy.Settings, table, "test"), inputs, 6, IMAGE)


def as_module(policy: Policy, parameters: np.ndarray) -> np.ndarray:
    """Return a member of ``normalized`` as ``Network`` orders it."""
    ends = np.cumsum([np.prod(shape) for shape in policy.shapes])[:-1]
    tensors = [
        part.reshape(shape)
        for part, shape in zip(np.split(parameters, ends), policy.shapes, strict=True)
    ]
    for number, (before, window) in zip((0, 3), ((2, 5), (3, 3)), strict=True):
        kernel = tensors[number].reshape(window, window, before, -1)
        tensors[number] = kernel.transpose(3, 2, 0, 1)
    for number in (6, 9):
        tensors[number] = tensors[number].T
    return np.concatenate([tensor.reshape(-1) for tensor in tensors])


def test_the_torch_layer_computes_what_the_template_does() -> None:
    policy, own = normalized(hidden=(7,)), module_policy("Network")
    assert own.reference_size == 9
    parameters, rows = members(policy, 3), frames(3, IMAGE)
    ours, theirs = policy.batch(3), own.batch(3)
    for batch in (ours, theirs):
        batch.refer(reference())
    for slot, member in enumerate(parameters):
        ours.load(slot, member)
        theirs.load(slot, as_module(policy, member))
    expected = ours.forward(rows)
    outputs = theirs.forward(rows)
    npt.assert_allclose(outputs, expected, atol=2e-5 * np.abs(expected).max())
    alone = own.batch(1)
    alone.refer(reference())
    alone.load(0, as_module(policy, parameters[1]))
    npt.assert_array_equal(alone.forward(rows[1:2])[0], outputs[1])


@pytest.mark.parametrize("shape", [(12, 5), (6, 5, 4, 3)])
def test_the_torch_layer_is_batch_norm_in_training_mode_on_the_reference(
    shape: tuple[int, ...],
) -> None:
    from esbench.policies.kernels.torch_layers import refer

    torch.manual_seed(0)
    layer, batch = VirtualBatchNorm(5, eps=0.01), 3.0 + 2.0 * torch.randn(shape)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(5))
        layer.bias.copy_(torch.randn(5))
        refer(layer, batch)
        expected = torch.nn.functional.batch_norm(
            batch, None, None, layer.weight, layer.bias, training=True, eps=0.01
        )
        npt.assert_allclose(layer(batch), expected, atol=1e-5)
        npt.assert_allclose(layer(batch[:1]), expected[:1], atol=1e-5)  # alone as among others


def test_a_module_remembers_nothing_of_the_reference_batch() -> None:
    own = module_policy("Network")
    batch = own.batch(1)
    batch.refer(reference())
    batch.load(0, own.initial_parameters(np.random.default_rng(0)))
    batch.forward(frames(1, IMAGE))
    assert batch._modules[0].seen == 1


def test_a_module_that_takes_one_row_only_is_one_sentence() -> None:
    own = module_policy("OneRow")
    batch = own.batch(1)
    batch.refer(reference())
    with pytest.raises(UsageError, match=r"OneRow .*\[9, 840\]: "):
        batch.load(0, np.zeros(own.num_params))


def test_the_torch_layer_says_what_is_wrong() -> None:
    layer = VirtualBatchNorm(5)
    with pytest.raises(RuntimeError, match=r"torch_layers\.refer"):
        layer(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"VirtualBatchNorm\(5\) was given \[2, 4\]; expected"):
        layer(torch.zeros(2, 4))


def test_nobody_who_does_not_ask_for_the_layer_imports_torch() -> None:
    code = (
        "import sys; from esbench.policies.base import POLICIES; POLICIES.names();"
        "assert 'esbench.policies.conv_lstm' in sys.modules; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ImportError):
        from esbench.policies import VirtualBatchNrom  # noqa: F401
