"""Writes frames as an animated GIF or an MP4, as they come."""

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

from esbench.errors import UsageError

Frame: TypeAlias = npt.NDArray[np.uint8]

QUALITY: Final = "20"  # of x264: 18 cannot be told from the original, 28 is coarse
GIF_FPS: Final = 30.0  # a GIF keeps every frame whole: twice as many are twice the file


class Video(ABC):
    """A video that grows frame by frame; it plays as fast as the environment's clock.

    Attributes:
        most_fps: frames a second that are worth keeping; None keeps all.
        stride: every so many frames of the environment one is to be added.
    """

    most_fps: ClassVar[float | None] = None

    def __init__(self, fps: float) -> None:
        """Begin a video.

        Args:
            fps: frames a second of the environment.
        """
        self.stride = 1 if self.most_fps is None else max(1, math.ceil(fps / self.most_fps))
        self.fps = fps / self.stride

    @abstractmethod
    def add(self, frame: Frame) -> None:
        """Add a frame [height, width, 3]; all are of one size."""

    @abstractmethod
    def content(self) -> bytes:
        """Return the file's content; no frame can be added any more."""

    @abstractmethod
    def close(self) -> None:
        """Free what the video holds; to be called in any case."""


@final
class Gif(Video):
    """A GIF without end, of up to 256 colours a frame."""

    most_fps = GIF_FPS

    def __init__(self, fps: float) -> None:
        super().__init__(fps)
        self._images: list[Image.Image] = []

    def add(self, frame: Frame) -> None:
        """Add a frame; a byte a pixel is kept."""
        image = Image.fromarray(frame)
        # Dithering would change pixels that stand still, which a GIF keeps for nothing.
        method, dither = Image.Quantize.FASTOCTREE, Image.Dither.NONE
        self._images.append(image.quantize(256, method=method, dither=dither))

    def content(self) -> bytes:
        """Return the file's content."""
        file = io.BytesIO()
        first, *others = self._images
        durations = gif_durations(len(self._images), self.fps)
        first.save(
            file, "gif", save_all=True, append_images=others, duration=durations, loop=0
        )  # fmt: skip
        return file.getvalue()

    def close(self) -> None:
        """Forget the frames."""
        self._images.clear()


@final
class Mp4(Video):
    """H.264 as every browser plays it, written by ffmpeg."""

    def __init__(self, fps: float) -> None:
        """Begin a video.

        Raises:
            UsageError: ffmpeg is not installed.
        """
        super().__init__(fps)
        try:
            import imageio_ffmpeg

            program: str = imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError):  # the latter where its package brings no program
            raise UsageError(
                "an MP4 needs ffmpeg: pip install 'esbench[video]' (or write a .gif)"
            ) from None
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="esbench-")
        self._path = Path(self._folder.name) / "video.mp4"

    def add(self, frame: Frame) -> None:
        """Add a frame; H.264 takes even sizes only, so an odd one repeats its last line."""
        height, width = frame.shape[:2]
        padding = ((0, height % 2), (0, width % 2), (0, 0))
        frame = np.ascontiguousarray(np.pad(frame, padding, mode="edge"))
        if self._process is None:
            self._process = self._start(frame.shape[1], frame.shape[0])
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # why it ended, ``content`` tells
            self._process.stdin.write(frame.data)

    def content(self) -> bytes:
        """Return the file's content.

        Raises:
            UsageError: ffmpeg failed.
        """
        assert self._process is not None, "add a frame first"
        _, said = self._process.communicate()
        if self._process.returncode:
            why = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"ffmpeg failed ({why}); write a .gif instead")
        return self._path.read_bytes()

    def close(self) -> None:
        """End ffmpeg and remove its file."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        # imageio_ffmpeg's own writer forks, which libraries with threads (JAX) warn of.
        raw = (
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-s",
            f"{width}x{height}",
            "-r",
            f"{self.fps}",
        )
        coded = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", QUALITY)
        return subprocess.Popen(
            [self._program, "-v", "error", "-y", *raw, "-i", "-", "-an", *coded, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )


FORMATS: Final[dict[str, type[Video]]] = {".gif": Gif, ".mp4": Mp4}


def video_class(path: Path) -> type[Video]:
    """Return what writes a file of this name.

    Raises:
        UsageError: its suffix is of no video that can be written.
    """
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise UsageError(f"--out {path}: expected a file ending in .gif or .mp4") from None


def gif_durations(frames: int, fps: float) -> list[int]:
    """Return how long each frame is shown, in ms; [frames].

    A GIF counts in hundredths of a second: 30 frames a second are 30, 40, 30, 30, 40 ... ms, so
    that no frame is late by more than half of one and the whole takes the time it should.
    """
    ends = [round(100 * frame / fps) for frame in range(frames + 1)]
    return [10 * max(1, end - start) for start, end in pairwise(ends)]
