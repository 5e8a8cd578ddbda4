"""Makes Gymnasium environments. Any failure becomes one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias, final

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import DependencyNotInstalled
from pydantic import BeforeValidator, ConfigDict

from esbench.core.arguments import received
from esbench.core.errors import (
    EsbenchError,
    MissingPackageError,
    UsageError,
    UserCodeError,
    error_text,
    import_hint,
    location,
    message_of,
)
from esbench.core.extras import extra_of, install_command
from esbench.core.flat_spaces import require_space
from esbench.core.settings import Settings
from esbench.core.toml_text import toml_line
from esbench.core.user_code import import_object
from esbench.environments.specifications import creator, nearest_name, registered, specification


@final
class WrapperSettings(Settings):
    """A wrapper of an environment; all other keys are its arguments.

    Attributes:
        wrapper: a class or function of the environment, as "package.file:Class".
    """

    model_config = ConfigDict(extra="allow")

    wrapper: str


def wrapper_tables(value: Any) -> Any:
    """The value of ``wrappers`` with a table in the place of each name alone."""
    several = value if isinstance(value, list) else [value]
    return [{"wrapper": each} if isinstance(each, str) else each for each in several]


def _require_tables(value: Any) -> Any:
    """Refuses names in the place of tables, with the line that was meant."""
    names = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    if names or isinstance(value, str | dict):
        meant = toml_line("wrappers", wrapper_tables(value))
        raise ValueError(f"expected a list of tables: {meant}")
    return tuple(value) if isinstance(value, list) else value  # a strict tuple is no list


Wrappers: TypeAlias = Annotated[tuple[WrapperSettings, ...], BeforeValidator(_require_tables)]


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
        spec = specification(environment_id)
        _require_not_set(spec, kwargs)
        arguments = received(creator(spec), kwargs)
        env = gymnasium.make(spec, disable_env_checker=True, **arguments)
        env = wrapped(env, wrappers)
        require_space("observation_space", env.observation_space)
        require_space("action_space", env.action_space)
        return env


def _require_not_set(spec: EnvSpec, kwargs: dict[str, Any]) -> None:
    """Raises UsageError for an argument that makes another environment of the same name."""
    has_fixed = str(spec.entry_point).startswith(("esbench.environments.", "ale_py"))
    fixed = spec.kwargs.keys() & {"game", "function"} if has_fixed else set()
    for name in sorted(fixed & kwargs.keys()):
        raise UsageError(
            f"{name} is no argument of {spec.id}, whose name sets it; expected the name of another "
            "environment"
        )


def wrapped(env: gymnasium.Env[Any, Any], wrappers: Wrappers) -> gymnasium.Env[Any, Any]:
    """The environment in its wrappers; UsageError for an unknown one or wrong arguments."""
    for settings in wrappers:
        wrap = _wrapper(settings.wrapper)
        try:
            env = wrap(env, **received(wrap, settings.model_extra or {}))
        except Exception as error:  # a wrapper may raise anything
            given = f" with arguments {settings.model_extra}" if settings.model_extra else ""
            raise UserCodeError(f"wrapper {settings.wrapper!r}{given}: {reason(error)}") from error
        if not isinstance(env, gymnasium.Env):
            raise UsageError(
                f"wrapper {settings.wrapper!r} made a {type(env).__name__}; expected an environment"
            )
    return env


def _wrapper(name: str) -> Any:
    return import_object("wrapper", name, gymnasium.Env, or_function=True)


@contextlib.contextmanager
def making(environment_id: str, kwargs: dict[str, Any]) -> Iterator[None]:
    """Turn every exception of the block, which makes an environment, into a ``UsageError``.

    Its message has the environment, its kwargs, the reason and the line of the user's code.
    """
    try:
        yield
    except Exception as error:  # constructors raise anything: missing files, keys, libraries
        given = f" with kwargs {kwargs}" if kwargs else ""
        missing = isinstance(error, DependencyNotInstalled)
        gone = isinstance(error, gymnasium.error.Error) and not missing
        gone |= "mujoco v2" in str(error)
        near = f"; {nearest_name(environment_id)}" if gone else ""
        raise UserCodeError(
            f"environment {environment_id!r} cannot be made{given}: {reason(error)}"
            f"{location(error)}{near}"
        ) from error


def require_package(environment_id: str) -> None:
    """Raises MissingPackageError if Gymnasium has the environment without the package it needs."""
    try:
        with making(environment_id, {}):
            if spec := registered(environment_id):
                creator(spec)
    except UserCodeError as error:
        if isinstance(error.__cause__, DependencyNotInstalled):
            raise MissingPackageError(str(error)) from error
        raise


def import_classes(environment_id: str, wrappers: Wrappers) -> dict[str, Any]:
    """Import an environment and its wrappers; returns the arguments it is registered with."""
    spec = registered(environment_id)
    if spec is None:
        return {}
    creator(spec)
    for settings in wrappers:
        _wrapper(settings.wrapper)
    return spec.kwargs


def reason(error: BaseException) -> str:
    """The message of an error in one line, with the package to install if a module is missing."""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.__cause__, ModuleNotFoundError):
        error = error.__cause__  # Gymnasium adds a sentence about its own registration
    if isinstance(error, DependencyNotInstalled) and isinstance(error.__cause__, ImportError):
        package = error.__cause__.name or ""
        if extra := extra_of(package):
            command = install_command(extra)
            return f"the package {package!r} is not installed; install it with: {command}"
    # Gymnasium appends all arguments to the message of a TypeError.
    line = message_of(error).partition(" was raised from the environment creator for ")[0].strip()
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"{line}; {import_hint(error.name)}"
    if line and isinstance(error, ImportError | gymnasium.error.Error | EsbenchError):
        return line
    return f"{type(error).__name__}: {line}" if line else error_text(error)
