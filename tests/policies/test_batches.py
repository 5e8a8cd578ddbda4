"""Every policy template keeps the contract, and ``check_policy`` notices one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.testing as npt
import pytest
import torch
from flat_parameters import LAYERS, make_policy
from test_conv_networks import NORMALIZED

from esbench import check_policy
from esbench.core.errors import UsageError
from esbench.policies.kernels.feedforward import Activation
from esbench.policies.policy import (
    POLICIES,
    Policy,
    PolicyBatch,
    PolicySettings,
    SharingBatch,
    TorchPolicy,
)
from esbench.policies.policy_check import CHECKS, Examined

KEYPOINTS = {
    "keypoints": [{}, {"height": 3, "x": 0.7}, {"width": 2, "x": 0.1, "y": -0.5}],
    "crop": [1, 2, 3, 4], "window": 5, "ordered_outputs": True,
}  # fmt: skip


class Case(NamedTuple):
    """A policy, and how many members and steps are enough to test it."""

    template: str
    shape: tuple[int, ...]
    outputs: int
    settings: dict[str, Any]
    members: int = 5
    steps: int = 1

    def policy(self) -> Policy:
        pixels = (0.0, 255.0) if len(self.shape) == 3 else None
        return make_policy(self.template, self.shape, self.outputs, pixels, **self.settings)


def feedforward() -> dict[str, Case]:
    cases = {}
    for inputs, *hidden, outputs in LAYERS:
        some = ("tanh", "relu") if len(hidden) < 2 else get_args(Activation)
        some = some if hidden else ("",)
        for activation, bias in [*((each, True) for each in some), (some[0], False)]:
            settings = {"hidden": hidden, "activation": activation} if hidden else {}
            template = "mlp" if hidden else "linear"
            name = f"{template}-{inputs}-{hidden}-{outputs}-{activation}-{bias}"
            cases[name] = Case(template, (inputs,), outputs, {**settings, "bias": bias}, 64)
    return cases


def module(name: str) -> dict[str, Any]:
    return {"factory": f"test_module:{name}"}


CASES = {
    **feedforward(),
    "vector": Case("vector", (2,), 3, {}, 64),
    "small_conv": Case("small_conv", (4, 84, 84), 6, {}),
    "openai_conv": Case("openai_conv", (4, 84, 84), 6, {}),
    "nature_conv": Case("nature_conv", (4, 84, 84), 6, {}),
    "normalized": Case("small_conv", (2, 20, 21), 6, NORMALIZED),
    "keypoints": Case("keypoints", (2, 20, 21), 3, KEYPOINTS, steps=2),
    "keypoint": Case("keypoints", (1, 9, 8), 4, {"normalize_observations": False}, 64),
    "conv_lstm": Case("conv_lstm", (1, 42, 42), 6, {"units": 16}, members=3, steps=5),
    "module": Case("module", (4,), 3, module("TwoLayers"), members=7),
    "image_module": Case("module", (8, 9, 3), 5, module("Pixels")),
    "recurrent_module": Case("module", (4,), 3, module("Recurrent"), members=7, steps=3),
}
START_AT_0 = {"linear", "keypoints"}
TESTED = {case.template for case in CASES.values()}
CASES |= {name: Case(name, (5,), 3, {}, 7) for name in POLICIES.names() if name not in TESTED}
every_case = pytest.mark.parametrize("name", CASES)


@cache
def examined(name: str) -> Examined:
    return Examined(CASES[name].policy(), CASES[name].members, CASES[name].steps)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@every_case
def test_every_template_keeps_the_contract(name: str, check: Any) -> None:
    assert check(examined(name)) is None


@every_case
def test_only_batches_that_remember_have_a_state(name: str) -> None:
    case, every = examined(name), list(range(CASES[name].members))
    batch = case.batch(case.count)
    case.play(batch, every)
    recurrent = name in ("conv_lstm", "recurrent_module")
    assert np.array_equal(case.play(batch, [], every), case.alone) != recurrent
    assert batch.remembers or not recurrent
    shares = CASES[name].template in ("small_conv", "openai_conv", "nature_conv", "keypoints")
    assert isinstance(batch, SharingBatch) == shares
    assert not (shares and batch.remembers)


@every_case
def test_other_seeds_draw_other_initial_parameters(name: str) -> None:
    policy = CASES[name].policy()
    one, other = (policy.initial_parameters(np.random.default_rng(seed)) for seed in (0, 1))
    assert np.array_equal(one, other) == (CASES[name].template in START_AT_0)


@every_case
def test_initial_columns_have_length_1_and_the_last_ones_a_hundredth(name: str) -> None:
    policy, template = CASES[name].policy(), CASES[name].template
    if template in ("vector", "module", "keypoints"):
        return
    parameters, start = policy.initial_parameters(np.random.default_rng(0)), 0
    for number, shape in enumerate(policy.shapes):
        part = parameters[start : start + np.prod(shape)].reshape(shape)
        start += part.size
        last = sum(len(shape) == 2 for shape in policy.shapes[number:]) == 1
        if len(shape) == 2:
            length = 0.0 if template == "linear" else 0.01 if last else 1.0
            npt.assert_allclose(np.linalg.norm(part, axis=0), length)
        elif template != "conv_lstm" and name != "normalized":  # whose tests are their own
            npt.assert_array_equal(part, 0.0)
    assert start == policy.num_params


IMAGE = (3, 14, 19)
UNFIT: list[tuple[str, tuple[int, ...], dict[str, Any], str]] = [
    ("small_conv", (17,), {}, r"shape \[17\].*images"),
    ("small_conv", (96, 96, 3), {}, "ChannelsFirst"),
    ("small_conv", (4, 7, 84), {}, "window of 8"),
    ("small_conv", (4, 84, 84), {"layers": [(8, 8, 0)]}, "layers"),
    ("conv_lstm", (1, 42, 42), {"padding": -1}, "padding = -1"),
    ("keypoints", (128,), {}, r"\[128\]: keypoints takes images"),
    ("keypoints", (96, 96, 3), {}, r"\[frames, height, width\].*Grayscale.*FrameStack"),
    *(
        ("keypoints", IMAGE, settings, words)
        for settings, words in (
            ({"window": 4}, "window = 4: expected an odd number, such as 3"),
            ({"crop": [7, 7, 0, 0]}, r"crop = \[7, 7, 0, 0\]: nothing is left of .* 14 x 19"),
            ({"window": 15}, "window = 15: .* the 14 x 19 .* expected a smaller"),
            ({"window": 13, "crop": [1, 1, 0, 0]}, "window = 13: .* the 12 x 19 .* 14 x 19"),
            ({"keypoints": [{"height": 9}]}, r"keypoints\.0\.height = 9: .* window = 3"),
            ({"keypoints": [{}, {"width": 4}]}, r"keypoints\.1\.width = 4: .* window = 3"),
            ({"ordered_outputs": True, "outputs": 1}, "outputs = 1; expected two or more"),
            ({"normalize_observations": False, "pixels": (0, np.inf)}, "pixels from 0 to inf"),
            ({"gain": 1e39}, "gain"),
            ({"curvature": 1e11}, "curvature"),
            ({"keypoints": []}, "keypoints"),
            ({"keypoints": [{"x": 1.5}]}, r"keypoints.*x = 1\.5"),
            ({"keypoints": [{"heigth": 3}]}, "heigth.*height"),
        )
    ),
]


@pytest.mark.parametrize(("template", "shape", "given", "words"), UNFIT)
def test_what_does_not_fit_is_refused_in_a_sentence(
    template: str, shape: tuple[int, ...], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        make_policy(template, shape, **{"outputs": 4, "pixels": (0.0, 255.0), **given})
    assert "\n" not in str(refused.value)


class FaultySettings(PolicySettings):
    fault: str = ""


class Faulty(Policy):
    """A linear policy with one fault."""

    Settings = FaultySettings

    @property
    def shapes(self) -> Any:
        return ((self.num_inputs, self.num_outputs),)

    def initial_parameters(self, generator: np.random.Generator) -> np.ndarray:
        fault = self.settings.fault
        if fault == "global":
            return np.random.standard_normal(self.num_params)  # noqa: NPY002
        drawn = generator.standard_normal(self.num_params + (fault == "long"))
        return drawn * np.nan if fault == "nan" else drawn

    def batch(self, slots: int) -> PolicyBatch:
        return FaultyBatch(self, slots)


class FaultyBatch(PolicyBatch):
    remembers = False

    def __init__(self, policy: Faulty, slots: int) -> None:
        self.fault, self.shape = policy.settings.fault, policy.shapes[0]
        self.members: list[Any] = [None] * slots
        self.outputs = np.zeros((slots, self.shape[1]), np.float32)
        self.steps = 0

    def load(self, slot: int, parameters: np.ndarray) -> None:
        if self.fault == "raises":
            raise RuntimeError("no memory left")
        self.members[slot] = parameters if self.fault == "alias" else parameters.copy()
        if self.fault == "all":
            self.members = [self.members[slot]] * len(self.members)

    def forward(self, observations: np.ndarray, live: Sequence[int] | None = None) -> np.ndarray:
        self.steps += 1
        count = len(observations)
        rows = [
            observations[slot] @ self.members[slot].reshape(self.shape) for slot in range(count)
        ]
        outputs = np.array(rows) + {"width": count, "steps": self.steps}.get(self.fault, 0)
        if self.fault == "others":
            outputs += observations.sum()
        if self.fault == "reused":
            self.outputs[:count] = outputs
            return self.outputs[:count]
        return outputs.astype(np.float64 if self.fault == "double" else np.float32)


FAULTS = {
    "long": r"\(16,\) of float64; expected \(15,\)",
    "nan": "initial parameters are not finite",
    "global": "other numbers for the same generator",
    "double": r"\(1, 3\) of float64 .*expected \(1, 3\) of float32",
    "width": "depend on the slots beside it",
    "others": "depend on",
    "alias": "keeps no copy",
    "all": "depend on|another slot",
    "steps": "state",
    "reused": "a later call changes",
    "raises": "RuntimeError: no memory left",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence(fault: str) -> None:
    with pytest.raises(UsageError, match=f"policy 'Faulty': .*({FAULTS[fault]})") as raised:
        check_policy(Faulty, fault=fault)
    assert "\n" not in str(raised.value)


def test_a_template_that_lacks_a_method_is_one_sentence() -> None:
    class Unfinished(TorchPolicy):
        pass

    with pytest.raises(UsageError, match="policy Unfinished lacks .*torch_layers"):
        check_policy(Unfinished)


def test_a_policy_is_checked_by_its_name_or_its_class() -> None:
    check_policy(Faulty)
    check_policy("mlp", hidden=[4])
    check_policy("test_module:TwoLayers", arguments={"hidden": 3})
    check_policy(torch.nn.Linear)
    for name, words in (("mpl", "'mlp'"), ("numpy:ndarray", "torch.nn")):
        with pytest.raises(UsageError, match=words):
            check_policy(name)
