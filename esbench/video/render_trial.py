"""Render a held-out episode of a stored policy.

It is played again from its seed in plain Gymnasium, to which all backends are bit-identical.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from PIL import Image

from esbench.agents.acting import Environment
from esbench.core.errors import UsageError, as_training_errors
from esbench.core.linux import is_linux
from esbench.core.process import ENVIRON
from esbench.core.units import counted
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.make_environment import make_environment, reason
from esbench.environments.simulator_log import silenced
from esbench.experiment.final_policy import Which
from esbench.experiment.stored_trainer import stored_trainer
from esbench.experiment.trained_policy import TrainedAgent, TrainedPolicy, episode
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.integrations.library import ffmpeg_program
from esbench.results.statistics.estimates import Pick, picked
from esbench.store.find_trials import find_trials
from esbench.store.outputs import write_bytes
from esbench.store.trial_folder import TrialFolder, recorded_score

MODE: Final = "rgb_array"
DEFAULT_NAME: Final = "render.gif"
Frame: TypeAlias = npt.NDArray[np.uint8]
"""[height, width, 3]; all frames of a video have the same size."""
Writer: TypeAlias = Callable[[Iterable[Frame], float], bytes]
"""The file of one or more frames and their number per second."""

X264_CRF: Final = "20"  # 18 is visually lossless, 28 is coarse
GIF_FPS: Final = 30.0  # at most: a GIF stores complete frames, so its size grows with their number
WEBP_QUALITY: Final = 40  # of 100


@final
@dataclass(frozen=True)
class Rendered:
    """A written file and its episode, whose number counts from 0.

    ``total`` and ``steps`` are return and length of the whole episode, ``shown`` the steps in the
    file. ``recorded`` is the return in the stored result; None if there is none or not finite.
    ``row`` is the name of the published policy, empty for one of a trial's folder.
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
    row: str = ""

    @property
    def differs(self) -> bool:
        """Whether the stored result has another return."""
        return self.recorded is not None and self.recorded != self.total


@final
@dataclass(frozen=True)
class FilmLimits:
    """The most a film has: seconds, frames per second, and pixels along an edge of a frame.

    It is ``speed`` times as fast as the episode.
    """

    seconds: float = math.inf
    fps: float = math.inf
    side: int | None = None
    speed: int = 1

    def fitted(self, frame: Frame) -> Frame:
        """A frame that is not too large."""
        if self.side is None:
            return frame
        image = Image.fromarray(frame)
        image.thumbnail((self.side, self.side))
        return np.asarray(image)


def render_trial(
    path: Path,
    out: Path,
    episode: int = 0,
    max_steps: int = 1000,
    generation: int | None = None,
    which: Which = "last",
    pick: Pick | None = None,
) -> Rendered:
    """Write a film of the first ``max_steps`` of a held-out episode of a trial.

    The policy is the last or the best one of the kept checkpoint of a generation, by default of the
    latest checkpoint. ``pick`` replaces ``episode`` by that with the median or the lowest return.

    Raises:
        UsageError: The trial has no such checkpoint or episode, the environment cannot be rendered,
            or the file cannot be written.
        TrainingError: the environment raised an error.
    """
    folder = TrialFolder(path)
    folder.spec()
    with WorkerPool(1) as pool, stored_trainer(folder, pool, generation) as trainer:
        policy, reached = trainer.policy(which), trainer.generation_of(which)
    returns = recorded_score(folder, reached, best=which == "best").get("returns", [])
    if pick is not None:
        if not returns:
            raise UsageError(f"{path}: no recorded returns to pick from; expected --episode N")
        episode = picked(returns, pick)
    return render_policy(policy, returns, out, episode, max_steps)


def render_policy(
    policy: TrainedPolicy | TrainedAgent,
    returns: Sequence[float],
    out: Path,
    episode: int = 0,
    max_steps: int = 1000,
    limits: FilmLimits | None = None,
) -> Rendered:
    """As ``render_trial``, of a policy with the recorded ``returns`` of its held-out episodes."""
    limits = limits or FilmLimits()
    write, most_fps = video_format(out)
    if max_steps < 1:
        raise UsageError(f"max-steps = {max_steps}: expected at least 1")
    seeds = policy.held_out_seeds
    if not 0 <= episode < len(seeds):
        raise UsageError(f"episode = {episode}: expected a held-out episode, 0 to {len(seeds) - 1}")
    with silenced(), as_training_errors(), _stage(policy.environment) as env:
        fps = limits.speed * _fps(env)
        stride = max(1, math.ceil(fps / min(most_fps, limits.fps)))
        most = math.floor(min(limits.seconds * fps, max_steps))
        film = _Film(env, policy, seeds[episode], stride, most)
        frames = (limits.fitted(frame) for frame in film.frames())
        write_bytes(out, write(frames, fps / stride))
    return Rendered(
        path=out,
        environment=policy.environment.id,
        generation=policy.generation,
        episode=episode,
        seed=seeds[episode],
        total=film.total,
        steps=film.steps,
        shown=film.shown,
        recorded=returns[episode] if episode < len(returns) else None,
    )


def frame_rate(environment: EnvironmentSpec) -> float:
    """The steps of an environment in a second of a film at its speed; it is not rendered."""
    made = make_environment(environment.id, environment.kwargs, wrappers=environment.wrappers)
    with contextlib.closing(made) as env:
        return _fps(env)


def _fps(env: Environment) -> float:
    # As in Gymnasium, an environment without a frame rate has 30 [1/s].
    fps = float(env.metadata.get("render_fps") or 30)
    return fps if 0 < fps < math.inf else 30.0


def outputs(
    path: Path, out: Path | None, all_: bool, generation: int | None = None
) -> list[tuple[Path, int | None, Path]]:
    """The films to make: trial, generation of its checkpoint (None: the latest), and file.

    With ``all_``, they are of every checkpoint of every trial below ``path``, and ``out`` is a name
    in the folder of each trial. The default is ``DEFAULT_NAME``, numbered by the generation.

    Raises:
        UsageError: ``out`` is not a video or, with ``all_``, not a bare name; no trial has a
            checkpoint; or both ``all_`` and a generation are given.
    """
    if all_ and generation is not None:
        raise UsageError(
            f"--generation {generation} cannot be combined with --all, which takes every generation"
        )
    name = Path(DEFAULT_NAME) if out is None else out
    video_format(name)
    if not all_:
        return [(path, generation, out or _numbered(path / name, generation))]
    if name.name != str(name):
        raise UsageError(
            f"--out {name}: with --all, expected a name without a folder, such as {name.name}; "
            "each file is written to the folder of its trial"
        )
    found = [
        (trial.path, kept, _numbered(trial.path / name, kept))
        for trial in find_trials(path)
        for kept in (*trial.kept, *([None] if trial.checkpoints.has_latest else []))
    ]
    if not found:
        raise UsageError(
            f"no trial in {str(path)!r} has a checkpoint with a policy; expected a search that has "
            "begun, or an agent with state_dict"
        )
    return found


def _numbered(file: Path, generation: int | None) -> Path:
    return file if generation is None else file.with_stem(f"{file.stem}-{generation:08d}")


@contextlib.contextmanager
def _stage(environment: EnvironmentSpec) -> Iterator[Environment]:
    """The environment of a trial, which can be rendered."""
    made = partial(make_environment, environment.id, wrappers=environment.wrappers)
    plain = made(environment.kwargs)
    modes = plain.metadata.get("render_modes") or []
    with contextlib.closing(plain):
        if MODE not in modes:
            raise _cannot_render(environment, f"it has no render mode {MODE!r}")
        with (
            without_screen(plain),
            contextlib.closing(made({**environment.kwargs, "render_mode": MODE})) as env,
        ):
            prepare_drawing(env, environment.kwargs)
            yield env


@final
@dataclass
class _Film:
    """An episode; the film shows every ``stride``-th frame of its first ``max_steps`` steps.

    ``total`` and ``steps`` are its return and its length, ``shown`` the steps in the film.
    """

    env: Environment
    policy: TrainedPolicy | TrainedAgent
    seed: int
    stride: int
    max_steps: int
    total: float = 0.0
    steps: int = 0
    shown: int = 0

    def frames(self) -> Iterator[Frame]:
        """Play the episode, and yield what is shown."""
        played = self.policy.environment
        steps = episode(self.policy, self.env, self.seed, played.id, played.kwargs)
        for number, (reward, ended) in enumerate(steps):
            self.total, self.steps = self.total + reward, number
            is_next = ended or number == self.max_steps or number % self.stride == 0
            if number <= self.max_steps and is_next:
                frame = _draw(self.env, played)
                if number == 0:
                    shape = frame.shape
                elif frame.shape != shape:
                    sizes = f"{shape[:2]}, and after {counted(number, 'step')} {frame.shape[:2]}"
                    raise _cannot_render(played, f"the size of its frames is {sizes}")
                yield frame
                self.shown = number


def _draw(env: Environment, environment: EnvironmentSpec) -> Frame:
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


def as_gif(frames: Iterable[Frame], fps: float) -> bytes:
    """A looping GIF with at most 256 colors per frame."""
    # Dithering would change pixels that stand still, and a GIF stores each change.
    method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
    first, *others = (
        Image.fromarray(frame).quantize(256, method=method, dither=dither) for frame in frames
    )
    durations = gif_durations(1 + len(others), fps)
    file = io.BytesIO()
    first.save(file, "gif", save_all=True, append_images=others, duration=durations, loop=0)
    return file.getvalue()


def as_webp(frames: Iterable[Frame], fps: float) -> bytes:
    """A looping WebP, which browsers and GitHub show as an image: half the size of a GIF."""
    first, *others = map(Image.fromarray, frames)
    file = io.BytesIO()
    first.save(
        file,
        "webp",
        save_all=True,
        append_images=others,
        duration=round(1000 / fps),
        loop=0,
        quality=WEBP_QUALITY,
        minimize_size=True,
    )
    return file.getvalue()


def as_mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """An H.264 video in a format that browsers play; a UsageError if ffmpeg is missing or fails."""
    program = ffmpeg_program()
    even = map(_even, frames)
    first = next(even)
    given = f"-f rawvideo -pix_fmt rgb24 -s {first.shape[1]}x{first.shape[0]} -r {fps} -i -".split()
    coded = f"-an -c:v libx264 -pix_fmt yuv420p -crf {X264_CRF}".split()
    with tempfile.TemporaryDirectory(prefix="esbench-") as folder:
        path = Path(folder) / "video.mp4"
        command = [program, "-v", "error", "-y", *given, *coded, str(path)]
        # The writer of imageio_ffmpeg forks; libraries with threads (JAX) warn of that.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            for frame in itertools.chain([first], even):
                with contextlib.suppress(BrokenPipeError):  # the exit code tells
                    process.stdin.write(frame.data)
            _, errors = process.communicate()
        if process.returncode:
            reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"ffmpeg failed ({reason}); write a .gif instead")
        return path.read_bytes()


def _even(frame: Frame) -> Frame:
    """A frame of even sizes, as H.264 needs them: an odd one repeats its last line."""
    height, width = frame.shape[:2]
    padded = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(padded)


FORMATS: Final[dict[str, tuple[Writer, float]]] = {
    ".gif": (as_gif, GIF_FPS),
    ".webp": (as_webp, GIF_FPS),
    ".mp4": (as_mp4, math.inf),
}


def video_format(path: Path) -> tuple[Writer, float]:
    """What writes a file with this suffix, and its most frames per second; else a UsageError."""
    if (found := FORMATS.get(path.suffix.lower())) is None:
        raise UsageError(f"--out {path}: expected a file ending in .gif, .webp or .mp4")
    return found


def gif_durations(frames: int, fps: float) -> list[int]:
    """How long each frame is shown [ms], [frames].

    A GIF counts in hundredths of a second. At 30 frames per second the durations are 30, 40, 30,
    30, 40 ... ms, so no frame is late by more than half a hundredth and the sum is right.
    """
    ends = [round(100 * frame / fps) for frame in range(frames + 1)]
    return [10 * max(1, end - start) for start, end in itertools.pairwise(ends)]


# Fastest first. EGL uses a GPU if there is one.
OFFSCREEN: Final = ("egl", "osmesa")
SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
SIZE: Final = 320  # pixels
MISSING: Final = (
    "MuJoCo cannot render: neither EGL nor OSMesa works and there is no screen; install one of "
    "them, on Debian and Ubuntu: apt-get install libegl1 libegl-mesa0 (or libosmesa6)"
)


@contextlib.contextmanager
def without_screen(env: gymnasium.Env[Any, Any]) -> Iterator[None]:
    """Render without a screen inside the block.

    ``MUJOCO_GL`` and ``SDL_VIDEODRIVER`` are left unchanged where they are set.

    Raises:
        UsageError: It is a MuJoCo environment, no OpenGL library works, and there is no screen.
    """
    added: dict[str, str] = {}
    if is_linux():
        if "SDL_VIDEODRIVER" not in os.environ:
            added["SDL_VIDEODRIVER"] = "dummy"  # read by pygame
        if is_mujoco(env) and "MUJOCO_GL" not in os.environ:
            if name := offscreen_opengl():
                added["MUJOCO_GL"] = name
            elif not any(os.environ.get(name) for name in SCREENS):
                raise UsageError(MISSING)
    with ENVIRON:
        os.environ.update(added)
    try:
        yield
    finally:
        with ENVIRON:
            for key in added:
                os.environ.pop(key, None)


def offscreen_opengl() -> str | None:
    """The first OpenGL library that works without a screen, or None."""
    # Each is tried in its own process, because a failure leaves PyOpenGL unusable.
    for name in OFFSCREEN:
        script = f"from mujoco.{name} import GLContext; GLContext(8, 8).make_current()"
        environment = {**os.environ, "MUJOCO_GL": name, "PYOPENGL_PLATFORM": name}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=False
        )
        if done.returncode == 0:
            return name
    return None


def is_mujoco(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether an environment derives from Gymnasium's ``MujocoEnv``, without importing MuJoCo."""
    module = sys.modules.get("gymnasium.envs.mujoco.mujoco_env")
    return module is not None and isinstance(env.unwrapped, module.MujocoEnv)


def prepare_drawing(env: gymnasium.Env[Any, Any], kwargs: dict[str, Any]) -> None:
    """Make a MuJoCo environment draw small images without shadows, in which the robot stays.

    Gymnasium's camera does not move; that of the model is named "track". Call it before the first
    image. A size or a camera in ``kwargs`` is kept.
    """
    if not is_mujoco(env):
        return
    inner: Any = env.unwrapped
    inner.model.vis.quality.shadowsize = inner.model.vis.quality.offsamples = 0
    renderer = inner.mujoco_renderer
    if "width" not in kwargs and "height" not in kwargs:
        renderer.width = renderer.height = SIZE
    cameras = [inner.model.camera(index).name for index in range(inner.model.ncam)]
    if "track" in cameras and not {"camera_id", "camera_name", "default_camera_config"} & {*kwargs}:
        renderer.camera_id = cameras.index("track")
