"""The settings of an algorithm of Stable-Baselines3, from the signature of its constructor."""

from __future__ import annotations

import functools
import inspect
import re
import types
from abc import ABC
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal, Union, final, get_args, get_origin

from pydantic import Field, create_model

from esbench.agents.agent import AgentSettings
from esbench.algorithms.search_settings import NonNegative
from esbench.core.arguments import KEPT
from esbench.integrations.stable_baselines_spaces import SPACES

# Arguments that esbench or settings of the base class replace.
_NOT_PASSED: Final = {
    *("self", "policy", "env", "seed", "device", "verbose", "tensorboard_log", "action_noise"),
    *("stats_window_size", "_init_setup_model"),
}
_PLAIN: Final = (bool, int, float, str)


class StableBaselinesSettings(AgentSettings, ABC):
    """Settings of every algorithm of Stable-Baselines3, beside those of its constructor."""

    of_class: ClassVar[Any] = None  # of the library

    policy: Literal["auto", "MlpPolicy", "CnnPolicy", "MultiInputPolicy", "LinearPolicy"] = "auto"
    """The library's policy; by default the one for the observations: images, a Dict or vectors."""

    n_envs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Environments that are stepped in turn; an update uses n_steps of each [environments]."""

    normalize: Annotated[bool | dict[str, Any], KEPT] = False
    """Whether to normalize observations and rewards (VecNormalize), or its arguments."""

    action_noise_std: NonNegative = 0.0
    """Standard deviation of normal noise on the actions of SAC and TD3, scaled to [-1, 1]."""

    @final
    def __reduce__(self) -> Any:
        """Pickle, for another process, by the library's class: this one is made at run time."""
        return _restored, (self.of_class, dict(self))


@functools.cache
def settings_of(cls: Any) -> type[StableBaselinesSettings]:
    """The typed settings of the arguments of a constructor that can be written in TOML."""
    texts = _parameters(inspect.getdoc(cls) or "")
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        annotation = _plain_type(parameter.annotation)
        if name in _NOT_PASSED or annotation is None:
            continue
        default = parameter.default
        if annotation == float and isinstance(default, int):  # noqa: E721, it is a type
            default = float(default)
        if "Any" in str(annotation):
            annotation = Annotated[annotation, KEPT]
        fields[name] = (annotation, Field(default, description=texts.get(name, "")))
    for name, searched in SPACES.get(cls.__name__, {}).items():
        if name not in fields:
            own = StableBaselinesSettings.model_fields[name]
            fields[name] = (own.annotation, own)
        annotation, field = fields[name]
        fields[name] = (Annotated[annotation, *searched], field)
    model = create_model(f"{cls.__name__}Settings", __base__=StableBaselinesSettings, **fields)
    model.of_class = cls
    return model


def _restored(cls: Any, values: dict[str, Any]) -> StableBaselinesSettings:
    return settings_of(cls).model_construct(**values)


def _plain_type(annotation: Any) -> Any:
    """The part of a type that TOML can hold; None if there is none.

    A schedule, which the library takes as a function, is text such as "lin_3e-4".
    """
    is_union = get_origin(annotation) in (Union, types.UnionType)
    options = get_args(annotation) if is_union else (annotation,)
    kept = [each for each in options if each in _PLAIN or get_origin(each) in (dict, tuple)]
    if any(get_origin(each) is Callable for each in options):
        kept.append(str)
    if not kept:
        return None
    none = [types.NoneType] if types.NoneType in options else []
    return Union[(*kept, *none)]


def _parameters(text: str) -> dict[str, str]:
    """The descriptions of ":param name:" in a docstring."""
    pattern = r":param (\w+):\s*(.*?)(?=\n\s*:(?:param|return)|\Z)"
    return {name: " ".join(said.split()) for name, said in re.findall(pattern, text, re.DOTALL)}
