import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from esbench.core.errors import UsageError
from esbench.video.writers import Frame, Gif, Mp4, gif_durations, video_class


def square(value: int, height: int = 31, width: int = 45) -> Frame:
    """Return a frame whose left part is as gray as ``value``, and the rest red."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[:, : width // 2] = value
    frame[:, width // 2 :, 0] = 200
    return frame


def test_a_gif_has_every_pixel_of_few_colors() -> None:
    frames = [square(value) for value in (10, 90, 160, 250)]
    video = Gif(fps=20.0)
    for frame in frames:
        video.add(frame)
    with Image.open(io.BytesIO(video.content())) as image:
        assert image.n_frames == 4  # type: ignore[attr-defined]
        for number, frame in enumerate(frames):
            image.seek(number)
            assert image.info["duration"] == 50
            assert np.abs(np.asarray(image.convert("RGB")).astype(int) - frame).max() <= 8
        assert image.info["loop"] == 0


@pytest.mark.parametrize(("fps", "stride"), [(15, 1), (30, 1), (31, 2), (50, 2), (60, 2), (125, 5)])
def test_a_gif_leaves_frames_out_above_30_a_second(fps: int, stride: int) -> None:
    video = Gif(fps)
    assert (video.stride, video.fps) == (stride, fps / stride)
    film = Mp4(fps)
    film.close()
    assert (film.stride, film.fps) == (1, fps)


def test_durations_add_up_to_the_time_that_passed() -> None:
    assert gif_durations(6, 30.0) == [30, 40, 30, 30, 40, 30]
    assert sum(gif_durations(900, 30.0)) == 30_000
    assert gif_durations(3, 25.0) == [40, 40, 40]


def test_an_mp4_has_every_frame_even_of_odd_size(tmp_path: Path) -> None:
    import imageio_ffmpeg

    video = Mp4(fps=25.0)
    for value in (10, 90, 160, 250):
        video.add(square(value))
    path = tmp_path / "x.mp4"
    path.write_bytes(video.content())
    video.close()
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert re.search(r"Video: h264 .*yuv420p.* 46x32.* 25 fps", done.stderr.decode())
    pixels = np.frombuffer(done.stdout, np.uint8).reshape(4, 32, 46, 3)[:, 16, 8]
    assert np.abs(pixels.mean(1) - [10, 90, 160, 250]).max() < 12


def test_what_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert video_class(Path("a.GIF")) is Gif
    for name in ("film.avi", "film"):
        with pytest.raises(UsageError, match=rf"--out {name}: expected .* \.gif or \.mp4"):
            video_class(Path(name))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[video\]'"):
        Mp4(30.0)


def test_a_failing_ffmpeg_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho first >&2; echo no such codec >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(program))
    with contextlib.closing(Mp4(30.0)) as video:
        for _ in range(20):
            video.add(np.zeros((64, 64, 3), np.uint8))
        with pytest.raises(UsageError, match=r"ffmpeg failed \(no such codec\)"):
            video.content()
