"""The installed package has the rows of the leaderboard with small policies."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

pytest.importorskip("hatchling")

from hatchling.builders.wheel import WheelBuilder

from esbench import load_policy, policies_of
from esbench.results import policy_files
from esbench.results.policy_files import PLACES

MOST_BYTES = 2_000_000


def test_the_wheel_has_small_rows_that_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        rows = [each for each in archive.infolist() if each.filename.startswith("esbench/zoo/")]
        archive.extractall(tmp_path, rows)
    assert sum(each.compress_size for each in rows) <= MOST_BYTES
    place = tmp_path / "esbench" / PLACES[-1].relative_to(Path(policy_files.__file__).parents[1])
    assert {each.stem for each in place.iterdir()} == {
        each.stem for each in place.with_name("policies").iterdir()
    }
    in_checkout: Any = load_policy("CartPole-v1/snes", seed=3)
    monkeypatch.setattr(policy_files, "PLACES", [tmp_path / "nothing", place])
    monkeypatch.chdir(tmp_path)
    installed: Any = load_policy("CartPole-v1/snes", seed=3)
    assert installed.parameters.tolist() == in_checkout.parameters.tolist()
    names = policies_of("CartPole-v1").name
    assert {"CartPole-v1/snes#5cf25f33", "CartPole-v1/snes#63546a29"} <= {*names}
