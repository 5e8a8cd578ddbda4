"""The typed description of a policy template."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import SerializeAsAny

from esbench.core.settings import Settings, settings_named_by
from esbench.policies.policy import POLICIES, PolicySettings


def _policy_settings(name: str) -> type[PolicySettings]:
    return POLICIES.get(name).Settings


@final
class PolicySpec(Settings):
    """A registered policy template and its settings."""

    template: str
    settings: Annotated[
        SerializeAsAny[PolicySettings],
        settings_named_by("policy", "template", _policy_settings),
    ]
