"""Write frames to an animated GIF or an MP4, one at a time."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import tempfile
from abc import ABC, abstractmethod
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
from PIL import Image

from esbench.core.errors import UsageError
from esbench.integrations.library import ffmpeg_program

Frame: TypeAlias = npt.NDArray[np.uint8]

X264_CRF: Final = "20"  # 18 is visually lossless, 28 is coarse


class Video(ABC):
    """A video that is written frame by frame and plays at the speed of the environment's clock.

    Of ``stride`` frames of the environment, one is added. Frame rates are in 1/s.
    """

    max_fps: ClassVar[float] = math.inf

    def __init__(self, fps: float) -> None:
        self.stride = max(1, math.ceil(fps / self.max_fps))
        self.fps = fps / self.stride

    @abstractmethod
    def add(self, frame: Frame) -> None:
        """Add a frame, [height, width, 3]; all frames have the same size."""

    @abstractmethod
    def content(self) -> bytes:
        """The bytes of the file; no frame can be added afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Free all resources."""


@final
class Gif(Video):
    """A looping GIF with at most 256 colors per frame."""

    max_fps = 30.0  # a GIF stores complete frames, so its size grows with their number

    def __init__(self, fps: float) -> None:
        super().__init__(fps)
        self._images: list[Image.Image] = []

    def add(self, frame: Frame) -> None:
        """Add a frame; one byte per pixel is stored."""
        image = Image.fromarray(frame)
        # Dithering would change pixels that stand still, and a GIF stores each change.
        method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
        self._images.append(image.quantize(256, method=method, dither=dither))

    def content(self) -> bytes:
        """The bytes of the file."""
        file = io.BytesIO()
        first, *others = self._images
        durations = gif_durations(len(self._images), self.fps)
        first.save(file, "gif", save_all=True, append_images=others, duration=durations, loop=0)
        return file.getvalue()

    def close(self) -> None:
        """Forget the frames."""
        self._images.clear()


@final
class Mp4(Video):
    """An H.264 video in a format that browsers play, written by ffmpeg."""

    def __init__(self, fps: float) -> None:
        """Raises UsageError if ffmpeg is not installed."""
        super().__init__(fps)
        self._program = ffmpeg_program()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="esbench-")
        self._path = Path(self._folder.name) / "video.mp4"

    def add(self, frame: Frame) -> None:
        """Add a frame; H.264 needs even sizes, so an odd one repeats its last line."""
        height, width = frame.shape[:2]
        padding = ((0, height % 2), (0, width % 2), (0, 0))
        frame = np.ascontiguousarray(np.pad(frame, padding, mode="edge"))
        if self._process is None:
            self._process = self._start(frame.shape[1], frame.shape[0])
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # ``content`` reports why
            self._process.stdin.write(frame.data)

    def content(self) -> bytes:
        """The bytes of the file; a UsageError if ffmpeg failed."""
        assert self._process is not None, "add a frame first"
        _, errors = self._process.communicate()
        if self._process.returncode:
            reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"ffmpeg failed ({reason}); write a .gif instead")
        return self._path.read_bytes()

    def close(self) -> None:
        """End ffmpeg and remove its file."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        # The writer of imageio_ffmpeg forks, and libraries with threads (JAX) warn about forks.
        raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {self.fps}".split()
        coded = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", X264_CRF)
        return subprocess.Popen(
            [self._program, "-v", "error", "-y", *raw, "-i", "-", "-an", *coded, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )


FORMATS: Final[dict[str, type[Video]]] = {".gif": Gif, ".mp4": Mp4}


def video_class(path: Path) -> type[Video]:
    """The class that writes a file with this suffix; a UsageError for another suffix."""
    if (kind := FORMATS.get(path.suffix.lower())) is None:
        raise UsageError(f"--out {path}: expected a file ending in .gif or .mp4")
    return kind


def gif_durations(frames: int, fps: float) -> list[int]:
    """How long each frame is shown [ms], [frames].

    A GIF counts in hundredths of a second. At 30 frames per second the durations are 30, 40, 30,
    30, 40 ... ms, so no frame is late by more than half a hundredth and the sum is right.
    """
    ends = [round(100 * frame / fps) for frame in range(frames + 1)]
    return [10 * max(1, end - start) for start, end in pairwise(ends)]
