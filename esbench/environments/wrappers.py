"""Wrappers for an environment's table ``wrappers``."""

from __future__ import annotations

from typing import Any, final

import gymnasium


@final
class NewInstance(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes a new instance of the environment for every episode.

    For an environment whose ``reset`` leaves state of earlier episodes behind.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._used = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode in a new instance."""
        if self._used:
            assert self.env.spec is not None, "made by gymnasium.make"
            spec = self.env.spec
            self.env.close()
            self.env = gymnasium.make(spec, disable_env_checker=True)
        self._used = True
        return super().reset(seed=seed, options=options)
