"""What is shown is the episode that was scored."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from command_line import Run
from doubles import Walk
from fake_trials import edit
from PIL import Image
from programs import require
from watchers import run

from esbench import render
from esbench.core.errors import UsageError
from esbench.core.seeding import Purpose, episode_seed
from esbench.core.units import format_number
from esbench.engine.worker_pool import WorkerPool
from esbench.environments.simulator_log import silenced
from esbench.experiment.stored_trainer import evaluate_trial, keep_best
from esbench.experiment.trials import Trial
from esbench.grids.trial_spec import EnvironmentSpec
from esbench.video import render_trial as module
from esbench.video.render_trial import Rendered, outputs, render_trial

Make = Callable[..., Trial]


class Counts(Walk):
    """Draws how many steps it has made."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, broken: str = "") -> None:
        super().__init__(length=1)
        self.render_mode, self.broken = render_mode, broken

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        observation, info = super().reset(seed=seed)
        self.left, self.steps = 11, 0
        return observation, info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return super().step(action)

    def render(self) -> np.ndarray:
        if self.broken == "raises":
            raise OSError("no paint left")
        if self.broken == "grows":
            return np.zeros((8 + self.steps // 4, 8, 3), np.uint8)
        return np.full((8, 8, 3), 20 * self.steps, np.uint8)


gymnasium.register("Counts-v0", entry_point=Counts)
COUNTS = "test_render_trial:Counts-v0"


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*module.SCREENS, "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)


def rendered(trial: Trial, pool: WorkerPool, **options: Any) -> Rendered:
    run(pool, trial)
    return render_trial(trial.folder.path, trial.folder.path / "render.gif", **options)


def pictures(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        found = []
        for number in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(number)
            found.append(np.asarray(image.convert("RGB")))
        return found


PLAYED: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "Hopper-v5": {},
    "esbench/Pong-v5": {"kwargs": {"max_num_frames_per_episode": 160}},
}


@pytest.mark.parametrize("name", PLAYED)
def test_the_return_is_the_recorded_one_of_the_episode(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "Hopper-v5":
        found = module.offscreen_opengl() is not None
        require(found, "an OpenGL without a screen (EGL or OSMesa)")
        monkeypatch.setenv("DISPLAY", ":77")  # a screen that is gone
    policy = {"template": "mlp", "hidden": [4], "normalize_observations": True}
    if name.startswith("esbench/"):
        policy = {"template": "small_conv", "hidden": [4], "normalize_observations": False}
        policy |= {"virtual_batch_norm": True, "reference_size": 4}
    trial = make_trial(
        name, environment={name: PLAYED[name]}, policy=policy, settings={"population_size": 2},
        budget={"env_steps": 40}, evaluation={"episodes": 3},
    )  # fmt: skip
    before = dict(os.environ)
    film = rendered(trial, pool, episode=2)
    returns = trial.folder.result()["returns"]
    assert film.total == film.recorded == returns[2]
    assert film.seed == episode_seed(trial.spec.seed, Purpose.EVALUATION_EPISODE, 0, 2)
    assert film.shown == film.steps
    assert not film.differs
    assert {key: os.environ.get(key) for key in before} == before
    assert not {"MUJOCO_GL", "SDL_VIDEODRIVER"} & os.environ.keys()
    shown = pictures(film.path)
    assert len(shown) > 1
    assert all(picture.std() > 1 for picture in shown)  # none is blank
    assert any((picture != shown[0]).any() for picture in shown)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v5", "Swimmer-v5", "Hopper-v5"])
def test_a_robot_that_has_walked_away_is_in_the_picture(name: str) -> None:
    require(module.offscreen_opengl() is not None, "an OpenGL without a screen (EGL or OSMesa)")
    with silenced(), module._stage(EnvironmentSpec(id=name)) as made:
        env: Any = made
        env.reset(seed=0)
        env.render()
        model, data = env.unwrapped.model, env.unwrapped.data
        data.qpos[0] += 30.0
        mujoco.mj_forward(model, data)
        frame = env.render().astype(int)
        robot = model.geom_bodyid > 0
        model.geom_rgba[robot, 3], model.geom_matid[robot] = 0.0, -1  # invisible
        differs = (abs(env.render() - frame) > 8).any(axis=-1)
        assert differs.mean() > 0.02


def test_the_film_has_every_other_frame_and_may_be_cut(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial(COUNTS)
    run(pool, trial)
    folder = trial.folder.path
    # 60 frames a second: a GIF shows every other one, and the end.
    for max_steps, shown in ((1000, [0, 2, 4, 6, 8, 10, 11]), (4, [0, 2, 4])):
        film = render_trial(folder, folder / "render.gif", max_steps=max_steps)
        assert (film.steps, film.shown) == (11, shown[-1])
        assert film.total == trial.folder.result()["returns"][0]
        assert [round(picture.mean() / 20) for picture in pictures(film.path)] == shown
    with pytest.raises(UsageError, match="episode = 4"):
        render_trial(folder, folder / "render.gif", episode=4)
    returns = trial.folder.result()["returns"]
    assert render_trial(folder, folder / "a.webp", pick="worst").total == min(returns)
    assert len(pictures(folder / "a.webp")) == 7
    with pytest.raises(UsageError, match="--pick median cannot be combined with --episode 1"):
        render(folder, pick="median", episode=1, trust=True)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("doubles:Walk-v0", {}, "'doubles:Walk-v0' cannot be rendered: it has no render mode"),
        (COUNTS, {"broken": "raises"}, "cannot be rendered: OSError: no paint left"),
        (COUNTS, {"broken": "grows"}, r"size of its frames is \(8, 8\), and after 4 .*\(9, 8\)"),
        ("CartPole-v1", {}, "CartPole-v1.*'pygame' is not installed.*pip install.*video"),
        ("Hopper-v5", {}, "EGL.*OSMesa.*apt-get install"),
    ],
)
def test_what_has_no_picture(
    make_trial: Make,
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kwargs: dict[str, str],
    words: str,
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr(module, "OFFSCREEN", ("nothing",))
    trial = make_trial(name, environment={name: {"kwargs": kwargs}}, budget={"env_steps": 40})
    with pytest.raises(UsageError, match=words):
        rendered(trial, pool)
    assert not list(trial.folder.path.glob("*render*"))


def test_the_command_prints_a_line_and_notices_another_return(
    make_trial: Make, pool: WorkerPool, esbench: Run
) -> None:
    trial = make_trial(COUNTS)
    run(pool, trial)
    folder = trial.folder.path
    code, out, _ = esbench("render", str(folder), "--episode", "1", "--max-steps", "5")
    assert code == 0
    line = rf"{re.escape(str(folder))}/render\.gif: {COUNTS}, generation \d+, episode 1 "
    total = trial.folder.result()["returns"][1]
    rest = rf"\(seed \d+\), return {re.escape(format_number(total))}, 11 steps, the first 5 shown\n"
    assert re.fullmatch(line + rest, out)
    edit(folder, "result.json", lambda result: result["returns"].__setitem__(1, 3.5))
    code, _, err = esbench("render", str(folder), "--episode", "1", "--out", "new/film.gif")
    assert code == 1
    assert "DIFFERENT from the recorded return 3.5" in err
    assert Path("new/film.gif").exists()


def test_the_best_policy_plays_its_own_episode(
    make_trial: Make, pool: WorkerPool, esbench: Run
) -> None:
    trial = make_trial(COUNTS)
    run(pool, trial)
    folder = trial.folder.path
    best = evaluate_trial(folder, pool, which="best")
    total = best.score.returns[2].item()
    assert total != trial.folder.result()["returns"][2]
    code, out, _ = esbench("render", str(folder), "--which", "best", "--episode", "2")
    assert code == 0
    assert f"generation {best.generation}, episode 2 " in out
    assert f", return {format_number(total)}, 11 steps" in out
    keep_best(folder, best)
    film = render_trial(folder, folder / "best.gif", episode=2, which="best")
    assert film.recorded == film.total == total


def test_all_is_every_trial_with_a_checkpoint(
    make_trial: Make, pool: WorkerPool, esbench: Run
) -> None:
    first, lost, last = trials = [make_trial(COUNTS, seed=seed) for seed in range(3)]
    bad = make_trial("doubles:Walk-v0")
    for trial in (*trials, bad):
        run(pool, trial)
    (lost.folder.path / "checkpoint" / "state.json").unlink()
    root = Path("out")
    found = [first.folder.path, last.folder.path]
    code, out, err = esbench("render", str(root), "--all", "--out", "film.gif")
    assert code == 2
    assert "doubles_Walk-v0" in err
    assert "has no render mode" in err
    assert len(out.splitlines()) == 2
    assert sorted(path.parent.resolve() for path in root.rglob("film.gif")) == sorted(found)
    with pytest.raises(UsageError, match="expected a name without a folder, such as film.gif"):
        outputs(root, Path("a/film.gif"), all_=True)
