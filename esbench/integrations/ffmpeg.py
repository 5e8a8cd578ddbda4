"""The ffmpeg program of the package imageio-ffmpeg (the extra ``video``)."""

from __future__ import annotations

from esbench.errors import UsageError


def ffmpeg_program() -> str:
    """Path of the ffmpeg program.

    Raises:
        UsageError: The package is not installed, or brings no program.
    """
    try:
        import imageio_ffmpeg

        program: str = imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        raise UsageError(
            "an MP4 needs ffmpeg: install the extra 'video' (pip install 'esbench[video]') or "
            "write a .gif"
        ) from None
    return program
