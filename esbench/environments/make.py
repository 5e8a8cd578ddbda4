"""Makes Gymnasium environments; whatever stops one from being made becomes one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import gymnasium

from esbench.errors import UsageError

# Gymnasium puts this and all arguments behind a TypeError's own words.
CREATOR: Final = " was raised from the environment creator for "


def make_environment(environment_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment, without Gymnasium's checks of its every first step.

    Args:
        environment_id: its Gymnasium name; "package:Name-v0" imports the package first.
        kwargs: arguments of ``gymnasium.make``.

    Raises:
        UsageError: it cannot be made, whatever the reason.
    """
    with making(environment_id, kwargs):
        return gymnasium.make(environment_id, disable_env_checker=True, **kwargs)


@contextlib.contextmanager
def making(environment_id: str, kwargs: dict[str, Any]) -> Iterator[None]:
    """Turn everything that an environment raises while it is made in the block into one sentence.

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
    """Make Gymnasium know the environments of a namespace that is not its own, in this process."""
    namespace, slash, _ = environment_id.partition("/")
    if slash and namespace in FAMILIES:
        FAMILIES[namespace]()


def module_of(name: str) -> str:
    """Return the module that makes a registered environment; empty if the name is not known."""
    registered = gymnasium.registry.get(name)
    entry = None if registered is None else registered.entry_point
    if entry is None:
        return ""
    return entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)


def _register_atari() -> None:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
    gymnasium.register_envs(ale_py)


def _register_ours() -> None:
    from esbench.environments import functions
    from esbench.environments.atari import games

    gymnasium.register_envs(functions)
    games.register()


# Those that would cost an import where nobody plays them.
FAMILIES: Final[dict[str, Callable[[], None]]] = {
    "ALE": _register_atari,
    "esbench": _register_ours,
}


def reason(error: Exception) -> str:
    """Return an error's own words in one line, with what to install if a module is missing."""
    said = " ".join(str(error).partition(CREATOR)[0].split())
    words = "".join(each if each.isprintable() else "?" for each in said)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{words}; install the package that provides {error.name.partition('.')[0]!r}"
    if words and isinstance(error, ImportError | gymnasium.error.Error | UsageError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
