"""Makes Gymnasium environments. Any failure becomes one sentence."""

from __future__ import annotations

import contextlib
import copy
import importlib
import re
from collections.abc import Iterator
from typing import Any, TypeAlias, final

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from pydantic import ConfigDict

import esbench.environments.registration  # noqa: F401  # ours become known
from esbench.core.errors import (
    USER_CODE_ERRORS,
    EsbenchError,
    UsageError,
    UserCodeError,
    error_text,
    import_hint,
    location,
    message_of,
)
from esbench.core.flat_spaces import require_space
from esbench.core.registry import import_object
from esbench.core.settings import Settings


@final
class WrapperSettings(Settings):
    """A wrapper of an environment; all other keys are its arguments.

    Attributes:
        wrapper: a class or function of the environment, as "package.file:Class".
    """

    model_config = ConfigDict(extra="allow")

    wrapper: str


Wrappers: TypeAlias = tuple[WrapperSettings, ...]


def make_environment(
    environment_id: str, kwargs: dict[str, Any], wrappers: Wrappers = ()
) -> gymnasium.Env[Any, Any]:
    """``gymnasium.make(environment_id, **kwargs)`` without the checks of the first step.

    ``wrappers`` are applied to it, the first one innermost. The environment and the wrappers get
    copies of their arguments, so that no two of them share a list.

    Raises:
        UsageError: the environment cannot be made or wrapped.
    """
    with making(environment_id, kwargs):
        arguments = copy.deepcopy(kwargs)
        env = gymnasium.make(environment_id, disable_env_checker=True, **arguments)
        env = wrapped(env, wrappers)
        require_space("observation_space", env.observation_space)
        require_space("action_space", env.action_space)
        return env


def wrapped(env: gymnasium.Env[Any, Any], wrappers: Wrappers) -> gymnasium.Env[Any, Any]:
    """The environment in its wrappers; UsageError for an unknown one or wrong arguments."""
    for settings in wrappers:
        wrap = import_object("wrapper", settings.wrapper)
        try:
            env = wrap(env, **copy.deepcopy(settings.model_extra or {}))
        except Exception as error:  # a wrapper may raise anything
            given = f" with arguments {settings.model_extra}" if settings.model_extra else ""
            raise UserCodeError(f"wrapper {settings.wrapper!r}{given}: {reason(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise UsageError(
                f"wrapper {settings.wrapper!r} made a {type(env).__name__}; expected an environment"
            )
    return env


@contextlib.contextmanager
def making(environment_id: str, kwargs: dict[str, Any]) -> Iterator[None]:
    """Turn every exception of the block, which makes an environment, into a ``UsageError``.

    Its message has the environment, its kwargs, the reason and the line of the user's code.
    """
    try:
        register_family(environment_id)
        yield
    except Exception as error:  # constructors raise anything: missing files, keys, libraries
        given = f" with kwargs {kwargs}" if kwargs else ""
        atari = re.fullmatch(r"(\w+)(NoFrameskip|Deterministic)-v\d", environment_id)
        near = f"; did you mean 'esbench/{atari[1]}Deterministic-v5'?" if atari else ""
        raise UserCodeError(
            f"environment {environment_id!r} cannot be made{given}: {reason(error)}"
            f"{location(error)}{near}"
        ) from error


def register_family(environment_id: str) -> None:
    """Register the environments of the ALE with Gymnasium if it is one; importing it is slow."""
    if environment_id.startswith("ALE/"):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for each game
        gymnasium.register_envs(ale_py)


def module_of(name: str) -> str:
    """The module of a registered environment; empty if the name is not registered."""
    known = gymnasium.registry.get(name)
    entry = "" if known is None else known.entry_point or ""
    return entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)


def registered(environment_id: str) -> EnvSpec | None:
    """What Gymnasium knows about an environment; None if it cannot be found or imported."""
    module, _, name = environment_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        register_family(name)
        return gymnasium.spec(name)
    except USER_CODE_ERRORS:  # reported when the environment is made
        return None


def import_classes(environment_id: str, wrappers: Wrappers) -> dict[str, Any]:
    """Import an environment and its wrappers; returns the arguments it is registered with."""
    spec = registered(environment_id)
    if spec is None:
        return {}
    if isinstance(spec.entry_point, str):
        load_env_creator(spec.entry_point)
    for settings in wrappers:
        import_object("wrapper", settings.wrapper)
    return spec.kwargs


def has_time_limit(environment_id: str, kwargs: dict[str, Any]) -> bool:
    """Whether the environment is registered or made with a time limit.

    True for the games of the ALE, which limit the frames of an episode, for our own environments,
    and for an unknown name, which is refused elsewhere.
    """
    spec = registered(environment_id)
    if spec is None or module_of(spec.id).startswith(("ale_py.", "esbench.")):
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


def reason(error: BaseException) -> str:
    """The message of an error in one line, with the package to install if a module is missing."""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.__cause__, ModuleNotFoundError):
        error = error.__cause__  # Gymnasium adds a sentence about its own registration
    # Gymnasium appends all arguments to the message of a TypeError.
    line = message_of(error).partition(" was raised from the environment creator for ")[0].strip()
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{line}; {import_hint(error.name)}"
    if line and isinstance(error, ImportError | gymnasium.error.Error | EsbenchError):
        return line
    return f"{type(error).__name__}: {line}" if line else error_text(error)
