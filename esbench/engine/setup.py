"""What a worker must know before it plays: environment, policy and reference batch."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, final

import numpy as np
from gymnasium.spaces import Discrete

from esbench.core.errors import UsageError
from esbench.core.flat_spaces import Array, Space, packed
from esbench.core.registry import root_of
from esbench.core.seeding import Purpose, episode_seed
from esbench.core.user_code import is_interactive, names_in
from esbench.environments.backends.backend import AUTO, BACKENDS, GYMNASIUM, Backend, backend_name
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.behaviors.behavior import Behavior, behavior_class
from esbench.environments.simulator_log import silenced
from esbench.environments.specifications import registration
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec
from esbench.policies.normalization import Normalizer, policy_inputs
from esbench.policies.policy import POLICIES, Policy, Rows
from esbench.policies.spaces import Actions, Observations

SPACING: Final = 8  # steps between the observations of a reference batch, which are then distinct


@final
class OnlyHere(NamedTuple):
    """Why other processes do not find an environment or a policy, and what they would find."""

    problem: str
    remedy: str


def only_here(
    environment: EnvironmentSpec, policy: PolicySpec | None = None, in_script: bool = False
) -> OnlyHere | None:
    """What of these only this process, a notebook or a prompt, knows; None if there is nothing.

    It has defined that, or has imported a module that registers the environment. A script counts
    ``in_script``, for a process that does not import it.
    """
    if not (in_script or is_interactive()):
        return None
    found = None if ":" in environment.id else registration(environment.id)
    names = [f"environment {environment.id!r}"] if found and found.module == "__main__" else []
    for kind, spec in ("environment", environment), ("policy", policy):
        given = names_in({} if spec is None else spec.model_dump(mode="json"))
        names += [f"{kind} {name!r}" for name in given if name.startswith("__main__:")]
    if names:
        problem = f"{names[0]} is defined in a notebook or at a prompt"
        return OnlyHere(problem, "it in a file such as mine.py")
    if found is None or found.asked_for or not found.noted:
        return None
    if root_of(found.module) in {"gymnasium", "esbench"}:
        return None
    problem = f"environment {environment.id!r} is registered by {found.module!r}, not in its name"
    return OnlyHere(problem, f"'{found.module}:{environment.id}'")


def require_importable(environment: EnvironmentSpec, policy: PolicySpec | None = None) -> None:
    """Raises UsageError for an environment or a policy that is ``only_here``."""
    if found := only_here(environment, policy):
        raise UsageError(
            f"{found.problem}, so worker processes do not find it; expected workers=0, which plays "
            f"in this process, or {found.remedy}"
        )


@final
@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """The observations from which virtual batch normalization computes its statistics."""

    observations: Array  # [R, inputs], not normalized

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceBatch) and np.array_equal(
            self.observations, other.observations
        )

    __hash__ = None  # type: ignore[assignment]


@final
@dataclass(frozen=True)
class Setup:
    """The environment and policy of a trial; sent to workers once per trial."""

    environment: EnvironmentSpec
    policy: PolicySpec
    reference_batch: ReferenceBatch | None = None  # required by virtual batch normalization

    def with_reference_batch(self, size: int, seed: int) -> Setup:
        """A setup with every eighth observation of episodes with uniformly random actions.

        Their steps do not count as training steps. The seed of the trial selects the streams.
        """
        with silenced(), closing(self.make_backend(slots=1)) as backend:
            observations = Observations(backend.single_observation_space, self.environment.id)
            space = backend.single_action_space
            space.seed(episode_seed(seed, Purpose.REFERENCE_BATCH))
            found: list[Array] = []
            step = episode = 0
            while len(found) < size:
                if not backend.live[0]:
                    backend.start(0, episode_seed(seed, Purpose.REFERENCE_BATCH, episode))
                    episode += 1
                if step % SPACING == 0:
                    found.append(observations.encode(backend.observations)[0].copy())
                backend.step(packed([space.sample()], space))
                step += 1
        return replace(self, reference_batch=ReferenceBatch(np.array(found)))

    def reference_inputs(self, normalizer: Normalizer | None) -> Rows | None:
        """The reference batch [R, inputs] as a policy receives it, or None if there is none."""
        if self.reference_batch is None:
            return None
        return policy_inputs(self.reference_batch.observations, normalizer)

    def make_backend(self, slots: int) -> Backend:
        """A backend with up to ``slots`` environments."""
        spec, name = self.environment, self.backend_name
        if not spec.wrappers:
            backend: type[Backend] = BACKENDS.get(name)
            return backend(spec.id, spec.kwargs, slots)
        if name != GYMNASIUM:
            raise UsageError(
                f"backend {name!r} does not play {spec.id!r} with wrappers; expected the backend "
                f"{GYMNASIUM!r} or {AUTO!r}"
            )
        return GymnasiumBackend(spec.id, spec.kwargs, slots, spec.wrappers)

    def useful_slots(self, most: int) -> int:
        """The number of slots, at most ``most``, that the backend can use in one worker."""
        backend: type[Backend] = BACKENDS.get(self.backend_name)
        return min(most, backend.most_slots or most)

    @property
    def backend_name(self) -> str:
        """The name of the backend that runs the environment."""
        spec = self.environment
        if spec.wrappers and spec.backend == AUTO:
            return GYMNASIUM
        return backend_name(spec.backend, spec.id, spec.kwargs)

    def make_behavior(self) -> Behavior:
        """A behavior recorder for one slot; UsageError if it does not fit the environment."""
        spec = self.environment
        return behavior_class(spec.behavior)(spec.behavior_settings, spec.id)

    def make_policy(self, observations: Space, actions: Space) -> Policy:
        """The policy that maps observations to actions; UsageError if it does not support them."""
        name = self.environment.id
        cls: type[Policy] = POLICIES.get(self.policy.template)
        rows, outputs = Observations(observations, name), Actions(actions, name).size
        fits = cls.takes_images and rows.size <= (cls.most_pixels or rows.size)
        if len(rows.shape) >= 3 and not fits:
            raise UsageError(
                f"{name}: the observations are images of shape {rows.shape}; the policy "
                f"{self.policy.template!r} expects vectors or smaller images; expected a "
                "convolutional one, a preprocessed environment or your own torch.nn.Module"
            )
        made = cls(self.policy.settings, rows.size, outputs, rows.shape or None, rows.pixels)
        if made.needs_discrete is not None and not isinstance(actions, Discrete):
            raise UsageError(
                f"{name}: the actions are {type(actions).__name__}; {made.needs_discrete} of the "
                f"policy {self.policy.template!r} expects Discrete ones"
            )
        return made
