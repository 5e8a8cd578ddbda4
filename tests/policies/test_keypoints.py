"""The keypoint policy against PyTorch in float64, and what its keypoints find."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.testing as npt
import pytest
import torch
from doubles import Spaces
from flat_parameters import FlatParameters, loaded, make_policy, members

from esbench.core.errors import UsageError
from esbench.core.settings import parse
from esbench.engine.setup import Setup
from esbench.environments.wrappers import OrderedActions
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec
from esbench.policies.policy import POLICIES, Policy, TorchPolicy

PADDLE = {"height": 3, "x": 0.75, "y": -0.25}
SEVERAL = {"keypoints": [{}, PADDLE, {"width": 5}], "crop": [2, 1, 0, 3], "window": 5}
IMAGE = (3, 14, 19)
UNIT = (0.0, 1.0)


def make(
    image: tuple[int, ...] = IMAGE,
    outputs: int = 4,
    pixels: tuple[float, float] | None = (0.0, 255.0),
    **settings: Any,
) -> Policy:
    return make_policy("keypoints", image, outputs, pixels, **settings)


def expected(policy: Policy, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The outputs by torch.nn.functional, frame by frame, written from the paper."""
    settings: Any = policy.settings
    take, starts = FlatParameters(parameters), settings.keypoints
    count, window, (frames, height, width) = len(starts), settings.window, policy.shape
    top, bottom, left, right = settings.crop
    filters = settings.filter_scale * take(count, 1, window, window)
    for kernel, start in zip(filters, starts, strict=True):
        tall, wide = start.height, start.width
        first_row, first_column = (window - tall) // 2, (window - wide) // 2
        kernel[0, first_row : first_row + tall, first_column : first_column + wide] += 1.0
    slopes = settings.prior_scale * take(count, 2)
    images = torch.tensor(rows.astype(np.float64)).reshape(-1, 1, height, width)
    images = images[:, :, top : height - bottom, left : width - right]
    if not settings.normalize_observations:
        images = images * settings.observation_clip / policy.pixels[1]
    height, width = images.shape[2:]
    y, x = ((torch.arange(side).double() * 2 + 1) / side - 1 for side in (height, width))
    logits = settings.gain * torch.conv2d(images, filters, padding=window // 2)
    logits += (slopes[:, 0, None] * x)[:, None, :] + (slopes[:, 1, None] * y)[:, :, None]
    for number, start in enumerate(starts):
        for grid, place in ((x[None, :], start.x), (y[:, None], start.y)):
            if place is not None:
                logits[:, number] -= settings.curvature * (grid - place) ** 2
    chances = logits.flatten(2).softmax(2).reshape(logits.shape)
    places = torch.stack([chances.sum(2) @ x, chances.sum(3) @ y], dim=2)  # [N frames, K, 2]
    places = places.reshape(-1, frames, count, 2)
    steps = settings.difference_scale * places.diff(dim=1).clamp(-0.3, 0.3)
    inputs = torch.cat([settings.position_scale * places[:, -1:], steps], dim=1)
    inputs[:, :, 1:] -= inputs[:, :, :1].clone()
    inputs[:, :, 0] *= settings.absolute_scale
    features = inputs.flatten(1)
    units = 1 if settings.ordered_outputs else policy.num_outputs
    outputs = features @ take(features.shape[1], units) + settings.bias_scale * take(units)
    assert take.left == 0
    return outputs.numpy()


def rows_of(policy: Policy, count: int, seed: int = 3) -> np.ndarray:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((count, policy.num_inputs)).astype(np.float32)
    return rows if policy.settings.normalize_observations else np.abs(rows) * np.float32(25)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        SEVERAL,
        {**SEVERAL, "normalize_observations": False},
        {"window": 1, "keypoints": [{}] * 5},
    ],
)
def test_the_outputs_are_those_of_torch(settings: dict[str, Any]) -> None:
    policy = make(**settings)
    parameters = members(policy, 6, spread=0.5)
    rows = rows_of(policy, 6)
    outputs = loaded(policy, parameters).forward(rows)
    for member, row, found in zip(parameters, rows, outputs, strict=True):
        npt.assert_allclose(found, expected(policy, member, row)[0], rtol=0, atol=2e-5)
    assert isinstance(policy, TorchPolicy)
    module = policy.torch_layers(parameters[0], None)
    npt.assert_allclose(
        module(torch.tensor(rows)).detach(),
        expected(policy, parameters[0], rows),
        rtol=0,
        atol=2e-5,
    )


def test_fixed_filters_are_those_of_parameters_of_zero() -> None:
    policy, fixed = make(**SEVERAL), make(**SEVERAL, fixed_filters=True)
    parameters = members(policy, 6, spread=0.5)
    filters = policy.num_params - fixed.num_params
    assert filters == 3 * (25 + 2)
    parameters[:, :filters] = 0
    rows = rows_of(policy, 6)
    npt.assert_array_equal(
        loaded(fixed, parameters[:, filters:]).forward(rows),
        loaded(policy, parameters).forward(rows),
    )


def test_it_has_few_parameters() -> None:
    assert make((2, 42, 42), 3).num_params == (9 + 2) + 4 * 3 + 3
    two = {"keypoints": [{}, PADDLE], "ordered_outputs": True}
    assert make((2, 42, 42), 3, **two).num_params == 2 * (9 + 2) + 8 + 1
    assert make((2, 42, 42), 3, **two, fixed_filters=True).num_params == 8 + 1


@pytest.mark.parametrize(
    ("brightest", "settings"),
    [
        (10, {}),
        (255, {"normalize_observations": False}),
        (1, {"normalize_observations": False, "pixels": UNIT}),
    ],
)
def test_new_keypoints_find_bright_things_and_their_movement(
    brightest: float, settings: dict[str, Any]
) -> None:
    """A bar near its place, and a ball anywhere though the bar is as large, relative to the bar."""
    policy = make((2, 21, 31), 8, keypoints=[{"height": 3, "x": 0.75}, {}], **settings)
    images = np.zeros((2, 21, 31), np.float32)
    (images[0, 4, 9], images[1, 5, 7]), images[:, 11:14, 27] = (1, 1), 0.4
    images *= brightest
    parameters = np.zeros(policy.num_params)
    parameters[22:-8] = np.eye(8).reshape(-1)  # each output is an input of the linear layer
    outputs = loaded(policy, parameters[None]).forward(images.reshape(1, -1))[0]
    bar, ball = (np.array([2 * x + 1, 2 * y + 1]) / (31, 21) - 1 for x, y in ((27, 12), (7, 5)))
    moved = 10 * np.array([-2 * 2 / 31, 2 / 21])
    npt.assert_allclose(outputs, [*bar, *(4 * (ball - bar)), 0, 0, *moved], atol=0.02)


@pytest.mark.parametrize("count", [2, 3, 5, 18])
def test_ordered_outputs_choose_the_actions_of_ordered_actions(count: int) -> None:
    env: Any = gymnasium.Env()
    env.action_space = gymnasium.spaces.Discrete(count)
    intervals = OrderedActions(env)
    policy = make(outputs=count, ordered_outputs=True)
    parameters = np.zeros((41, policy.num_params))
    numbers = np.linspace(-1.5, 1.5, 41) + 0.003
    numbers[0] = 0.0
    parameters[:, -1] = numbers / policy.settings.bias_scale
    outputs = loaded(policy, parameters).forward(rows_of(policy, 41))
    wanted = [int(intervals.action(np.clip([number], -1, 1))) for number in numbers]
    wanted[0] = (count - 1) // 2  # the lower one, if 0 is a boundary
    assert outputs.argmax(axis=1).tolist() == wanted


@pytest.mark.parametrize("action", ["box", "multi", "binary", "discrete"])
def test_ordered_outputs_are_for_discrete_actions(action: str) -> None:
    environment = EnvironmentSpec(id="doubles:Spaces-v0")
    settings = parse(POLICIES.get("keypoints").Settings, {"ordered_outputs": True}, "test")
    setup = Setup(environment, PolicySpec(template="keypoints", settings=settings))
    spaces = gymnasium.spaces.Box(0, 255, IMAGE, np.uint8), Spaces(action=action).action_space
    if action == "discrete":
        assert setup.make_policy(*spaces).num_outputs == 3
        return
    with pytest.raises(UsageError, match="doubles.*actions are (Box|Multi).*ordered.*Discrete"):
        setup.make_policy(*spaces)
