"""Virtual batch normalization against PyTorch's batch normalization in training mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from command_line import finished
from flat_parameters import members
from test_conv_networks import EPSILON, NORMALIZED, frames, make
from test_conv_networks import SMALL as IMAGE

from esbench.core.settings import parse
from esbench.policies.kernels.torch_modules import VirtualBatchNorm, refer
from esbench.policies.module import ModulePolicy
from esbench.policies.policy import Policy, ReferredBatch


def normalized(**settings: Any) -> Policy:
    return make("small_conv", IMAGE, **{**NORMALIZED, **settings})


def reference(seed: int = 8) -> np.ndarray:
    return frames(9, IMAGE, seed)


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
    assert not isinstance(plain.batch(1), ReferredBatch)


class Network(torch.nn.Module):
    """A network as a person would write it."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, 3, 5, stride=2, bias=False)
        self.norm1 = VirtualBatchNorm(3, eps=EPSILON)
        self.hidden = torch.nn.Linear(3 * 8 * 9, 7, bias=False)
        self.norm2 = VirtualBatchNorm(7)
        self.out = torch.nn.Linear(7, num_outputs)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.first(observations.reshape(-1, *IMAGE) / 255.0)))
        return self.out(torch.relu(self.norm2(self.hidden(x.flatten(1)))))


def test_a_module_normalizes_by_the_batch_that_its_policy_is_given() -> None:
    table = {"factory": f"{__name__}:Network", "reference_size": 9}
    own = ModulePolicy(parse(ModulePolicy.Settings, table, "test"), 840, 6, IMAGE)
    assert own.reference_size == 9
    parameters, rows = members(own, 3, 0.3), frames(3, IMAGE)
    batch: Any = own.batch(3)
    batch.refer(reference())
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    for slot, member in enumerate(parameters):
        module, values = Network(840, 6), torch.from_numpy(member.astype(np.float32))
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(values, module.parameters())
            refer(module, torch.from_numpy(reference()))
            expected = module(torch.from_numpy(rows[slot : slot + 1]))[0]
        npt.assert_array_equal(outputs[slot], expected)


@pytest.mark.parametrize("shape", [(12, 5), (6, 5, 4, 3)])
def test_the_torch_layer_is_batch_norm_in_training_mode_on_the_reference(
    shape: tuple[int, ...],
) -> None:
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


def test_nobody_who_does_not_ask_for_the_layer_imports_torch() -> None:
    code = (
        "import sys; from esbench.policies.policy import POLICIES; POLICIES.names();"
        "assert 'esbench.policies.conv_networks' in sys.modules; assert 'torch' not in sys.modules"
    )
    assert finished("-c", code) == (0, "", "")
    with pytest.raises(ImportError):
        from esbench.policies import VirtualBatchNrom  # noqa: F401
