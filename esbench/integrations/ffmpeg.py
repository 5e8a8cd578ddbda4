"""The ffmpeg program of the package imageio-ffmpeg (the extra ``video``)."""

from __future__ import annotations

from esbench.core.errors import UsageError
from esbench.core.registry import DISTRIBUTION, extra_command


def ffmpeg_program() -> str:
    """Path of the program; UsageError if the package is not installed or brings no program."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        command = extra_command(DISTRIBUTION, "video")
        raise UsageError(
            f"an MP4 needs ffmpeg: install the extra 'video' ({command}) or write a .gif"
        ) from None
