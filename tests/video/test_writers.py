import io
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from esbench.core.errors import UsageError
from esbench.video.render_trial import Frame, as_gif, as_mp4, video_format


def square(value: int, height: int = 31, width: int = 45) -> Frame:
    """Return a frame whose left part is as gray as ``value``, and the rest red."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[:, : width // 2] = value
    frame[:, width // 2 :, 0] = 200
    return frame


FRAMES = [square(value) for value in (10, 90, 160, 250)]


def test_a_gif_has_every_pixel_of_few_colors() -> None:
    with Image.open(io.BytesIO(as_gif(FRAMES, 20.0))) as image:
        assert image.n_frames == 4  # type: ignore[attr-defined]
        for number, frame in enumerate(FRAMES):
            image.seek(number)
            assert image.info["duration"] == 50
            assert np.abs(np.asarray(image.convert("RGB")).astype(int) - frame).max() <= 8
        assert image.info["loop"] == 0


def test_an_mp4_has_every_frame_even_of_odd_size(tmp_path: Path) -> None:
    import imageio_ffmpeg

    path = tmp_path / "x.mp4"
    path.write_bytes(as_mp4(FRAMES, 25.0))
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert re.search(r"Video: h264 .*yuv420p.* 46x32.* 25 fps", done.stderr.decode())
    pixels = np.frombuffer(done.stdout, np.uint8).reshape(4, 32, 46, 3)[:, 16, 8]
    assert np.abs(pixels.mean(1) - [10, 90, 160, 250]).max() < 12


def test_the_suffix_decides_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert video_format(Path("a.GIF")) == (as_gif, 30.0)
    assert video_format(Path("a.mp4")) == (as_mp4, math.inf)
    for name in ("film.avi", "film"):
        with pytest.raises(UsageError, match=rf"--out {name}: expected .* \.mp4"):
            video_format(Path(name))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"pip install .*\[video\]"):
        as_mp4(FRAMES, 30.0)
