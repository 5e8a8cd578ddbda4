"""The speed of a simulator without esbench, in as many processes: the limit of throughput.

There are two loops. The first one is plain Gymnasium: random actions in the environment that
``gymnasium.make`` returns. The second one, for ``SIMULATORS``, is the simulator alone. It replays
the actions of members; its episodes begin as theirs, and resets are not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, final

import gymnasium

from esbench.core.arguments import received
from esbench.core.errors import TrainingError
from esbench.engine.child_process import Child, Parent, end
from esbench.engine.jobs import Job, Task
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.environments.make_environment import make_environment, making, wrapped
from esbench.environments.simulator_log import log_once, silenced
from esbench.environments.specifications import creator, specification

LimitKind: TypeAlias = Literal["gymnasium", "simulator"]
STEPS: Final = 16_000  # recorded per process
ACTIONS: Final = 1000  # random ones, drawn before the clock starts, then used in turn


@final
class SimulatorLoop:
    """Recorded episodes of some members; ``episodes`` are their seeds and simulator inputs."""

    def __init__(self, setup: Setup, job: Job, members: range) -> None:
        """Play one episode per member until there are enough steps."""
        spec = setup.environment
        self.env = make_environment(spec.id, spec.kwargs, wrappers=spec.wrappers)
        self.episodes: list[tuple[int, list[Any]]] = []
        last_input, self._replay = SIMULATORS[setup.backend_name]
        player, steps = Player(setup, slots=1), 0
        player.begin(job)
        player.backend.expose()
        for member in members:
            if steps >= STEPS:
                break
            task, inputs = Task(member, 0), []
            player.add([task])
            while player.busy:
                player.step()
                inputs.append(last_input(player.backend))
            self.episodes.append((job.environment_seed(task), inputs))
            steps += len(inputs)

    def steps_per_second(self, seconds: float) -> float:
        """The speed over some seconds of stepping; resets are not counted."""
        steps, elapsed = 0, 0.0
        while True:
            for seed, inputs in self.episodes:
                self.env.reset(seed=seed)
                start = time.perf_counter()
                self.replay(inputs)
                elapsed += time.perf_counter() - start
                steps += len(inputs)
                if elapsed >= seconds:
                    return steps / elapsed

    def replay(self, inputs: list[Any]) -> None:
        """Step the simulator through an episode after its reset."""
        self._replay(self.env, inputs)


def _step_mujoco(env: Any, controls: list[Any]) -> None:
    """``mj_step`` and nothing else."""
    import mujoco

    plain = env.unwrapped
    model, data, skip, step = plain.model, plain.data, plain.frame_skip, mujoco.mj_step
    control = data.ctrl
    for action in controls:
        control[:] = action
        step(model, data, skip)


def _play_frames(env: Any, actions: list[Any]) -> None:
    """The frames of the ALE without images; it applies sticky actions itself."""
    act, over = env.unwrapped.ale.act, env.unwrapped.ale.game_over
    frames = range(env.get_wrapper_attr("game").frame_skip)
    for action in actions:
        for _ in frames:
            act(action)
            if over():
                break


# How to read the input of the last step from a backend of one slot, and how to replay inputs.
SIMULATORS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any, list[Any]], None]]]] = {
    "mujoco": (lambda backend: backend.environment(0).unwrapped.data.ctrl.copy(), _step_mujoco),
    "atari": (lambda backend: backend.chosen(0), _play_frames),
}


def random_steps_per_second(env: gymnasium.Env[Any, Any], seconds: float) -> float:
    """The steps per second of an environment with random actions.

    The time includes resets, but not the drawing of actions. At least one step is made.
    """
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]
    env.reset(seed=0)
    steps, elapsed, start = 0, 0.0, time.perf_counter()
    while not steps or elapsed < seconds:
        _, _, terminated, truncated, _ = env.step(actions[steps % ACTIONS])
        steps += 1
        if terminated or truncated:
            env.reset()
        elapsed = time.perf_counter() - start
    return steps / elapsed


@final
class SimulatorProcesses:
    """Processes that each measure the speed of an environment; they run inside the context.

    ``record`` and ``measure`` raise a TrainingError if an environment failed or a process died.
    """

    def __init__(self, setup: Setup, processes: int) -> None:
        self._setup = setup
        self._count = processes
        self._children: list[Child] = []

    def __enter__(self) -> SimulatorProcesses:
        with contextlib.ExitStack() as failed:
            failed.push(self)
            for number in range(self._count):
                share = slice(number, None, self._count)  # of the members
                self._children.append(Child(_main, self._setup, share))
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        end(self._children)

    @property
    def has_simulator(self) -> bool:
        """Whether the simulator of the environment can run alone."""
        return self._setup.backend_name in SIMULATORS

    def record(self, job: Job) -> None:
        """Play members of a job and store their actions, for the simulator alone."""
        self._ask(job)

    def measure(self, kind: LimitKind, seconds: float) -> float:
        """Measure the environment steps per second of all processes together."""
        return self._ask((kind, seconds))

    def _ask(self, request: Job | tuple[LimitKind, float]) -> float:
        for child in self._children:
            child.send(request)
        answers = [child.receive() for child in self._children]
        for answer in answers:
            if answer is None:
                raise TrainingError("a process of the simulator loop died")
            if isinstance(answer, str):
                raise TrainingError(f"the simulator loop failed: {answer}")
        return sum(answers)


def _main(parent: Parent, setup: Setup, share: slice) -> None:
    log_once()
    environment = setup.environment
    simulator: SimulatorLoop | None = None
    try:
        with silenced(), making(environment.id, environment.kwargs):
            spec = specification(environment.id)
            arguments = received(creator(spec), environment.kwargs)
            env = gymnasium.make(spec, **arguments)  # as a plain script does
            env = wrapped(env, environment.wrappers)
        while True:
            match parent.receive():
                case Job() as job:
                    size = 1 if job.population is None else len(job.population)
                    with silenced():
                        members = range(size)[share] or range(size)
                        simulator = SimulatorLoop(setup, job, members)
                    parent.send(0.0)
                case ("simulator", seconds) if simulator is not None:
                    parent.send(simulator.steps_per_second(seconds))
                case (_, seconds):
                    parent.send(random_steps_per_second(env, seconds))
    except Exception as error:  # an environment may raise anything
        parent.send(f"{type(error).__name__}: {error}")
