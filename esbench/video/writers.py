"""Write frames to an animated GIF or an MP4, one at a time."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from esbench.core.errors import UsageError
from esbench.integrations.library import ffmpeg_program

Frame: TypeAlias = npt.NDArray[np.uint8]
"""[height, width, 3]; all frames of a video have the same size."""
Writer: TypeAlias = Callable[[Iterable[Frame], float], bytes]
"""The file of one or more frames and their number per second."""

X264_CRF: Final = "20"  # 18 is visually lossless, 28 is coarse
GIF_FPS: Final = 30.0  # at most: a GIF stores complete frames, so its size grows with their number


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


def as_mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """An H.264 video in a format that browsers play; a UsageError if ffmpeg is missing or fails."""
    program = ffmpeg_program()
    coded = ("-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", X264_CRF)
    with tempfile.TemporaryDirectory(prefix="esbench-") as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "video.mp4"
        process = None
        for frame in frames:
            height, width = frame.shape[:2]
            # H.264 needs even sizes, so an odd one repeats its last line.
            even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            if process is None:
                size = f"{even.shape[1]}x{even.shape[0]}"
                raw = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {fps} -i -".split()
                # The writer of imageio_ffmpeg forks; libraries with threads (JAX) warn of that.
                process = stack.enter_context(
                    subprocess.Popen(
                        [program, "-v", "error", "-y", *raw, *coded, str(path)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                    )
                )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the exit code tells
                process.stdin.write(np.ascontiguousarray(even).data)
        assert process is not None
        _, errors = process.communicate()
        if process.returncode:
            reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(f"ffmpeg failed ({reason}); write a .gif instead")
        return path.read_bytes()


FORMATS: Final[dict[str, tuple[Writer, float]]] = {
    ".gif": (as_gif, GIF_FPS),
    ".mp4": (as_mp4, math.inf),
}


def video_format(path: Path) -> tuple[Writer, float]:
    """What writes a file with this suffix, and its most frames per second; else a UsageError."""
    if (found := FORMATS.get(path.suffix.lower())) is None:
        raise UsageError(f"--out {path}: expected a file ending in .gif or .mp4")
    return found


def gif_durations(frames: int, fps: float) -> list[int]:
    """How long each frame is shown [ms], [frames].

    A GIF counts in hundredths of a second. At 30 frames per second the durations are 30, 40, 30,
    30, 40 ... ms, so no frame is late by more than half a hundredth and the sum is right.
    """
    ends = [round(100 * frame / fps) for frame in range(frames + 1)]
    return [10 * max(1, end - start) for start, end in pairwise(ends)]
