"""Checks of an environment and of an agent of your own, as training uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.agents.acting import Environment, in_space
from esbench.agents.agent import agent_settings, is_agent_class, make_agent
from esbench.app.options import public
from esbench.core.errors import TrainingError, UsageError, as_training_errors
from esbench.core.generators import GeneratorWatch, redrawn, shared_generators
from esbench.core.settings import Table, parse
from esbench.environments.make_environment import make_environment
from esbench.environments.registration import without_alias
from esbench.grids.environment_files import load_environment, require_one_meaning
from esbench.grids.trial_spec import EnvironmentSpec

SEED: Final = 1  # of an agent that is checked
OBSERVATIONS: Final = 20


@public()
def check_environment(
    name: str, kwargs: Table | None = None, wrappers: Sequence[Table] = ()
) -> None:
    """Check an environment as training does, and say in one sentence what is wrong.

    It must be made from its name, return values that are in its spaces, end its episodes, and
    depend on nothing but the seed and the actions of an episode. Two worker processes play it, or
    this process alone if a notebook defines it.

    Args:
        name: a name of Gymnasium, such as "mine:Mine-v0" for one that ``mine.py`` registers.
        kwargs: arguments of the environment.
        wrappers: tables as in a grid, such as ``{"wrapper": "mine:Reward", "scale": 2.0}``.

    Raises:
        UsageError: the environment cannot be made, or its spaces, values or episodes are refused.

    >>> check_environment("CartPole-v1")
    """
    from esbench.engine.setup import only_here
    from esbench.engine.this_process import ThisProcess
    from esbench.engine.worker_pool import WorkerPool
    from esbench.environments.episode_check import check_values

    name, arguments = without_alias(name, kwargs or {})
    load_environment(name)
    require_one_meaning(name)
    table = {"id": name, "kwargs": arguments, "wrappers": list(wrappers)}
    environment = parse(EnvironmentSpec, table, f"environment {name}")
    with ThisProcess() if only_here(environment) else WorkerPool(2) as pool:
        pool.check(environment)
        pool.ask([check_values], environment)


@public()
def check_agent(cls: type, env: str = "CartPole-v1", env_steps: int = 500, **settings: Any) -> None:
    """Check an agent of your own: that it trains, hands over a policy and depends on its seed only.

    Args:
        cls: a class with ``train(env, env_steps, seed)``, or a subclass of ``Agent``.
        env: the name of an environment, as in a grid.
        env_steps: steps of training; they are made twice.
        settings: settings, or arguments of the constructor.

    Raises:
        UsageError: the class is no agent, a setting is wrong, or the environment cannot be made.
        TrainingError: the class cannot be trained; the message says why.

    >>> class Still:
    ...     def train(self, env, env_steps, seed):
    ...         return lambda observation: 0
    >>> check_agent(Still)
    """
    name = getattr(cls, "__qualname__", str(cls))
    if not is_agent_class(cls):
        raise UsageError(
            f"agent {name!r} is no agent; expected a class with train(env, env_steps, seed), or a "
            "subclass of esbench.agents.agent.Agent"
        )
    typed = parse(agent_settings(cls), settings, f"check_agent({name})")
    environment = load_environment(env).spec()
    require_one_meaning(environment.id)
    watch = GeneratorWatch(shared_generators())
    first = _actions(cls, name, typed, environment, env_steps)
    drawn = watch.drawn()
    second = _actions(cls, name, typed, environment, env_steps)
    if any(not np.array_equal(*pair) for pair in zip(first, second, strict=True)):
        raise TrainingError(
            f"{name} chose other actions when it was trained again; expected that its random "
            "numbers depend on the seed alone"
        )
    if generator := redrawn(drawn, watch.drawn()):
        raise TrainingError(
            f"{name} draws from the generator {generator} and does not seed it; expected that its "
            "random numbers depend on the seed alone"
        )


def _actions(
    cls: Any, name: str, settings: Any, spec: EnvironmentSpec, env_steps: int
) -> list[Any]:
    """What the policy of a newly trained agent does for the same observations."""
    made: list[Environment] = []

    def make() -> Environment:
        made.append(_Numbered(make_environment(spec.id, spec.kwargs, spec.wrappers)))
        return made[-1]

    with as_training_errors():
        agent = make_agent(cls, settings, make, SEED, name)
        agent.learn(env_steps)
        policy = agent.policy
        if policy is None:
            raise TrainingError(f"{name} has no policy after training; expected one")
        space, actions = made[0].observation_space, made[0].action_space
        space.seed(SEED)
        policy.reset()
        chosen = [policy.act(space.sample()) for _ in range(OBSERVATIONS)]
        return [in_space(actions, action, f"the policy of {name}") for action in chosen]


@final
class _Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose episodes have the seeds 0, 1, 2, ..., as in training."""

    _episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._episodes += 1
        return self.env.reset(seed=self._episodes - 1, options=options)
