"""The score of a policy: its returns in held-out episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.json_text import Json, finite
from esbench.core.seeding import Purpose, episode_seed


@final
@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """The final policy on held-out episodes of the unmodified environment.

    Attributes:
        returns, lengths: [episodes]; the lengths are in steps.
    """

    returns: Vector
    lengths: Vector

    def joined(self, more: HeldOutScore) -> HeldOutScore:
        """These episodes followed by further ones."""
        return HeldOutScore(
            np.concatenate([self.returns, more.returns]),
            np.concatenate([self.lengths, more.lengths]),
        )

    @property
    def mean(self) -> float:
        """The mean return, which is the score."""
        return float(np.mean(self.returns))

    @property
    def finite_mean(self) -> float | None:
        """The mean return, or None if it is not finite."""
        return self.mean if math.isfinite(self.mean) else None

    @property
    def as_json(self) -> Json:
        """The part of ``result.json`` that is played."""
        return {
            "score": self.mean,
            "evaluation_episodes": self.returns.size,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }

    def is_identical(self, result: Json) -> bool:
        """Whether these are the recorded episodes of ``result.json``, bit for bit."""
        return all(result.get(key, value) == value for key, value in finite(self.as_json).items())


def held_out_seeds(seed: int, episodes: int) -> list[int]:
    """The environment seeds of the held-out episodes of the trial ``seed``."""
    purpose = Purpose.EVALUATION_EPISODE
    return [episode_seed(seed, purpose, 0, episode) for episode in range(episodes)]
