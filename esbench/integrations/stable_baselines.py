"""The algorithms of Stable-Baselines3 and sb3-contrib, run by the libraries themselves.

Raffin et al. 2021, "Stable-Baselines3: reliable reinforcement learning implementations", JMLR
22(268). Training is seeded, but its bits are the library's: they are not promised.
"""

from __future__ import annotations

import functools
import random
import re
from abc import ABC
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final, final

import gymnasium
import numpy as np
from gymnasium import spaces

from esbench.agents.acting import ActingPolicy, Environment, MakeEnvironment
from esbench.agents.agent import WeightedAgent, register_agent
from esbench.agents.model_policy import ModelPolicy
from esbench.core.arguments import received
from esbench.core.arrays import State
from esbench.core.errors import UsageError, suggestion
from esbench.core.flat_spaces import nested
from esbench.core.global_streams import STREAMS
from esbench.core.one_thread import one_torch_thread
from esbench.integrations.library import LazyModule
from esbench.integrations.stable_baselines_settings import StableBaselinesSettings, settings_of

stable_baselines3: Any = LazyModule("stable_baselines3")
sb3_vec_env: Any = LazyModule("stable_baselines3.common.vec_env")
sb3_logger: Any = LazyModule("stable_baselines3.common.logger")
sb3_noise: Any = LazyModule("stable_baselines3.common.noise")
sb3_preprocessing: Any = LazyModule("stable_baselines3.common.preprocessing")
sb3_contrib: Any = LazyModule("sb3_contrib")
torch: Any = LazyModule("torch")

_LINEAR: Final = re.compile(r"lin_(\d+(\.\d*)?(e-?\d+)?)")
_COUNTERS: Final = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num")
# Networks in the policy that learn only, by the start of their names.
_NOT_ACTING: Final = (
    *("value_net", "mlp_extractor.value_net", "vf_features_extractor", "log_std"),
    *("critic", "actor_target", "q_net_target"),
)
_MOMENTS: Final = ("mean", "var")
_REPLAYED: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


@final
class _OfSignature:
    """The class of an agent's settings, from the signature of the library's class.

    It is made on first use, because the import of the library takes a second.
    """

    def __get__(self, _: object, owner: type[StableBaselines]) -> type[StableBaselinesSettings]:
        return settings_of(owner.library_class())


class StableBaselines(WeightedAgent, ABC):
    """An algorithm of Stable-Baselines3."""

    Settings: ClassVar[Any] = _OfSignature()
    library: ClassVar[Any] = stable_baselines3
    class_name: ClassVar[str]

    @classmethod
    @final
    def library_class(cls) -> Any:
        """The class of the library."""
        return getattr(cls.library, cls.class_name)

    @final
    def __init__(
        self, settings: StableBaselinesSettings, make_environment: MakeEnvironment, seed: int
    ) -> None:
        self._settings = settings
        self._streams: State | None = None  # those of the process, while the library computes
        with self._computing():
            self._model = self._made(make_environment, seed)

    @final
    def _made(self, make_environment: MakeEnvironment, seed: int) -> Any:
        """The untrained model; sets the statistics that normalize its observations, if any."""
        settings = self._settings
        made = [make_environment() for _ in range(settings.n_envs)]
        envs, self._trained_in = [self._from_zero(env) for env in made], made[0]
        ours = StableBaselinesSettings.model_fields
        given = {name: value for name, value in settings if name not in ours}
        given = received(self.library_class(), given)
        arguments = {name: _argument(name, value) for name, value in given.items()}
        self._statistics: Any = None
        with _sentences(f"{self.class_name}, with observations {envs[0].observation_space}"):
            vectors = sb3_vec_env.DummyVecEnv([functools.partial(_same, env) for env in envs])
            if settings.normalize is not False:
                table = settings.normalize if isinstance(settings.normalize, dict) else {}
                table = received(sb3_vec_env.VecNormalize, table)
                table = {"gamma": getattr(settings, "gamma", 0.99), **table}
                vectors = self._statistics = sb3_vec_env.VecNormalize(vectors, **table)
            if settings.action_noise_std:
                arguments["action_noise"] = _noise(settings.action_noise_std, vectors.action_space)
            auto = settings.policy == "auto"
            policy = _policy_for(vectors.observation_space) if auto else settings.policy
            return self.library_class()(
                policy, vectors, seed=seed, device="cpu", verbose=0, **arguments
            )

    @final
    def _from_zero(self, env: Environment) -> Environment:
        """The environment with actions that count from 0, as the library expects."""
        if any(np.any(getattr(each, "start", 0)) for each in nested(env.observation_space)):
            raise UsageError(
                f"{self.class_name}: the observation space is {env.observation_space}; expected "
                "Discrete and MultiDiscrete spaces that start at 0"
            )
        space = env.action_space
        start: Any = getattr(space, "start", 0)
        if not np.any(start):
            return env
        is_single = isinstance(space, spaces.Discrete)
        zero: Any = spaces.Discrete(space.n) if is_single else spaces.MultiDiscrete(space.nvec)  # type: ignore[attr-defined]
        return gymnasium.wrappers.TransformAction(env, lambda action: action + start, zero)

    @property
    @final
    def policy(self) -> ActingPolicy | None:
        """The deterministic policy, with the statistics of the observations so far."""
        return ModelPolicy(self._model, self.class_name, self._trained_in)

    @final
    def learn(self, env_steps: int) -> None:
        """Call the library's ``learn``, in new episodes."""
        self._model._last_obs = None  # an earlier call may have been left within a step
        self._model.set_logger(sb3_logger.Logger(None, []))  # its own one makes a folder
        with self._computing():
            # Without an interval, the library keeps what it logs, and does not clear it.
            self._model.learn(env_steps, log_interval=None, reset_num_timesteps=False)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Use one thread, and streams of its own: the library draws from those of the process.

        Agents in several threads of this process therefore take turns.
        """
        with STREAMS, one_torch_thread():
            before, plainly = process_streams(), random.getstate()
            if self._streams is not None:
                set_process_streams(self._streams)
                self._streams = None
            try:
                yield
            finally:
                self._streams = process_streams()
                set_process_streams(before)
                random.setstate(plainly)  # which the library seeds and does not use

    @final
    def state_dict(self) -> State | None:
        """Parameters, optimizers, counters, statistics, replay buffer and random streams."""
        model, (names, tensors) = self._model, self._model._get_torch_save_params()
        found = {name: plain(_attribute(model, name).state_dict()) for name in names}
        tensors = [*tensors, *(["weights"] if hasattr(model, "weights") else [])]
        found |= {name: plain(_attribute(model, name)) for name in tensors}
        state: State = {
            "torch": found,
            "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
            "action_stream": plain(model.action_space.np_random.bit_generator.state),
            **(self._streams or process_streams()),
        }
        if self._statistics is not None:
            running = self._running()
            state["statistics"] = {name: plain(vars(each)) for name, each in running.items()}
        buffer = getattr(model, "replay_buffer", None)
        if buffer is not None:
            size = buffer.size()
            state["replay"] = {"position": buffer.pos, "full": buffer.full} | {
                name: plain(getattr(buffer, name), size)
                for name in _REPLAYED
                if hasattr(buffer, name)
            }
        return state

    @final
    def load_state_dict(self, state: State) -> None:
        """Restore what ``state_dict`` returned; episodes that had begun are not continued."""
        model = self._model
        for name, value in state["torch"].items():
            target = _attribute(model, name)
            if hasattr(target, "load_state_dict"):
                target.load_state_dict(as_tensors(value))
            else:
                target.data.copy_(torch.from_numpy(value))
        for name, value in state["counters"].items():
            setattr(model, name, value)
        if self._statistics is not None:
            running = self._running()
            for name, values in state["statistics"].items():
                vars(running[name]).update(values)
        if "replay" in state:
            buffer, kept = model.replay_buffer, dict(state["replay"])
            buffer.pos, buffer.full = kept.pop("position"), kept.pop("full")
            for name, values in kept.items():
                fill(getattr(buffer, name), values)
        model.action_space.np_random.bit_generator.state = state["action_stream"]
        self._streams = {name: state[name] for name in ("torch_stream", "numpy_stream")}

    @final
    def weights(self) -> State:
        """The parameters of the networks that act, and mean and variance of the observations."""
        found: State = {}
        for name, value in plain(self._model.policy.state_dict()).items():
            if not name.startswith(_NOT_ACTING):
                found[f"weights.{name}"] = np.asarray(value, np.float32)
        for name, running in self._observed().items():
            for part in _MOMENTS:
                found[f"statistics.{name}.{part}"] = np.array(getattr(running, part), np.float64)
        return found

    @final
    def load_weights(self, weights: State) -> None:
        """As the base class says; networks that do not act keep their values."""
        expected = self.weights()
        for name in {**expected, **weights}:
            seen, known = (_shape(each.get(name)) for each in (weights, expected))
            if seen != known:
                raise UsageError(f"{name} of shape {seen}: the policy has {known}")
        own = plain(self._model.policy.state_dict())
        own |= {name: weights[f"weights.{name}"] for name in own if f"weights.{name}" in weights}
        self._model.policy.load_state_dict(as_tensors(own))
        for name, running in self._observed().items():
            for part in _MOMENTS:
                setattr(running, part, np.array(weights[f"statistics.{name}.{part}"]))

    @property
    @final
    def model(self) -> Any:
        """The model of Stable-Baselines3."""
        return self._model

    @final
    def losses(self) -> dict[str, float]:
        """As the base class says."""
        logger = getattr(self._model, "_logger", None)  # there is none before training
        logged = {} if logger is None else logger.name_to_value
        return {name: float(value) for name, value in logged.items()}

    @final
    def module(self) -> Any:
        """As the base class says."""
        from esbench.integrations.acting_module import ActingModule

        return ActingModule(self._model, self._statistics, self._trained_in.action_space)

    def _observed(self) -> dict[str, Any]:
        """The running means and variances of observations."""
        return {k: each for k, each in self._running().items() if k.startswith("obs_rms")}

    def _running(self) -> dict[str, Any]:
        """The running means and variances of VecNormalize; a Dict has one for each key."""
        found: dict[str, Any] = {}
        for name in ("obs_rms", "ret_rms"):
            each = getattr(self._statistics, name, None)
            parts = each.items() if isinstance(each, dict) else [("", each)]
            found |= {f"{name}.{key}" if key else name: part for key, part in parts}
        return {name: running for name, running in found.items() if running is not None}


@final
@register_agent("ppo")
class PPO(StableBaselines):
    """Proximal policy optimization, of Stable-Baselines3."""

    paper = "Schulman et al. 2017, arXiv:1707.06347"
    class_name = "PPO"


@final
@register_agent("a2c")
class A2C(StableBaselines):
    """Advantage actor critic, of Stable-Baselines3."""

    paper = "Mnih et al. 2016, arXiv:1602.01783"
    class_name = "A2C"


@final
@register_agent("dqn")
class DQN(StableBaselines):
    """Deep Q-learning, for discrete actions, of Stable-Baselines3."""

    paper = "Mnih et al. 2015, doi:10.1038/nature14236"
    class_name = "DQN"


@final
@register_agent("sac")
class SAC(StableBaselines):
    """Soft actor critic, for continuous actions, of Stable-Baselines3."""

    paper = "Haarnoja et al. 2018, arXiv:1801.01290"
    class_name = "SAC"


@final
@register_agent("td3")
class TD3(StableBaselines):
    """Twin delayed deep deterministic policy gradient, of Stable-Baselines3."""

    paper = "Fujimoto et al. 2018, arXiv:1802.09477"
    class_name = "TD3"


@final
@register_agent("sb3_ars")
class ContribARS(StableBaselines):
    """Augmented random search, the implementation of sb3-contrib; ``ars`` is ours."""

    paper = "Mania et al. 2018, arXiv:1803.07055"
    library = sb3_contrib
    class_name = "ARS"


@final
@register_agent("sb3_trpo")
class ContribTRPO(StableBaselines):
    """Trust region policy optimization, of sb3-contrib."""

    paper = "Schulman et al. 2015, arXiv:1502.05477"
    library = sb3_contrib
    class_name = "TRPO"


def _same(env: Environment) -> Environment:
    return env


def _argument(name: str, value: Any) -> Any:
    """A setting as the library takes it: schedules as functions, activations as classes."""
    if isinstance(value, str) and value.startswith("lin"):
        match = _LINEAR.fullmatch(value)
        if match is None:
            raise UsageError(f"{name} = {value!r}: expected a number, or a schedule as 'lin_3e-4'")
        return functools.partial(_linear, float(match[1]))
    if name == "policy_kwargs" and value and isinstance(value.get("activation_fn"), str):
        activation = value["activation_fn"]
        layers = [each for each in vars(torch.nn.modules.activation) if each[0].isupper()]
        if activation not in layers:
            near = suggestion(activation, layers)
            raise UsageError(f"policy_kwargs.activation_fn = {activation!r}: {near}")
        return {**value, "activation_fn": getattr(torch.nn, activation)}
    return value


def _linear(start: float, remaining: float) -> float:
    """A schedule from ``start`` to 0; ``remaining`` falls from 1 to 0 over the budget."""
    return start * remaining


def _shape(array: Any) -> str:
    return "none" if array is None else str([*array.shape])


def _noise(deviation: float, space: Any) -> Any:
    """Noise on actions, which SAC and TD3 take."""
    size = space.shape
    return sb3_noise.NormalActionNoise(mean=np.zeros(size), sigma=deviation * np.ones(size))


def _policy_for(space: Any) -> str:
    if hasattr(space, "spaces"):
        return "MultiInputPolicy"
    return "CnnPolicy" if sb3_preprocessing.is_image_space(space) else "MlpPolicy"


@contextmanager
def _sentences(what: str) -> Iterator[None]:
    """Turn an error of the library's constructors into a ``UsageError``."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # the library asserts, and raises many kinds
        said = " ".join(str(error).split())
        raise UsageError(f"{what}: {said or type(error).__name__}") from error


def _attribute(model: Any, name: str) -> Any:
    """An attribute with a dotted name, such as "policy.optimizer"."""
    return functools.reduce(getattr, name.split("."), model)


def plain(value: Any, size: int | None = None) -> Any:
    """Tensors as arrays, and keys as text; of arrays the first ``size`` rows."""
    if isinstance(value, Mapping):
        return {str(key): plain(each, size) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if torch.is_tensor(value):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, np.ndarray):
        return value[:size].copy() if size is not None else value.copy()
    return value


def fill(target: Any, rows: Any) -> None:
    """Copy the first rows of a replay buffer's array, or of one for each key of a Dict."""
    if isinstance(rows, dict):
        for key, values in rows.items():
            fill(target[key], values)
    else:
        target[: len(rows)] = rows


def process_streams() -> State:
    """The states of the process's random streams that the library draws from."""
    return {
        "torch_stream": torch.get_rng_state().numpy(),
        "numpy_stream": plain(np.random.get_state(legacy=False)),  # noqa: NPY002
    }


def set_process_streams(streams: State) -> None:
    """Restore what ``process_streams`` returned."""
    torch.set_rng_state(torch.from_numpy(streams["torch_stream"]))
    np.random.set_state(streams["numpy_stream"])  # noqa: NPY002, the library draws from it


def as_tensors(value: Any) -> Any:
    """The inverse of ``plain`` for a ``state_dict`` of torch, whose integer keys are numbers."""
    if isinstance(value, dict):
        return {int(k) if k.isdecimal() else k: as_tensors(each) for k, each in value.items()}
    if isinstance(value, list):
        return [as_tensors(each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
