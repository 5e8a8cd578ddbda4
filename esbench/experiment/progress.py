"""The counters of a training run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from esbench.engine.jobs import Episodes


@final
@dataclass(frozen=True)
class Progress:
    """Counters of a run. The times exclude pauses and loading: workers, environments, batches."""

    generation: int = 0
    env_steps: int = 0
    eval_env_steps: int = 0
    episodes: int = 0
    wall_time_s: float = 0.0
    cpu_time_s: float = 0.0

    def with_episodes(self, played: Episodes) -> Progress:
        """The progress after further episodes."""
        return replace(
            self,
            env_steps=self.env_steps + int(played.lengths.sum()),
            eval_env_steps=self.eval_env_steps + played.eval_steps,
            episodes=self.episodes + played.lengths.size,
        )

    def with_step(self, ended: bool) -> Progress:
        """The progress after another step, which may have ended an episode."""
        return replace(self, env_steps=self.env_steps + 1, episodes=self.episodes + ended)

    def with_generation(
        self, generation: int, wall_time_s: float, cpu_time_s: float, eval_env_steps: int
    ) -> Progress:
        """The progress after a generation that took these further times and steps."""
        return replace(
            self,
            generation=generation,
            eval_env_steps=self.eval_env_steps + eval_env_steps,
            wall_time_s=self.wall_time_s + wall_time_s,
            cpu_time_s=self.cpu_time_s + cpu_time_s,
        )
