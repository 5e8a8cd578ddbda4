"""Render a held-out episode of a stored policy.

The ``Player`` of training plays it from the same seed in plain Gymnasium, to which all backends are
bit-identical. The film therefore shows the scored episode.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import gymnasium
import numpy as np

from esbench.environments.backends.select import GYMNASIUM
from esbench.environments.make import make_environment, reason
from esbench.environments.simulator_log import silenced
from esbench.errors import UsageError
from esbench.files import write_bytes
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.rollouts.jobs import CENTER, Setup, Task
from esbench.rollouts.player import Player
from esbench.rollouts.results import EpisodeResult
from esbench.rollouts.worker_pool import WorkerPool
from esbench.store.trial_folder import TrialFolder, find_trials
from esbench.training.scoring import stored_trainer
from esbench.video.offscreen import draw_lightly, without_screen
from esbench.video.writers import Frame, Video, video_class

MODE: Final = "rgb_array"
DEFAULT_NAME: Final = "render.gif"


@final
@dataclass(frozen=True)
class Rendered:
    """A written file and its episode.

    Attributes:
        path: The file.
        environment: The Gymnasium name.
        generation: The generation after which the policy was stored.
        episode: The number of the held-out episode, from 0.
        seed: The seed of the environment.
        total: The return of the whole episode.
        steps: The length of the episode.
        shown: The number of steps in the file.
        recorded: The return in the stored result; None if there is none or it is not finite.
    """

    path: Path
    environment: str
    generation: int
    episode: int
    seed: int
    total: float
    steps: int
    shown: int
    recorded: float | None

    @property
    def differs(self) -> bool:
        """Whether the stored result has another return."""
        return self.recorded is not None and self.recorded != self.total


def render_trial(
    path: Path,
    out: Path,
    episode: int = 0,
    max_steps: int = 1000,
    generation: int | None = None,
) -> Rendered:
    """Write a film of a held-out episode.

    Args:
        path: The folder of the trial.
        out: The file to write, a GIF or an MP4.
        episode: The number of the held-out episode, from 0.
        max_steps: The number of steps to show; the episode is always played to its end.
        generation: Of a kept checkpoint; the latest by default.

    Raises:
        UsageError: The trial has no such checkpoint or episode, the environment cannot be rendered,
            or the file cannot be written.
    """
    kind = video_class(out)
    if max_steps < 1:
        raise UsageError(f"max-steps = {max_steps}: expected at least 1")
    folder = TrialFolder(path)
    spec = folder.spec()
    if not 0 <= episode < spec.evaluation.episodes:
        raise UsageError(
            f"episode = {episode}: expected a held-out episode, 0 to {spec.evaluation.episodes - 1}"
        )
    with WorkerPool(1) as pool, stored_trainer(folder, pool, generation) as trainer:
        job, reached = trainer.held_out_job(), trainer.progress.generation
        setup = trainer.setup
    task = Task(CENTER, episode)
    with silenced(), _stage(setup) as player, contextlib.closing(kind(_fps(player))) as video:
        player.begin(job)
        player.add([task])
        result, shown = _film(player, spec.environment, video, max_steps)
        write_bytes(out, video.content())
    return Rendered(
        path=out,
        environment=spec.environment.id,
        generation=reached,
        episode=episode,
        seed=job.environment_seed(task),
        total=result.total,
        steps=result.length,
        shown=shown,
        recorded=_recorded(folder, reached, episode),
    )


@final
@dataclass(frozen=True)
class Output:
    """A film to make: a trial, the generation of its checkpoint (None: the latest), and a file."""

    trial: Path
    generation: int | None
    file: Path


def outputs(
    path: Path, out: Path | None, all_: bool, generation: int | None = None
) -> list[Output]:
    """The films to make, sorted by trial and generation.

    Args:
        path: The folder of a trial; with ``all_``, a folder of trials.
        out: The file, or with ``all_`` its name in the folder of every trial. The default is
            ``DEFAULT_NAME`` in the folder of the trial, numbered if a generation is given.
        all_: Take every checkpoint of every trial below ``path``. The files of kept checkpoints are
            numbered by their generation.
        generation: Of the checkpoint, without ``all_``; the latest by default.

    Raises:
        UsageError: ``out`` is not a video or, with ``all_``, not a bare name; no trial has a
            checkpoint; or both ``all_`` and a generation are given.
    """
    if all_ and generation is not None:
        raise UsageError(
            f"--generation {generation} cannot be combined with --all, which takes every generation"
        )
    out = Path(DEFAULT_NAME) if out is None and all_ else out
    if out is not None:
        video_class(out)
    if not all_:
        name = DEFAULT_NAME if generation is None else _numbered(Path(DEFAULT_NAME), generation)
        return [Output(path, generation, path / name if out is None else out)]
    assert out is not None
    if out.name != str(out):
        raise UsageError(
            f"--out {out}: with --all, expected a name without a folder, such as {out.name}; "
            "each file is written to the folder of its trial"
        )
    found = []
    for trial in find_trials(path):
        for kept in trial.kept:
            found.append(Output(trial.path, kept, trial.path / _numbered(out, kept)))
        if trial.has_checkpoint:
            found.append(Output(trial.path, None, trial.path / out))
    if not found:
        raise UsageError(f"no trial in {str(path)!r} has a checkpoint yet")
    return found


def _numbered(name: Path, generation: int) -> str:
    return f"{name.stem}-{generation:08d}{name.suffix}"


@contextlib.contextmanager
def _stage(setup: Setup) -> Iterator[Player]:
    """A player with one slot whose environment can be rendered.

    Raises:
        UsageError: The environment cannot be rendered.
    """
    environment = setup.environment
    plain = make_environment(environment.id, environment.kwargs)
    modes = plain.metadata.get("render_modes") or []
    with contextlib.closing(plain):
        if MODE not in modes:
            raise _cannot_render(environment, f"it has no render mode {MODE!r}")
        with without_screen(plain):
            update = {"kwargs": {**environment.kwargs, "render_mode": MODE}, "backend": GYMNASIUM}
            drawn = replace(setup, environment=environment.model_copy(update=update))
            player = Player(drawn, slots=1)
            with contextlib.closing(player):
                draw_lightly(player.backend.environment(0), environment.kwargs)
                yield player


def _film(
    player: Player, environment: EnvironmentSpec, video: Video, max_steps: int
) -> tuple[EpisodeResult, int]:
    """Play the queued episode; returns its result and the number of steps in the film."""
    env = player.backend.environment(0)
    player.start_queued()
    video.add(_draw(env, environment))
    steps = shown = 0
    finished: list[EpisodeResult] = []
    while not finished:
        finished = player.step()
        steps += 1
        if steps <= max_steps and (finished or steps == max_steps or steps % video.stride == 0):
            video.add(_draw(env, environment))
            shown = steps
    (result,) = finished
    return result, min(shown, result.length)


def _draw(env: gymnasium.Env[Any, Any], environment: EnvironmentSpec) -> Frame:
    try:
        frame = np.asarray(env.render())
    except Exception as error:  # missing libraries, no OpenGL, or any error of the environment
        raise _cannot_render(environment, reason(error)) from error
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        shape = f"{frame.dtype} {list(frame.shape)}"
        raise _cannot_render(environment, f"it renders {shape} instead of uint8 [height, width, 3]")
    return frame


def _cannot_render(environment: EnvironmentSpec, why: str) -> UsageError:
    return UsageError(f"environment {environment.id!r} cannot be rendered: {why}")


def _fps(player: Player) -> float:
    """The frame rate of the environment [1/s]; 30, as in Gymnasium, if it has none."""
    return float(player.backend.environment(0).metadata.get("render_fps") or 30)


def _recorded(folder: TrialFolder, generation: int, episode: int) -> float | None:
    returns = (folder.result_of(generation) or {}).get("returns", [])
    value = returns[episode] if episode < len(returns) else None
    return None if value is None or not math.isfinite(value) else float(value)
