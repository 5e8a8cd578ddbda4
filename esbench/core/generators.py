"""Random generators and their states, which tell whether code has drawn from them.

What code draws from a generator that it shares with other code depends on what that code has drawn
before: on the order of episodes, and on the process.
"""

from __future__ import annotations

import pickle
import random
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias, final

import numpy as np

DEPTH: Final = 2  # of objects in attributes of an owner
MOST: Final = 1000  # objects of an owner, and elements of a list that is searched
CODE: Final = (type, ModuleType, FunctionType)

Named: TypeAlias = dict[str, Any]
"""Generators by names for messages."""


def global_generators() -> Named:
    """The generators behind the functions of ``random``, ``numpy.random`` and ``torch``."""
    found: Named = {"random": random._inst, "numpy.random": np.random.mtrand._rand}
    if torch := sys.modules.get("torch"):
        found["torch"] = torch.default_generator
    return found


def shared_generators() -> Named:
    """The global generators, and those that any imported module holds."""
    found, kinds = global_generators(), _kinds()
    known = {id(generator) for generator in found.values()}
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if issubclass(type(value), kinds) and id(value) not in known:
                known.add(id(value))
                found[f"{name}.{attribute}"] = value
    return found


def held_generators(owners: Iterable[object]) -> Named:
    """The generators in the attributes of objects, of their classes and of objects therein."""
    found: Named = {}
    known, kinds = set[int](), _kinds()
    for owner in owners:
        cls = owner if isinstance(owner, type) else type(owner)
        queue = [(cls.__name__, owner, DEPTH)]
        for path, holder, depth in queue:
            attributes = _attributes(owner) if holder is owner else _parts(holder)
            for part, value in attributes:
                if id(value) in known or issubclass(type(value), CODE):
                    continue
                where = f"{path}{part}"
                if issubclass(type(value), kinds):
                    known.add(id(value))
                    found[where] = value
                elif depth and len(queue) < MOST and _may_hold(value):
                    known.add(id(value))
                    queue.append((where, value, depth - 1))
    return found


@final
class GeneratorWatch:
    """Says which generators have been drawn from, or seeded, since it was made.

    Watched are ``shared`` ones, by default the global ones, and those that ``owners()`` hold.
    """

    def __init__(
        self, shared: Named | None = None, owners: Callable[[], Iterable[object]] = tuple
    ) -> None:
        self._shared = global_generators() if shared is None else shared
        self._owners = owners
        self._watched = self._found()
        self._before = self._states(self._watched)
        self._is_new = True

    def drawn(self) -> dict[str, int]:
        """Their states by name.

        What the owners hold is searched again at the first call. A generator that is new then has
        not been drawn from yet.
        """
        if self._is_new:
            self._is_new, known, self._watched = False, self._watched, self._found()
            new = {
                name: each for name, each in self._watched.items() if known.get(name) is not each
            }
            self._before |= self._states(new)
        states = self._states(self._watched)
        return {name: state for name, state in states.items() if self._before[name] != state}

    def _found(self) -> Named:
        return {**held_generators(self._owners()), **self._shared}

    def _states(self, generators: Named) -> dict[str, int]:
        return {name: _state(generator) for name, generator in generators.items()}


def redrawn(first: dict[str, int], second: dict[str, int]) -> str:
    """A generator that the same code, run twice, has drawn from and not seeded; empty if none.

    The arguments are what a watch has found after each run.
    """
    return next((name for name in first if second.get(name, first[name]) != first[name]), "")


def _kinds() -> tuple[type, ...]:
    own = random.Random, np.random.Generator, np.random.RandomState
    torch = sys.modules.get("torch")
    return own if torch is None else (*own, torch.Generator)


def _may_hold(value: object) -> bool:
    return isinstance(value, dict | list | tuple) or type(value).__dictoffset__ != 0


def _attributes(owner: object) -> Iterator[tuple[str, Any]]:
    """The attributes of an object and of its classes, with their names in code."""
    for holder in (owner, *type(owner).__mro__):
        yield from _parts(holder)


def _parts(holder: Any) -> Iterator[tuple[str, Any]]:
    """The own attributes or the elements of an object, with their names in code."""
    if isinstance(holder, list | tuple | dict):
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        yield from ((f"[{key!r}]", value) for key, value in islice(list(pairs), MOST))
    elif type(holder).__dictoffset__:
        attributes = object.__getattribute__(holder, "__dict__")  # a proxy may have its own
        yield from ((f".{name}", value) for name, value in list(attributes.items()))


def _state(generator: Any) -> int:
    """A number for the state of a generator, which is the same in every process."""
    state: Any
    match generator:
        case random.SystemRandom():  # the operating system's, which has none
            return 0
        case random.Random():
            return hash(generator.getstate()[1])  # of integers, so it is fast and equal everywhere
        case np.random.RandomState():
            state = generator.get_state(legacy=False)
        case np.random.Generator():
            state = generator.bit_generator.state
        case _:
            return zlib.crc32(generator.get_state().numpy())
    match state["state"]:
        case {"key": key, "pos": position}:  # of the global one, so it is fast
            return zlib.crc32(key, position)
    return zlib.crc32(pickle.dumps(state))
