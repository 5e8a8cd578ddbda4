"""Films a held-out episode of a stored policy.

The episode is played by the same ``Player`` as every other one, from the same seed, in the
reference backend, which every other backend equals to the bit: what is seen is what was scored.
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

from esbench.environments.backends.select import REFERENCE
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
    """A file that was written, and the episode in it.

    Attributes:
        path: the file.
        environment: its Gymnasium name.
        generation: after how many generations of training the policy was stored.
        episode: which of the held-out ones.
        seed: of the episode's environment.
        total: the return of the whole episode.
        steps: its length.
        shown: how many of them are in the file.
        recorded: the return when the policy was scored; None if it was not, or it is not finite.
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
        """Whether another return was recorded."""
        return self.recorded is not None and self.recorded != self.total


def render_trial(
    path: Path,
    out: Path,
    episode: int = 0,
    max_steps: int = 1000,
    generation: int | None = None,
) -> Rendered:
    """Write a held-out episode of a trial's checkpoint.

    Args:
        path: the trial's folder.
        out: the file, a GIF or an MP4.
        episode: which of the trial's held-out episodes.
        max_steps: so many steps are shown; the episode is played to its end, for its return.
        generation: of a checkpoint that was kept; the latest by default.

    Raises:
        UsageError: the folder holds no trial with that checkpoint, there is no such episode, the
            environment cannot be drawn, or the file cannot be written.
    """
    kind = video_class(out)
    if max_steps < 1:
        raise UsageError(f"max-steps = {max_steps}: expected at least 1")
    folder = TrialFolder(path)
    spec = folder.spec()
    if not 0 <= episode < spec.evaluation.episodes:
        raise UsageError(
            f"episode = {episode}: expected one of the trial's held-out episodes, "
            f"0 to {spec.evaluation.episodes - 1}"
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
    """A film to be made: of a trial's checkpoint, by default the latest one, into a file."""

    trial: Path
    generation: int | None
    file: Path


def outputs(
    path: Path, out: Path | None, all_: bool, generation: int | None = None
) -> list[Output]:
    """Return which checkpoints are rendered into which files, sorted by trial and generation.

    Args:
        path: a trial's folder; with ``all_``, a folder of trials.
        out: the file, or with ``all_`` its name in every trial's folder; by default
            ``DEFAULT_NAME`` in the trial's folder, with the generation if one is asked for.
        all_: take every checkpoint of every trial below ``path``; files of those that were kept on
            the way have their generation at the end of the name.
        generation: of the checkpoint to take, without ``all_``; the latest by default.

    Raises:
        UsageError: ``out`` is no video or, with ``all_``, no bare name; no trial has a checkpoint;
            or there are both ``all_`` and a generation.
    """
    if all_ and generation is not None:
        raise UsageError(
            f"--generation {generation}: expected without --all, which takes every generation"
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
            "each trial's file lies in its own folder"
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
    """Give a player of one slot whose environment can draw.

    Raises:
        UsageError: it cannot.
    """
    environment = setup.environment
    plain = make_environment(environment.id, environment.kwargs)
    modes = plain.metadata.get("render_modes") or []
    with contextlib.closing(plain):
        if MODE not in modes:
            raise _no_picture(environment, f"it has no render mode {MODE!r}")
        with without_screen(plain):
            update = {"kwargs": {**environment.kwargs, "render_mode": MODE}, "backend": REFERENCE}
            drawn = replace(setup, environment=environment.model_copy(update=update))
            player = Player(drawn, slots=1)
            with contextlib.closing(player):
                draw_lightly(player.backend.environment(0), environment.kwargs)
                yield player


def _film(
    player: Player, environment: EnvironmentSpec, video: Video, max_steps: int
) -> tuple[EpisodeResult, int]:
    """Play the one queued episode; returns how it ended, and how many of its steps are shown."""
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
    except Exception as error:  # missing libraries, no OpenGL, and whatever an own one raises
        raise _no_picture(environment, reason(error)) from error
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        shape = f"{frame.dtype} {list(frame.shape)}"
        raise _no_picture(environment, f"it draws {shape} instead of uint8 [height, width, 3]")
    return frame


def _no_picture(environment: EnvironmentSpec, why: str) -> UsageError:
    return UsageError(f"environment {environment.id!r} cannot be rendered: {why}")


def _fps(player: Player) -> float:
    """Return frames a second; Gymnasium's own default where the environment names none."""
    return float(player.backend.environment(0).metadata.get("render_fps") or 30)


def _recorded(folder: TrialFolder, generation: int, episode: int) -> float | None:
    returns = (folder.result_of(generation) or {}).get("returns", [])
    value = returns[episode] if episode < len(returns) else None
    return None if value is None or not math.isfinite(value) else float(value)
