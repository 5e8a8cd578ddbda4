"""Throughput on this machine: training compared with loops without esbench in as many processes.

One loop is plain Gymnasium: random actions in the environment that ``gymnasium.make`` returns. The
other, for ``SIMULATORS``, is the simulator alone: it replays the episodes of members, without the
time of resets.

All are measured in turn for several rounds, and medians are compared, because the speed of a
machine drifts. The same generation is trained repeatedly, so every round has the same episodes. An
untrained robot falls after some twenty steps, where the cost of a reset matters most; measure a
later generation to see the cost of steps.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import gymnasium

from esbench.core.arguments import received
from esbench.core.errors import TrainingError, UsageError, require_integer
from esbench.core.settings import MOST, Table
from esbench.engine.child_process import Child, Parent, end
from esbench.engine.engine import Engine
from esbench.engine.jobs import Job, Task
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.environments.make_environment import make_environment, making, wrapped
from esbench.environments.simulator_log import log_once, silenced
from esbench.environments.specifications import creator, specification
from esbench.experiment.engines import EngineChoice
from esbench.experiment.run_trial import check_trials
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.trials import Trial, grid_trials
from esbench.experiment.watchers import Stop
from esbench.grids.compose import compose_grid
from esbench.grids.trial_spec import BudgetSpec, is_agent
from esbench.store.generation_record import GenerationRecord

NO_LIMIT: Final = MOST
MOST_ROUNDS: Final = 1000
MOST_SECONDS: Final = 86_400
LimitKind: TypeAlias = Literal["gymnasium", "simulator"]
STEPS: Final = 16_000  # recorded per process
ACTIONS: Final = 1000  # random ones, drawn before the clock starts, then used in turn
PARTS: Final = ("sample", "reset", "observe", "act", "simulate", "count")


@final
@dataclass(frozen=True)
class BenchRound:
    """The speeds of one round, in environment steps per second.

    Attributes:
        bare: One plain Gymnasium environment per process, random actions.
        simulator: MuJoCo or the ALE alone, one per process, with the members' actions; else None.
        training: The steps of the population, end to end: from sampling to the checkpoint.
        simulated: ``training`` and the steps of the unperturbed policy.
    """

    bare: float
    simulator: float | None
    training: float
    simulated: float


@final
@dataclass(frozen=True)
class Throughput:
    """The rounds of one environment.

    Attributes:
        env_steps: Training steps before the measured generation.
        episode_length: Mean over the members of the generation before.
        profile: Shares of the processes' time: the parts of a worker's work, ``idle`` for waiting,
            and ``update`` and ``store`` in the main process.
    """

    environment: str
    backend: str
    population_size: int
    workers: int
    startup_s: float
    env_steps: int
    episode_length: float
    rounds: tuple[BenchRound, ...]
    profile: dict[str, float]

    def median(self, name: str) -> float | None:
        """The median of a speed over the rounds; None if it was not measured."""
        values: list[float] = [v for r in self.rounds if (v := getattr(r, name)) is not None]
        return statistics.median(values) if values else None

    def ratio(self, to: str) -> float | None:
        """The median of simulated / ``to`` over the rounds; None if it was not measured."""
        ratios = [r.simulated / v for r in self.rounds if (v := getattr(r, to)) is not None]
        return statistics.median(ratios) if ratios else None


def measure(
    environment: str,
    engine: EngineChoice | None = None,
    population_size: int = 64,
    seconds: float = 5.0,
    rounds: int = 3,
    after: int = 1,
    algorithm: str = "openai_es",
    overrides: Sequence[str] = (),
) -> Throughput:
    """Measure an algorithm with the environment's own policy, and bare loops.

    Both use as many processes as ``engine`` has, one per core by default. Each measurement takes
    ``seconds``; training finishes its generation. The measured generation comes ``after`` this many
    training steps. ``overrides`` are settings as in a grid, such as
    ``policy.template=nature_conv``. UsageError if a number or a setting is wrong, TrainingError if
    an environment failed.
    """
    require_integer("rounds", rounds, 1, MOST_ROUNDS)
    require_integer("after", after, 1, NO_LIMIT)
    if not 0 < seconds <= MOST_SECONDS:
        raise UsageError(
            f"seconds = {seconds}: expected a number above 0, and at most {MOST_SECONDS}"
        )
    with (engine or EngineChoice()).open() as pool, tempfile.TemporaryDirectory() as folder:
        trial = _trial(environment, algorithm, population_size, overrides, Path(folder))
        check_trials([trial])
        return _measure_trial(trial, pool, seconds, rounds, after)


def _measure_trial(
    trial: Trial, pool: Engine, seconds: float, rounds: int, after: int
) -> Throughput:
    assert trial.spec.policy is not None
    setup = Setup(trial.spec.environment, trial.spec.policy)
    bare = SimulatorProcesses(setup, pool.size)
    start = time.perf_counter()
    with trial.folder.locked(), bare, SearchTrainer(trial.spec, pool, trial.folder) as trainer:
        trial.folder.begin(trial.spec, {"labels": trial.labels})
        trainer.train(env_steps=1)
        startup = time.perf_counter() - start
        trainer.train(env_steps=after)
        last = trainer.history[-1]
        if bare.has_simulator:
            bare.record(trainer.next_job())
        trainer.watch.take()
        pool.watch.take()
        results = tuple(
            BenchRound(
                bare.measure("gymnasium", seconds),
                bare.measure("simulator", seconds) if bare.has_simulator else None,
                *_train(trainer, seconds),
            )
            for _ in range(rounds)
        )
        population_size = trainer.algorithm.population_size
    return Throughput(
        environment=trial.spec.environment.id,
        backend=setup.backend_name,
        population_size=population_size,
        workers=pool.size,
        startup_s=startup,
        env_steps=last.env_steps,
        episode_length=last.episode_length_mean,
        rounds=results,
        profile=_shares(trainer.watch.seconds, pool.watch.seconds, pool.size),
    )


def _shares(trainer: dict[str, float], workers: dict[str, float], count: int) -> dict[str, float]:
    parts = {part: workers.get(part, 0.0) for part in PARTS}
    parts["idle"] = max(0.0, count * trainer["play"] - sum(workers.values()))
    parts |= {part: count * trainer[part] for part in ("update", "store")}
    whole = sum(parts.values())
    return {part: seconds / whole for part, seconds in parts.items()}


def _trial(
    environment: str, algorithm: str, population_size: int, overrides: Sequence[str], folder: Path
) -> Trial:
    if is_agent(algorithm):
        raise UsageError(f"algorithm = {algorithm!r}: an agent; expected a search")
    table: Table = {
        "name": "bench",
        "seeds": [0],
        "environments": [environment],
        "algorithms": {algorithm: {"population_size": population_size}},
        "budget": {"env_steps": NO_LIMIT},
    }
    grid, source = compose_grid(table, overrides=overrides)
    own = grid.environment.get(environment, {})
    if grid.budget != {"env_steps": NO_LIMIT} or "budget" in own:
        raise UsageError("--set budget...: expected none; each measurement ends with its time")
    trial, *others = grid_trials(grid, folder, source)
    if others:
        raise UsageError(f"these settings make {1 + len(others)} trials; expected one")
    # The file of the environment may have a budget too.
    spec = trial.spec.model_copy(update={"budget": BudgetSpec(env_steps=NO_LIMIT)})
    return replace(trial, spec=spec)


def _train(trainer: SearchTrainer, seconds: float) -> tuple[float, float]:
    """Train the same generation repeatedly; returns the training and the simulated steps/s."""
    state, before, start = trainer.state_dict(), trainer.progress, time.perf_counter()
    trained = evaluated = 0

    def again(record: GenerationRecord) -> Stop | None:
        nonlocal trained, evaluated
        trained += record.env_steps - before.env_steps
        evaluated += record.eval_env_steps - before.eval_env_steps
        trainer.load_state_dict(state)
        return Stop("the time is over") if time.perf_counter() - start >= seconds else None

    trainer.train(callbacks=[again])
    elapsed = time.perf_counter() - start
    return trained / elapsed, (trained + evaluated) / elapsed


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
        return float(sum(answers))


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
