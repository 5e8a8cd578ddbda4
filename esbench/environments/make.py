"""Makes Gymnasium environments. Any failure becomes one sentence."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import gymnasium

from esbench.errors import UsageError

# Gymnasium puts this and all arguments behind the message of a TypeError.
CREATOR: Final = " was raised from the environment creator for "


def make_environment(environment_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make an environment without Gymnasium's checks of the first step.

    Args:
        environment_id: its Gymnasium name; "package:Name-v0" imports the package first.
        kwargs: arguments of ``gymnasium.make``.

    Raises:
        UsageError: the environment cannot be made.
    """
    with making(environment_id, kwargs):
        return gymnasium.make(environment_id, disable_env_checker=True, **kwargs)


@contextlib.contextmanager
def making(environment_id: str, kwargs: dict[str, Any]) -> Iterator[None]:
    """Turn every exception of the block, which makes an environment, into one sentence.

    Raises:
        UsageError: the block raised; the message has the environment, its kwargs and the reason.
    """
    try:
        register_family(environment_id)
        yield
    except Exception as error:  # constructors raise anything: missing files, keys, libraries
        given = f" with kwargs {kwargs}" if kwargs else ""
        raise UsageError(
            f"environment {environment_id!r} cannot be made{given}: {reason(error)}"
        ) from error


def register_family(environment_id: str) -> None:
    """Register the environments of a namespace, "ALE" or "esbench", with Gymnasium."""
    namespace, slash, _ = environment_id.partition("/")
    if slash and namespace in FAMILIES:
        FAMILIES[namespace]()


def module_of(name: str) -> str:
    """The module of a registered environment; empty if the name is not registered."""
    registered = gymnasium.registry.get(name)
    entry = None if registered is None else registered.entry_point
    if entry is None:
        return ""
    return entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)


def entry_point(environment_id: str, kwargs: dict[str, Any]) -> str | None:
    """The entry point, "module:Class", of an environment that is only that class.

    None if the environment is rendered, has wrappers of its own or is unknown.
    """
    module, _, name = environment_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        register_family(name)
        spec = gymnasium.spec(name)
    except Exception:  # of any kind; the Gymnasium loop reports it when it makes the environment
        return None
    rendered = {**spec.kwargs, **kwargs}.get("render_mode") is not None
    if rendered or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    return spec.entry_point


def _register_atari() -> None:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
    gymnasium.register_envs(ale_py)


def _register_ours() -> None:
    from esbench.environments import functions
    from esbench.environments.atari import games

    gymnasium.register_envs(functions)
    games.register()


# Registered on first use, because their imports take time.
FAMILIES: Final[dict[str, Callable[[], None]]] = {
    "ALE": _register_atari,
    "esbench": _register_ours,
}


def reason(error: Exception) -> str:
    """The message of an error in one line, with the package to install if a module is missing."""
    message = " ".join(str(error).partition(CREATOR)[0].split())
    line = "".join(each if each.isprintable() else "?" for each in message)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{line}; install the package that provides {error.name.partition('.')[0]!r}"
    if line and isinstance(error, ImportError | gymnasium.error.Error | UsageError):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
