"""The contract of ``PolicyBatch``, for every policy template."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.testing as npt
import pytest
from test_conv_networks import NORMALIZED

from esbench.core.settings import parse
from esbench.policies.kernels.feedforward import Activation
from esbench.policies.policy import POLICIES, Policy, PolicyBatch, SharingBatch

LAYERS = [(17, 64, 64, 6), (3, 5, 2), (348, 64, 64, 17), (1, 1), (11, 3), (7, 13, 1)]
WIDTHS = [1, 2, 3, 5, 7, 16, 33, 64]


class Case(NamedTuple):
    """A policy, and how many members and steps are enough to test it."""

    template: str
    shape: tuple[int, ...]
    outputs: int
    settings: dict[str, Any]
    members: int = 5
    steps: int = 1

    def policy(self) -> Policy:
        cls = POLICIES.get(self.template)
        inputs = int(np.prod(self.shape))
        return cls(parse(cls.Settings, self.settings, "test"), inputs, self.outputs, self.shape)

    def parameters(self, policy: Policy) -> np.ndarray:
        """Return parameters [members, P] in the range of trained networks."""
        generator = np.random.default_rng(1)
        start = policy.initial_parameters(generator)
        return start + 0.1 * generator.standard_normal((self.members, policy.num_params))

    def rows(self) -> np.ndarray:
        """Return observations [steps, members, inputs]."""
        generator, size = np.random.default_rng(2), (self.steps, self.members, *self.shape)
        if len(self.shape) == 3:
            pixels = generator.integers(0, 256, size)
            return pixels.reshape(*size[:2], -1).astype(np.float32)
        rows = np.clip(2 * generator.standard_normal(size), -5, 5).astype(np.float32)
        if self.members > 6:
            rows[:, 5] = 0.0
            rows[:, 6] = 1e4  # every tanh is saturated
        return rows


def feedforward() -> dict[str, Case]:
    cases = {}
    for inputs, *hidden, outputs in LAYERS:
        for bias in (True, False):
            some = ("tanh", "relu") if len(hidden) < 2 else get_args(Activation)
            for activation in some if hidden else ("",):
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
    "conv_lstm": Case("conv_lstm", (1, 42, 42), 6, {"units": 16}, members=3, steps=5),
    "module": Case("module", (4,), 3, module("TwoLayers"), members=7),
    "recurrent_module": Case("module", (4,), 3, module("Recurrent"), members=7, steps=3),
}
TESTED = {case.template for case in CASES.values()}
CASES |= {name: Case(name, (5,), 3, {}, 7) for name in POLICIES.names() if name not in TESTED}
every_case = pytest.mark.parametrize("name", CASES)


def make_batch(policy: Policy, slots: int, case: Case) -> PolicyBatch:
    batch: Any = policy.batch(slots)
    if policy.reference_size:
        pixels = np.random.default_rng(8).integers(0, 256, (9, policy.num_inputs))
        batch.refer(pixels.astype(np.float32))
    return batch


def run(
    batch: PolicyBatch,
    members: Sequence[np.ndarray],
    rows: np.ndarray,
    live: Sequence[int] | None = None,
) -> np.ndarray:
    """Load members into the first slots and return their outputs [steps, members, outputs]."""
    for slot, member in enumerate(members):
        batch.load(slot, member)
    return np.array([batch.forward(np.ascontiguousarray(step), live) for step in rows])


@cache
def alone(name: str) -> tuple[Policy, np.ndarray, np.ndarray, np.ndarray]:
    """Return a policy, parameters, rows, and the outputs of every member computed by itself."""
    case = CASES[name]
    policy, rows = case.policy(), case.rows()
    parameters = case.parameters(policy)
    batch = make_batch(policy, 1, case)
    outputs = [
        run(batch, parameters[[index]], rows[:, [index]])[:, 0] for index in range(case.members)
    ]
    return policy, parameters, rows, np.stack(outputs, axis=1)


def require_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.tobytes() == theirs.tobytes()


@every_case
def test_a_slots_bits_do_not_depend_on_width_or_position(name: str) -> None:
    policy, parameters, rows, expected = alone(name)
    count = len(parameters)
    for width in [width for width in WIDTHS if width <= count]:
        batch = make_batch(policy, width, CASES[name])
        for shift in {0, 1, width // 2}:
            chosen = np.roll(np.arange(count), -shift)[:width]
            require_bits(run(batch, parameters[chosen], rows[:, chosen]), expected[:, chosen])
    wide = make_batch(policy, count, CASES[name])
    for width in [width for width in WIDTHS if width < count]:
        require_bits(run(wide, parameters, rows[:, :width]), expected[:, :width])


@every_case
def test_the_live_slots_do_not_see_the_others(name: str) -> None:
    policy, parameters, rows, expected = alone(name)
    count = len(parameters)
    batch = make_batch(policy, count, CASES[name])
    most, third = list(range(count - 1)), list(range(1, count, 3))
    for live in ([0], [count - 1], [count // 4], [1, count - 1], third, most):
        idle = np.setdiff1d(np.arange(count), live)
        hidden = rows.copy()
        hidden[:, idle] = np.nan
        outputs = run(batch, parameters, hidden, live)
        assert outputs.shape == expected.shape
        require_bits(outputs[:, live], expected[:, live])


@every_case
def test_loading_a_slot_touches_no_other_and_copies(name: str) -> None:
    policy, parameters, rows, expected = alone(name)
    count = len(parameters)
    members = parameters.copy()
    members[1] = parameters[0]
    batch = make_batch(policy, count, CASES[name])
    other = run(batch, members, rows)
    assert not np.array_equal(other[:, 1], expected[:, 1])
    others = np.setdiff1d(np.arange(count), [1])
    require_bits(other[:, others], expected[:, others])
    members[:] = parameters
    for slot in range(count):
        batch.load(slot, members[slot])
    members[:] = 7.0
    seen = rows.copy()
    first = batch.forward(seen[0])
    kept = first.copy()
    batch.forward(seen[0] + 1.0)
    require_bits(first, kept)  # later calls do not change it
    require_bits(first, expected[0])
    npt.assert_array_equal(seen, rows)


@pytest.mark.parametrize("name", ["small_conv", "openai_conv", "nature_conv", "normalized"])
def test_slots_that_share_a_member_compute_the_bits_of_their_own(name: str) -> None:
    policy, parameters, rows, _ = alone(name)
    own, shared = (make_batch(policy, 3, CASES[name]) for _ in range(2))
    first, second = parameters[[0, 0, 0]], parameters[[1, 0, 0]]
    expected = run(own, first, rows[:, :3])
    shared.load(0, parameters[0])
    assert isinstance(shared, SharingBatch)
    shared.share(1, 0)
    shared.share(2, 1)
    require_bits(run(shared, [], rows[:, :3]), expected)
    shared.load(0, parameters[1])  # the others keep the member that they share
    require_bits(run(shared, [], rows[:, :3]), run(own, second, rows[:, :3]))


@every_case
def test_only_batches_that_remember_have_a_state(name: str) -> None:
    policy, parameters, rows, expected = alone(name)
    batch = make_batch(policy, len(parameters), CASES[name])
    run(batch, parameters, rows)
    again = run(batch, [], rows)  # without a load
    recurrent = name in ("conv_lstm", "recurrent_module")
    assert np.array_equal(again, expected) != recurrent
    assert batch.remembers or not recurrent
    if policy.takes_images and CASES[name].template not in ("module", "conv_lstm"):
        assert not batch.remembers


@every_case
def test_initial_parameters_are_drawn_from_the_given_generator_only(name: str) -> None:
    policy = CASES[name].policy()
    one, again, other = (
        policy.initial_parameters(np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    assert (one.shape, one.dtype) == ((policy.num_params,), np.float64)
    npt.assert_array_equal(one, again)
    assert np.array_equal(one, other) == (CASES[name].template == "linear")  # which starts at 0


@every_case
def test_initial_columns_have_length_1_and_the_last_ones_a_hundredth(name: str) -> None:
    policy, template = CASES[name].policy(), CASES[name].template
    if template in ("vector", "module"):
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
