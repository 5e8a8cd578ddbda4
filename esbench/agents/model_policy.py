"""The policy of a model of Stable-Baselines3, or of any object with its ``predict``.

A model is trained through wrappers that its ``predict`` does not apply: ``VecNormalize``, stacks of
frames, masks, wrappers of Gymnasium. The policy applies them, and carries the recurrent state, so
that it acts as in ``evaluate_policy`` of the library. The library is not imported here: its classes
are known by their names.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.agents.acting import Environment
from esbench.core.errors import TrainingError

# What changes neither observations nor actions.
_TRANSPARENT: Final = {
    *("VecMonitor", "VecCheckNan", "VecVideoRecorder"),
    *("Monitor", "ActionMasker", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker"),
    *("RecordEpisodeStatistics", "RecordVideo", "NormalizeReward", "RewardWrapper"),
}

_MASKS: Final = "action_masks"

See: TypeAlias = Callable[[Any, bool], Any]  # an observation, and whether an episode begins


@final
class ModelPolicy:
    """Acts without exploration, as the model does in its own wrappers."""

    def __init__(self, model: Any, owner: str, trained_in: Environment) -> None:
        """Find what the model was trained through.

        Args:
            model: has ``predict(observation)``, and perhaps ``get_env()``.
            owner: the agent in messages.
            trained_in: the environment that the agent was given.

        Raises:
            TrainingError: there is a wrapper that cannot be applied to a single observation.
        """
        self._predict = model.predict
        self._reset = getattr(model, "reset", None)
        parameters = inspect.signature(model.predict).parameters
        accepts_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        known = ("deterministic", "state", "episode_start")
        self._keywords = [name for name in known if accepts_all or name in parameters]
        layers = _layers(model, trained_in)
        self._see = [see for each in reversed(layers) if (see := _seen_through(each, owner))]
        self._sent = [each.action for each in layers if isinstance(each, gymnasium.ActionWrapper)]
        if _MASKS in parameters:
            maskers = [each for each in layers if "ActionMasker" in _classes(each)]
            self._masker = maskers[0]._action_mask_fn if maskers else None
            self.masks = self._masks
        self.reset()

    def reset(self) -> None:
        """Forget the episode."""
        self._state, self._begins = None, True
        if callable(self._reset):
            self._reset()

    def act(self, observation: Any, action_masks: Any = None) -> Any:
        """The action of the model, which takes ``action_masks`` if it has ``masks``."""
        for see in self._see:
            observation = see(observation, self._begins)
        state = {
            "deterministic": True,
            "state": self._state,
            "episode_start": np.array([self._begins]),
        }
        given = {name: state[name] for name in self._keywords}
        if action_masks is not None:
            given[_MASKS] = action_masks
        found, self._begins = self._predict(observation, **given), False
        action, *states = found if isinstance(found, tuple) else (found,)
        self._state = states[0] if states else None
        for send in self._sent:
            action = send(action)
        return action

    def _masks(self, env: Environment) -> Any:
        """The masks of the actions now; None if the environment has none, as in training then."""
        if self._masker is not None:
            return self._masker(env)
        return env.get_wrapper_attr(_MASKS)() if env.has_wrapper_attr(_MASKS) else None


def _layers(model: Any, trained_in: Environment) -> list[Any]:
    """What is between the model and the environment that the agent was given, from the outside."""
    get_env = getattr(model, "get_env", None)
    outer: Any = get_env() if callable(get_env) else None
    layers: list[Any] = []
    while "VecEnvWrapper" in _classes(outer):
        layers.append(outer)
        outer = outer.venv
    if "VecEnv" not in _classes(outer):
        return []
    layers.append(outer)
    env = next(iter(getattr(outer, "envs", ())), None)
    while isinstance(env, gymnasium.Wrapper) and env is not trained_in:
        layers.append(env)
        env = env.env
    return layers


def _classes(layer: Any) -> set[str]:
    return {each.__name__ for each in type(layer).__mro__}


def _seen_through(layer: Any, owner: str) -> See | None:
    """What a wrapper does to an observation; None if it leaves it unchanged."""
    names = _classes(layer)
    if "VecNormalize" in names:
        return lambda observation, _: layer.normalize_obs(observation)
    if "VecTransposeImage" in names:
        return lambda observation, _: layer.transpose_observations(observation)
    if "VecExtractDictObs" in names:
        return lambda observation, _: observation[layer.key]
    if "VecFrameStack" in names:
        return _stacking(layer)
    if names & _TRANSPARENT:
        return None
    if "VecEnvWrapper" not in names and "VecEnv" in names:
        return lambda observation, _: _as_stored(layer.observation_space, observation)
    if isinstance(layer, gymnasium.ActionWrapper) and not _has_memory(layer):
        return None
    if isinstance(layer, gymnasium.ObservationWrapper) and not _has_memory(layer):
        if hasattr(layer, "update_running_mean"):  # of NormalizeObservation
            layer.update_running_mean = False
        return lambda observation, _: layer.observation(observation)
    raise TrainingError(
        f"{owner} was trained through the wrapper {type(layer).__name__}, which its policy would "
        "lack; expected it among the wrappers of the environment in the grid, or a policy that is "
        "a function of the observation"
    )


def _has_memory(layer: Any) -> bool:
    """Whether a wrapper of observations or actions does more in an episode than to convert them."""
    return any(
        vars(each).keys() & {"reset", "step"}
        for each in type(layer).__mro__
        if not each.__module__.startswith("gymnasium.core")
    )


def _stacking(layer: Any) -> See:
    frames, count = copy.deepcopy(layer.stacked_obs), layer.num_envs

    def see(observation: Any, begins: bool) -> Any:
        rows = _mapped(lambda each: np.repeat(np.asarray(each)[None], count, axis=0), observation)
        if begins:
            stacked = frames.reset(rows)
        else:
            stacked, _ = frames.update(rows, np.zeros(count, bool), [{}] * count)
        return _mapped(lambda each: each[0].copy(), stacked)

    return see


def _mapped(function: Callable[[Any], Any], observation: Any) -> Any:
    """The function of an observation, or of each part of a Dict."""
    if isinstance(observation, dict):
        return {key: function(each) for key, each in observation.items()}
    return function(observation)


def _as_stored(space: gymnasium.Space[Any], observation: Any) -> Any:
    """The observation in the type of its space, in which the library stores it."""
    if isinstance(space, spaces.Dict):
        return {key: _as_stored(part, observation[key]) for key, part in space.items()}
    return np.asarray(observation, dtype=space.dtype)
