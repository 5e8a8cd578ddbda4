"""The pass for a GPU, on PyTorch's CPU device and on a GPU, against the one in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
import torch
from command_line import execute
from flat_parameters import loaded, members
from test_conv_networks import IMAGE, NAMES, frames, make

from esbench.core.errors import UsageError
from esbench.policies.kernels.device import GROUP, TOLERANCE, Device, DeviceBatch

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


def device_batch(policy: Any, slots: int, device: Device) -> DeviceBatch:
    return DeviceBatch(slots, policy._architecture, device)


def three_members(device: Device) -> DeviceBatch:
    policy = make("small_conv")
    batch = device_batch(policy, 3, device)
    for slot, member in enumerate(members(policy, 3)):
        batch.load(slot, member)
    return batch


@pytest.mark.parametrize(
    ("name", "image", "settings"),
    [
        ("small_conv", IMAGE, {}),
        ("nature_conv", IMAGE, {}),
        ("small_conv", (3, 30, 47), {"activation": "tanh", "layers": [(5, 3, 2)], "hidden": ()}),
        ("small_conv", (2, 20, 21), {"activation": "selu", "layers": [(3, 5, 1), (4, 2, 3)]}),
        ("small_conv", (1, 42, 42), {"activation": "elu", "pixel_max": 1.0}),
        ("small_conv", (1, 42, 42), {"activation": "gelu", "output_activation": "sigmoid"}),
        ("small_conv", (1, 42, 42), {"activation": "identity", "output_activation": "tanh"}),
    ],
)
def test_outputs_are_numpys_within_the_tolerance(
    name: str, image: tuple[int, ...], settings: dict[str, Any], device: Device
) -> None:
    policy = make(name, image, **settings)
    ours, parameters, rows = device_batch(policy, 4, device), members(policy, 4), frames(4, image)
    for order in (parameters[::-1], parameters):  # loading replaces all of a member
        for slot, member in enumerate(order):
            ours.load(slot, member)
    expected = loaded(policy, parameters).forward(rows)
    outputs = ours.forward(rows)
    assert (outputs.dtype, outputs.shape) == (np.float32, expected.shape)
    largest = np.abs(expected).max()
    npt.assert_allclose(outputs, expected, atol=TOLERANCE * largest, rtol=0)
    npt.assert_allclose(ours.forward(rows[:2]), expected[:2], atol=TOLERANCE * largest, rtol=0)


def test_an_observation_that_is_not_a_number_is_not_hidden(device: Device) -> None:
    batch, rows = three_members(device), frames(3)
    outputs = batch.forward(rows)
    rows[1] = np.nan
    for live in (None, [0, 1, 2]):
        found = batch.forward(rows, live)
        assert np.isnan(found[1]).all()
        npt.assert_array_equal(found[[0, 2]], outputs[[0, 2]])


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_a_slot_do_not_depend_on_the_others(name: str, device: Device) -> None:
    policy, count = make(name), 2 * GROUP + 3
    batch, parameters, rows = (
        device_batch(policy, count, device),
        members(policy, count),
        frames(count),
    )
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    for fewer in (1, 2, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP):
        npt.assert_array_equal(batch.forward(rows[:fewer]), outputs[:fewer])
    other = device_batch(policy, 1, device)
    other.load(0, parameters[0])
    npt.assert_array_equal(other.forward(rows[:1]), outputs[:1])


@NEEDS_GPU
def test_the_bits_of_a_member_do_not_depend_on_its_slot() -> None:
    policy, count = make("nature_conv"), 2 * GROUP + 3
    batch, (member,), (row,) = device_batch(policy, count, "cuda"), members(policy, 1), frames(1)
    for slot in range(count):
        batch.load(slot, member)
    outputs = batch.forward(np.stack([row] * count))
    npt.assert_array_equal(outputs, np.stack([outputs[0]] * count))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="device = 'cuda': PyTorch .* expected a machine with"):
        make("small_conv", device="cuda")
    trial = ("run", "--env", "esbench/Pong-v5", "--algorithm", "eggroll")
    for device, words in (("cuda", "device = 'cuda': PyTorch"), ("gpu", "'cpu' or 'cuda'")):
        assert execute(*trial, "--device", device) == 2
        assert words in capsys.readouterr().err
    assert execute("run", "pong", "--device", "cuda") == 2  # whose network knows no device
    assert "device = 'cuda': PyTorch" in capsys.readouterr().err


def test_normalized_members_are_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match="virtual_batch_norm = true"):
        make("small_conv", device="cuda", virtual_batch_norm=True)
