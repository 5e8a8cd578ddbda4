"""Virtual batch normalisation against PyTorch's batch normalisation in training mode."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from test_convolutional import frames, make

from esbench.policies.base import Policy

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
    """Return what PyTorch's batch normalisation makes of rows, in float64.

    In training mode on the reference batch, whose statistics it keeps, and on them in evaluation.
    """
    settings: Any = policy.settings
    activate = {"relu": torch.relu, "selu": torch.selu}[settings.activation]
    rest = torch.from_numpy(parameters.astype(np.float32).astype(np.float64))

    def take(*shape: int) -> torch.Tensor:
        nonlocal rest
        size = int(np.prod(shape))
        taken, rest = rest[:size].reshape(shape), rest[size:]
        return taken

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
    assert rest.numel() == 0
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


def test_a_slot_computes_the_same_bits_whatever_was_loaded_before_and_stands_beside_it() -> None:
    policy = normalized()
    parameters, rows = members(policy, 4), frames(4, IMAGE)
    together = policy.batch(4)
    together.refer(reference())
    for slot in (2, 0, 3, 1, 1, 3):
        together.load(slot, parameters[slot])
    outputs = together.forward(rows)
    for slot, member in enumerate(parameters):
        alone = policy.batch(1)
        alone.refer(reference())
        alone.load(0, member)
        npt.assert_array_equal(alone.forward(rows[slot : slot + 1])[0], outputs[slot])
    live = together.forward(np.where(np.arange(4)[:, None] % 2, np.nan, rows), [0, 2])
    npt.assert_array_equal(live[[0, 2]], outputs[[0, 2]])


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


def test_a_policy_that_wants_none_is_given_none() -> None:
    with pytest.raises(RuntimeError, match="takes no reference batch"):
        normalized(virtual_batch_norm=False).batch(1).refer(reference())
