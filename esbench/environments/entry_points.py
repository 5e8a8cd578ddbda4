"""Which class of environment a name stands for."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium

from esbench.environments.make import register_family


def entry_point(environment_id: str, kwargs: dict[str, Any]) -> str | None:
    """Return the entry point, "module:Class", of an environment that is nothing but that class.

    None if it is rendered, wrapped in anything of its own, or unknown: the reference backend says
    what is wrong then.
    """
    module, _, name = environment_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        register_family(name)
        spec = gymnasium.spec(name)
    except (
        Exception
    ):  # whatever a person's module raises; made by the reference backend, it is told
        return None
    rendered = {**spec.kwargs, **kwargs}.get("render_mode") is not None
    if rendered or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    return spec.entry_point
