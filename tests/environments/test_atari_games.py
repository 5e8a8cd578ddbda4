"""Atari games are those of the ALE; test_backends.py compares them with Gymnasium's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from beside_gymnasium import DiffersError, play, require_equal
from players import make_job
from players import play as play_job

from esbench.core.errors import UsageError
from esbench.core.noise import LowRankNoise
from esbench.core.seeding import noise_key
from esbench.engine.jobs import Task, member_tasks
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.environments import atari_frames
from esbench.environments.atari_frames import camera
from esbench.environments.atari_games import OF_FRAMES, Game
from esbench.environments.backends import atari
from esbench.environments.backends.atari import AtariBackend, mersenne_twister
from esbench.environments.backends.backend import backend_name
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.make_environment import make_environment
from esbench.environments.registration import SUFFIXES, roms, without_alias
from esbench.environments.specifications import register_family
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec
from esbench.policies.normalization import ObservationStatistics

GAMES = {
    "Pong": "pong", "Breakout": "breakout", "Qbert": "qbert", "SpaceInvaders": "space_invaders"
}  # fmt: skip
SEED = 1  # of an episode; the ALE's own vector environment takes no negative seed of the emulator
SMALL = {"screen_size": 42, "frame_skip": 3, "stack_size": 2}


def ale_seed(seed: int) -> int:
    """The seed that ``AtariEnv`` passes to the emulator."""
    return int(np.int32(np.random.SeedSequence(seed).generate_state(2)[1]))


def draw_actions(space: Any, steps: int) -> list[int]:
    return np.random.default_rng(0).integers(0, space.n, steps).tolist()


@pytest.mark.parametrize("game", GAMES)
def test_v5_is_what_the_ales_own_vector_environment_shows(game: str) -> None:
    """That one is in C++, and makes frames small with OpenCV."""
    ours = AtariBackend(f"esbench/{game}-v5", {}, 1)
    theirs = ale_py.AtariVectorEnv(
        GAMES[game], 1, num_threads=1, repeat_action_probability=0.25, noop_max=0,
        use_fire_reset=False, reward_clipping=False,
    )  # fmt: skip
    assert ale_seed(SEED) > 0
    frames, _ = theirs.reset(seed=np.array([ale_seed(SEED)]))
    ours.start(0, SEED)
    for frame in ours.observations[0]:  # theirs has zeros before the first
        require_equal(frame, frames[0, -1], "first frame")
    for step, action in enumerate(draw_actions(ours.single_action_space, 120)):
        observations, rewards, *ends, _ = ours.step(np.array([action]))
        frames, reward, terminated, truncated, _ = theirs.step(np.array([action]))
        newest = slice(None) if step >= 3 else slice(-1, None)
        require_equal(observations[0, newest], frames[0, newest], f"frames after step {step}")
        require_equal(rewards, reward, f"reward of step {step}")
        require_equal(ends, [terminated, truncated], f"end at step {step}")
        if terminated:
            break
    theirs.close()


def test_a_screen_of_unknown_colors_is_taken_in_gray(monkeypatch: pytest.MonkeyPatch) -> None:
    grays = list(range(256))
    game = Game(rom="pong", protocol="v5")
    assert camera(game.emulator(0.0))[1].tolist() != grays
    monkeypatch.setattr(atari_frames, "NTSC", bytes(level ^ 1 for level in atari_frames.NTSC))
    assert camera(game.emulator(0.0))[1].tolist() == grays
    kwargs = {"max_num_frames_per_episode": 84, "screen_size": 21}
    play(AtariBackend, "esbench/Pong-v5", kwargs, 30, slots=1, exposed=False)


def test_a_policy_can_choose_from_fewer_actions() -> None:
    name = "esbench/PongDeterministic-v5"
    few = AtariBackend(name, {"actions": ["LEFT", "NOOP", "RIGHT"], **SMALL}, 1)
    every = AtariBackend(name, SMALL, 1)
    assert few.single_action_space == gymnasium.spaces.Discrete(3)
    every.start(0, SEED)
    few.start(0, SEED)
    for action in draw_actions(few.single_action_space, 60):
        few.step(np.array([action]))
        every.step(np.array([(3, 0, 2)[action]]))  # of NOOP, FIRE, RIGHT, LEFT
        require_equal(few.observations, every.observations, "frames")


@pytest.mark.parametrize(
    ("game", "kwargs"),
    [
        ("Qbert", {"max_num_frames_per_episode": 83}),  # ends within a step
        ("Breakout", {"full_action_space": True, "frameskip": 1, "max_episode_steps": 30}),
    ],
)
def test_the_memory_is_that_of_the_ales_own_environment(game: str, kwargs: dict[str, Any]) -> None:
    theirs = f"ALE/{game}-v5", {"obs_type": "ram", **kwargs}
    name, own = without_alias(*theirs)
    assert name == f"esbench/{game}-ram-v5"
    assert backend_name("auto", name, own) == "atari"
    assert play(AtariBackend, name, own, 35, slots=2, exposed=False, theirs=theirs) >= 2
    assert play(GymnasiumBackend, name, own, 32, slots=1, exposed=False, theirs=theirs) >= 1


def test_other_sticky_actions_and_hidden_state_of_an_emulator_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(seed: int) -> dict[str, Any]:
        return mersenne_twister(seed + 1)

    with monkeypatch.context() as patch:
        patch.setattr(atari, "mersenne_twister", wrong)
        with pytest.raises(DiffersError):
            test_v5_is_what_the_ales_own_vector_environment_shows("Breakout")
        with pytest.raises(DiffersError):
            test_the_memory_is_that_of_the_ales_own_environment("Pong", {})
    with monkeypatch.context() as patch:
        patch.setattr(atari._AtariSlot, "_reset_hidden_state", lambda self: None)
        kwargs = {"max_episode_steps": 70}
        with pytest.raises(DiffersError):
            play(AtariBackend, "esbench/QbertDeterministic-v5", kwargs, 100, 1, exposed=False)


def test_the_stream_of_sticky_actions_is_that_of_the_cpp_standard() -> None:
    """ISO C++: the 10,000th number of a ``std::mt19937`` with the default seed 5489."""
    stream = np.random.MT19937()
    stream.state = mersenne_twister(5489)
    assert stream.random_raw(10_000)[-1] == 4_123_659_995


MLP = PolicySpec(template="mlp", settings={"hidden": [4]})
CONV = PolicySpec(template="small_conv", settings={"layers": [(2, 5, 3)], "hidden": (4,)})
WIDE = PolicySpec(template="small_conv", settings={"layers": [(2, 5, 3)], "hidden": (1024,)})


def play_members(
    backend: str, slots: int, policy: PolicySpec = MLP, episodes: int = 1
) -> dict[Task, bytes]:
    """Return the gathered moments of some members' observations."""
    kwargs = {"screen_size": 20, "stack_size": 1}
    environment = EnvironmentSpec(id="esbench/SpaceInvaders-v5", kwargs=kwargs, backend=backend)
    player = Player(Setup(environment, policy), slots)
    normalizer = ObservationStatistics(20 * 20).normalizer(5.0)
    given = {"normalizer": normalizer, "gather": True, "max_steps": 50}
    job = make_job(player, 4, episodes=episodes, **given)
    if policy is WIDE:
        noise = LowRankNoise(noise_key(0, 0), len(job.center), player.policy.shapes, rank=1)
        population: Any = job.population
        job = replace(job, population=replace(population, noise=noise))
    results = play_job(player, job, member_tasks(range(4), episodes))
    moments: dict[Task, Any] = {task: result.moments for task, result in results.items()}
    return {task: b"".join(part.tobytes() for part in each[1:]) for task, each in moments.items()}


@pytest.mark.parametrize(
    ("policy", "episodes"), [(MLP, 1), (CONV, 2), (WIDE, 1)], ids=["mlp", "conv", "low-rank"]
)
def test_members_observe_the_same_in_any_number_of_slots(policy: PolicySpec, episodes: int) -> None:
    expected = play_members("auto", 1, policy, episodes)
    assert len(set(expected.values())) > 1
    assert play_members("auto", 4, policy, episodes) == expected
    if policy is MLP:
        assert play_members("gymnasium", 2) == expected


def test_all_games_for_one_player_are_known() -> None:
    register_family("ALE/")
    register_family("esbench/")
    theirs = {
        spec.kwargs["game"] for spec in gymnasium.registry.values() if spec.namespace == "ALE"
    }
    assert set(roms()) == theirs
    for suffix in SUFFIXES.values():
        assert gymnasium.spec(f"esbench/MsPacman{suffix}-v5").kwargs == {"game": "ms_pacman"}


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("Pong-v5", {"repeat_action_probability": 0.0}, "repeat_action_.*esbench/PongDeterm"),
        ("Pong-v5", {"obs_type": "ram"}, "obs_type .*esbench/Pong-ram-v5"),
        ("Pong-v5", {"screen_sise": 42}, "screen_sise .*'screen_size'"),
        ("Pong-v5", {"screen_size": 200}, "screen_size = 200: .*160"),
        ("Pong-v5", {"frame_skip": True}, "frame_skip = true"),
        ("Pong-v5", {"actions": ["NOOP", "RIHGT"]}, "'RIHGT'; .*'RIGHT'"),
        ("Pong-v5", {"actions": ["NOOP", "NOOP"]}, r"actions = \('NOOP', 'NOOP'\)"),
        ("Pong-v5", {"actions": ["NOOP"]}, "actions = .*NOOP.* 2"),
        *(("Pong-ram-v5", {key: 1}, f"{key} .*frames") for key in sorted(OF_FRAMES)),
        *(
            (name, kwargs, "whose name sets it|the name of the environment sets it")
            for name in ("Pong-v5", "PongDeterministic-v5", "Pong-ram-v5")
            for kwargs in ({"game": "breakout"}, {"rom": "breakout"}, {"protocol": "v5"})
        ),
        ("Sphere-v0", {"function": "rastrigin"}, "whose name sets it"),
    ],
)
def test_an_argument_that_no_protocol_has_is_refused(
    name: str, kwargs: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        GymnasiumBackend(f"esbench/{name}", kwargs, 1)
    if name.startswith("Pong"):
        with pytest.raises(UsageError, match=words):
            AtariBackend(f"esbench/{name}", kwargs, 1)


def test_a_game_can_be_rendered() -> None:
    env = make_environment("esbench/Pong-v5", {"render_mode": "rgb_array"})
    env.reset(seed=SEED)
    picture: Any = env.render()
    assert picture.shape == (210, 160, 3)
    env.close()
