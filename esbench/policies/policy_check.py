"""A check that a policy keeps the contract of ``esbench.policies.policy``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Matrix
from esbench.core.errors import EsbenchError, UsageError, UserCodeError, error_text, location
from esbench.core.generators import GeneratorWatch, redrawn, shared_generators
from esbench.core.settings import parse
from esbench.core.user_code import import_name
from esbench.policies.module import ModulePolicy
from esbench.policies.policy import POLICIES, Policy, PolicyBatch, ReferredBatch, Rows, SharingBatch

SPREAD: Final = 0.1  # of the members around the initial parameters
OBSERVATIONS: Final = 200  # of many magnitudes: a network may be random in some states
PIXELS: Final = 10_000  # of all these observations together, if they are images
NO_RANDOM_NUMBERS: Final = (
    "expected no random numbers in forward (dropout: torch.nn.Dropout, or functional.dropout with "
    "training=self.training)"
)
WIDTHS: Final = (2, 3, 5, 7, 16, 33, 64)  # slots; BLAS treats them differently

Check: TypeAlias = "Callable[[Examined], str | None]"


def check_policy(
    policy: str | type,
    num_inputs: int = 5,
    num_outputs: int = 3,
    shape: tuple[int, ...] | None = None,
    **settings: Any,
) -> None:
    """Check a policy on random observations, and say in one sentence what is wrong.

    Its initial parameters must depend on the given generator only. The outputs of a slot must not
    depend on random numbers, on the number of slots, on its place, or on what other slots show and
    load.

    Args:
        policy: the name or class of a template, or a ``torch.nn.Module``, also as
            "package.file:Class".
        num_inputs: the size of an observation.
        num_outputs: the number of outputs.
        shape: of an image, such as (4, 84, 84), which has ``num_inputs`` pixels; by default
            observations are vectors.
        settings: of the template; the arguments of a module are ``arguments``, a table.

    Raises:
        UsageError: the policy does not keep the contract, or ``settings`` are wrong.

    >>> check_policy("mlp", num_inputs=4, hidden=[8])
    """
    name = policy if isinstance(policy, str) else policy.__qualname__
    _check(_made(policy, num_inputs, num_outputs, shape, settings), name, CHECKS)


def check_own(policy: Policy) -> None:
    """Check the policy of a trial if it is a user's module; its outputs may be infinite.

    Raises:
        UserCodeError: it does not keep the contract.
    """
    if isinstance(policy, ModulePolicy):
        checks = [each for each in CHECKS if each != _finite]
        _check(policy, policy.settings.factory, checks, count=3, steps=2)


def _check(policy: Policy, name: str, checks: Sequence[Check], **sizes: int) -> None:
    try:
        examined = Examined(policy, **sizes)
        found = next(filter(None, (check(examined) for check in checks)), None)
    except EsbenchError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise UserCodeError(f"policy {name!r}: {error_text(error)}{location(error)}") from error
    if found:
        raise UserCodeError(f"policy {name!r}: {found}")


def _made(
    policy: str | type,
    num_inputs: int,
    num_outputs: int,
    shape: tuple[int, ...] | None,
    settings: dict[str, Any],
) -> Policy:
    if isinstance(policy, str) and ":" not in policy:
        policy = POLICIES.get(policy)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        name = policy if isinstance(policy, str) else import_name("policy", policy)
        policy, settings = POLICIES.get("module"), {**settings, "factory": name}
    if inspect.isabstract(policy):
        lacking = ", ".join(sorted(policy.__abstractmethods__))
        raise UsageError(f"policy {policy.__name__} lacks {lacking}; expected them as methods")
    typed = parse(policy.Settings, settings, "policy")
    pixels = (0.0, 255.0) if shape is not None and len(shape) == 3 else None
    return policy(typed, num_inputs, num_outputs, shape, pixels)


@final
class Examined:
    """A policy with ``count`` random members and ``rows`` of observations [steps, M, inputs]."""

    def __init__(self, policy: Policy, count: int = 5, steps: int = 3) -> None:
        self.policy, self.count = policy, count
        generator, size = np.random.default_rng(1), (steps, count, policy.num_inputs)
        self.noise = SPREAD * generator.standard_normal((count, policy.num_params))
        if len(policy.shape) == 3:
            self.rows: Rows = generator.integers(0, 256, size).astype(np.float32)
        else:
            self.rows = np.clip(2 * generator.standard_normal(size), -5, 5).astype(np.float32)
            self.rows[:, 5:6], self.rows[:, 6:7] = 0.0, 1e4  # every tanh is saturated

    @cached_property
    def members(self) -> Matrix:
        """Parameters [M, P] around the initial ones."""
        return self.policy.initial_parameters(np.random.default_rng(1)) + self.noise

    @cached_property
    def alone(self) -> Rows:
        """What ``play_alone`` returned first."""
        return self.play_alone()

    def play_alone(self) -> Rows:
        """The outputs of each member by itself, [steps, M, outputs]."""
        ones = [self.play(self.batch(1), [index])[:, 0] for index in range(self.count)]
        return np.stack(ones, axis=1)

    def play_everywhere(self) -> list[bytes]:
        """The outputs of one member for observations of many magnitudes."""
        batch, inputs = self.batch(1), self.policy.num_inputs
        batch.load(0, self.members[0])
        generator = np.random.default_rng(2)
        count = min(OBSERVATIONS, PIXELS // inputs) if len(self.policy.shape) == 3 else OBSERVATIONS
        rows = generator.standard_normal((count, 1, inputs)).astype(np.float32)
        rows *= 10.0 ** np.linspace(-3, 2, len(rows), dtype=np.float32)[:, None, None]
        return [batch.forward(row).tobytes() for row in rows]

    def batch(self, slots: int) -> PolicyBatch:
        """A batch, with a reference batch if it needs one."""
        batch = self.policy.batch(slots)
        if isinstance(batch, ReferredBatch) and self.policy.reference_size:
            pixels = np.random.default_rng(8).integers(0, 256, (9, self.policy.num_inputs))
            batch.refer(pixels.astype(np.float32))
        return batch

    def play(
        self,
        batch: PolicyBatch,
        members: Sequence[int],
        rows: Sequence[int] | None = None,
        live: Sequence[int] | None = None,
    ) -> Rows:
        """Load members into the first slots; their outputs [steps, k, outputs] for some rows."""
        for slot, index in enumerate(members):
            batch.load(slot, self.members[index])
        chosen = self.rows[:, list(members if rows is None else rows)]
        if live is not None:
            chosen = np.full_like(chosen, np.nan)
            chosen[:, list(live)] = self.rows[:, list(live)]
        return np.array([batch.forward(np.ascontiguousarray(step), live) for step in chosen])


def _parameters(examined: Examined) -> str | None:
    policy = examined.policy
    first, again = (policy.initial_parameters(np.random.default_rng(0)) for _ in range(2))
    if np.shape(first) != (policy.num_params,) or first.dtype != np.float64:
        return (
            f"initial_parameters returns {np.shape(first)} of {getattr(first, 'dtype', None)}; "
            f"expected ({policy.num_params},) of float64, as the sum of its shapes {policy.shapes}"
        )
    if not np.isfinite(first).all():
        return "its initial parameters are not finite"
    if not np.array_equal(first, again):
        return "initial_parameters returns other numbers for the same generator"
    return None


def _outputs(examined: Examined) -> str | None:
    batch, policy = examined.batch(1), examined.policy
    batch.load(0, examined.members[0])
    found = batch.forward(examined.rows[0, :1])
    if found.shape != (1, policy.num_outputs) or found.dtype != np.float32:
        return (
            f"forward returns {found.shape} of {found.dtype} for one observation; "
            f"expected (1, {policy.num_outputs}) of float32"
        )
    kept = found.copy()
    batch.forward(examined.rows[0, :1] + 1.0)
    if not np.array_equal(found, kept):
        return "forward returns an array that a later call changes; expected a new one"
    return None


def _finite(examined: Examined) -> str | None:
    return None if np.isfinite(examined.alone).all() else "its outputs are not finite"


def _repeats(examined: Examined) -> str | None:
    held = [examined.policy, *vars(examined.policy).values()]
    watch = GeneratorWatch(shared_generators(), lambda: held)
    one, drawn = examined.play_everywhere(), watch.drawn()
    other, again = examined.play_everywhere(), watch.drawn()
    if name := redrawn(drawn, again):
        return f"it draws from the generator {name}; {NO_RANDOM_NUMBERS}"
    if one == other and examined.alone.tobytes() == examined.play_alone().tobytes():
        return None
    return f"a copy of it returns other outputs for the same observations; {NO_RANDOM_NUMBERS}"


def _slots(examined: Examined) -> str | None:
    count = examined.count
    every = list(range(count))
    for width in {width for width in (*WIDTHS, count - 1, count) if width <= count}:
        for first in (0, 1):
            chosen = [*every[first:], *every[:first]][:width]
            found = examined.play(examined.batch(width), chosen)
            if found.tobytes() != examined.alone[:, chosen].tobytes():
                return f"the outputs of a member depend on the slots beside it ({width} slots)"
    for live in ([0], [count - 1], [1, count - 1], every[:-1]):
        found = examined.play(examined.batch(count), every, live=live)
        if found[:, live].tobytes() != examined.alone[:, live].tobytes():
            return "the outputs of live slots depend on what the other slots show"
    return None


def _loads(examined: Examined) -> str | None:
    batch, every = examined.batch(examined.count), list(range(examined.count))
    swapped = examined.play(batch, [0, 0, *every[2:]], every)
    others = [0, *every[2:]]
    if swapped[:, others].tobytes() != examined.alone[:, others].tobytes():
        return "load changes the outputs of another slot"
    members = examined.members.copy()
    for slot, member in enumerate(members):
        batch.load(slot, member)
    members[:] = 7.0
    if batch.forward(examined.rows[0]).tobytes() != examined.alone[0].tobytes():
        return "load keeps no copy of the parameters, or keeps the state of the member before"
    return None


def _memory(examined: Examined) -> str | None:
    batch, every = examined.batch(examined.count), list(range(examined.count))
    examined.play(batch, every)
    again = examined.play(batch, [], every)  # without a load
    if batch.remembers or np.array_equal(again, examined.alone):
        return None
    return "a slot keeps a state between steps; expected remembers = True"


def _sharing(examined: Examined) -> str | None:
    batch = examined.batch(3)
    if not isinstance(batch, SharingBatch):
        return None
    batch.load(0, examined.members[0])
    batch.share(1, 0)
    batch.share(2, 1)
    batch.load(0, examined.members[1])  # the others keep the member that they share
    found = examined.play(batch, [], [0, 1, 2])
    own = examined.play(examined.batch(3), [1, 0, 0], [0, 1, 2])
    return None if found.tobytes() == own.tobytes() else "a shared member has other outputs"


CHECKS: Final[tuple[Check, ...]] = (
    _parameters, _outputs, _finite, _repeats, _slots, _loads, _memory, _sharing,
)  # fmt: skip
