"""What the names of environments stand for: the specifications that modules register in Gymnasium.

Gymnasium keeps one specification of a name, that of the last import. Here every module keeps its
own: "mine:Maze-v0" is what ``mine`` registers, and "CartPole-v1" what Gymnasium itself does, in
every process and after any imports.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, final

import gymnasium
from gymnasium.envs import registration as gymnasium_registration
from gymnasium.envs.registration import EnvSpec

import esbench.environments.registration  # noqa: F401  # ours become known
from esbench.core.errors import USER_CODE_ERRORS, UsageError
from esbench.core.registry import root_of
from esbench.core.user_code import import_own


@final
@dataclass(frozen=True)
class Registration:
    """A specification and the module that registers it.

    Attributes:
        module: the module that was imported then; if that is not known, that of the entry point.
        noted: whether the registration was seen, because esbench was imported before it.
        asked_for: whether esbench imported the module, for a name with this module in it.
    """

    spec: EnvSpec
    module: str
    noted: bool = False
    asked_for: bool = False


_NOTED: Final[dict[str, dict[str, Registration]]] = {}  # by name and module


def _note_registrations() -> None:
    """Let ``gymnasium.register`` note from now on who calls it."""
    register = gymnasium_registration.register

    @functools.wraps(register)
    def noting(id: str, *arguments: Any, **settings: Any) -> None:
        module, asked_for = _caller()
        before = [each.spec for each in _registrations(id).values()][-1:]
        if asked_for:  # Gymnasium need not warn: both are kept
            gymnasium.registry.pop(id, None)
        try:
            register(id, *arguments, **settings)
        finally:
            for known in before:
                gymnasium.registry.setdefault(id, known)
        if spec := gymnasium.registry.get(id):
            # The last one of a module counts, so that a file can be imported again.
            _NOTED.setdefault(id, {})[module] = Registration(spec, module, True, asked_for)

    for module in (gymnasium, gymnasium.envs, gymnasium_registration):
        vars(module).update(register=noting)


def _caller() -> tuple[str, bool]:
    """The module whose import, or else whose code, registers, and whether esbench imports it."""
    frame, module = sys._getframe(2), ""
    first = str(frame.f_globals.get("__name__", ""))
    above: Any = frame
    while above is not None:
        name = str(above.f_globals.get("__name__", ""))
        if name.startswith("esbench."):
            return module or first, True
        if not module and above.f_code.co_name == "<module>":
            module = name
        above = above.f_back
    return module or first, False


def _registrations(name: str) -> dict[str, Registration]:
    """All registrations of a name by module, the first one first."""
    noted = _NOTED.setdefault(name, {})
    spec = gymnasium.registry.get(name)
    if spec and all(each.spec is not spec for each in noted.values()):
        noted[_module(spec)] = Registration(spec, _module(spec))
    return noted


_note_registrations()


def specification(environment_id: str) -> EnvSpec:
    """The specification of "Name-v0", or of "package:Name-v0", whose package is imported.

    Raises:
        UsageError: it is not known which of several registrations is meant.
        Exception: what the package or Gymnasium raises; the name is unknown.
    """
    module, _, name = environment_id.rpartition(":")
    if module:
        import_own(module)
    register_family(name)
    last = gymnasium.spec(name)
    found = _registrations(name)
    if module in found:
        return found[module].spec
    first, *others = found.values()
    if not module:
        if _replaces_gymnasiums(first):
            raise UsageError(
                f"{name!r} is registered by {first.module!r} in the place of Gymnasium's own; "
                "expected another name, or 'MODULE:NAME' in a program that imports esbench first"
            )
        if all(each.asked_for for each in others):
            return first.spec
    elif len({repr(each.spec) for each in found.values()}) == 1:
        if first.noted or root_of(first.module) == root_of(module):
            return last
        raise UsageError(
            f"whether {module!r} registers {name!r} is not known, because it was imported before "
            "esbench; expected 'import esbench' first"
        )
    known = ", ".join(repr(each) for each in found)
    raise UsageError(
        f"{name!r} is registered by several modules ({known}); expected names that differ, or "
        "'MODULE:NAME' in a program that imports esbench first"
    )


def _replaces_gymnasiums(first: Registration) -> bool:
    """Whether a module that was imported before esbench has taken a name of Gymnasium."""
    if first.noted or root_of(_module(first.spec)) == "gymnasium":
        return False
    return f'"{first.spec.id}"' in inspect.getsource(gymnasium.envs)


def creator(spec: EnvSpec) -> Callable[..., Any]:
    """The class or function that makes an environment, which is imported."""
    entry: Any = spec.entry_point
    if entry is None:
        raise UsageError(f"{spec.id} has no entry point; expected a single environment")
    return gymnasium_registration.load_env_creator(entry) if isinstance(entry, str) else entry


def only_in_a_module(environment_id: str) -> str | None:
    """The module that must be named, if a name without one is known by luck.

    It is registered because the module was imported for another name, or is an old name of the
    ALE, which other libraries import.
    """
    first = next(iter(_registrations(environment_id).values()), None)
    if first is None or environment_id.startswith("ALE/"):
        return None
    package = root_of(_module(first.spec))
    return first.module if first.asked_for or package == "ale_py" else None


def _module(spec: EnvSpec) -> str:
    entry: Any = spec.entry_point or ""
    while isinstance(entry, functools.partial):
        entry = entry.func
    return entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)


def register_family(name: str) -> None:
    """Register the environments of the ALE with Gymnasium if it is one; importing it is slow."""
    if name.startswith("ALE/"):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
        gymnasium.register_envs(ale_py)


def nearest_name(name: str, known: Iterable[str] = ()) -> str:
    """The end of a message about an unknown environment: the nearest name, if there is one.

    That is another version, or the name of another package for it, such as "PongNoFrameskip-v4".
    ``known`` are names beside those that are registered: of the same package as ``name``, if it has
    one, else those that need none.
    """
    module, _, own = name.rpartition(":")
    names = {
        each
        for each, spec in gymnasium.registry.items()
        if (root_of(module) in {root_of(_module(spec)), *map(root_of, _NOTED.get(each, ()))})
        or (not module and only_in_a_module(each) is None)
    }
    by_stem: dict[str, list[str]] = {}
    for each in sorted({*known, *names}):
        by_stem.setdefault(_stem(each), []).append(each)
    wanted = _stem(own)
    for stems in (
        [stem for stem in by_stem if stem == wanted],
        sorted((stem for stem in by_stem if stem and wanted.startswith(stem)), key=len)[-1:],
        sorted((stem for stem in by_stem if wanted and stem.startswith(wanted)), key=len)[:1],
        get_close_matches(wanted, by_stem, n=1, cutoff=0.7),
    ):
        if stems:
            # Ours before those of other packages, and the last version.
            order = [("/" not in each, each) for each in by_stem[stems[0]]]
            ours = [each for each in by_stem[stems[0]] if each.startswith("esbench/")]
            best = ours[-1] if ours else max(order)[1]
            return f"did you mean {best if ':' in best or not module else f'{module}:{best}'!r}?"
    return "no known name is near: see 'esbench list'"


def _stem(name: str) -> str:
    """What names of versions and packages of one environment share."""
    stem = re.sub(r"-v[\d.]*$", "", name.rpartition("/")[2].rpartition(":")[2]).lower()
    return stem.replace("noframeskip", "deterministic").removesuffix("bulletenv")


def registered(environment_id: str) -> EnvSpec | None:
    """As ``specification``; None if there is none, or it cannot be imported."""
    try:
        return specification(environment_id)
    except USER_CODE_ERRORS:  # reported when the environment is made
        return None


def registration(environment_id: str) -> Registration | None:
    """What a name stands for and who registers it; None if the name is not registered."""
    spec, name = registered(environment_id), environment_id.rpartition(":")[2]
    return next((each for each in _registrations(name).values() if each.spec is spec), None)


def module_of(environment_id: str) -> str:
    """The module of an environment's class; empty if the name is not registered."""
    spec = registered(environment_id)
    return "" if spec is None else _module(spec)


def has_time_limit(environment_id: str, kwargs: dict[str, Any]) -> bool:
    """Whether the environment is registered or made with a time limit.

    True for the games of the ALE, which limit the frames of an episode, for our own environments,
    and for an unknown name, which is refused elsewhere.
    """
    spec = registered(environment_id)
    if spec is None or _module(spec).startswith(("ale_py.", "esbench.")):
        return True
    return time_limit(environment_id, kwargs) is not None


def time_limit(environment_id: str, kwargs: dict[str, Any]) -> int | None:
    """The steps of an episode after which Gymnasium truncates it; None if it does not."""
    spec = registered(environment_id)
    known = spec.max_episode_steps if spec else None
    limit: int | None = kwargs.get("max_episode_steps") or known
    return None if limit == -1 else limit  # -1 removes the limit


def entry_point(environment_id: str, kwargs: dict[str, Any]) -> str | None:
    """The entry point, "module:Class", of an environment that is only that class.

    None if the environment is rendered, has wrappers of its own or is unknown.
    """
    spec = registered(environment_id)
    if spec is None or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    rendered = {**spec.kwargs, **kwargs}.get("render_mode") is not None
    return None if rendered else spec.entry_point
