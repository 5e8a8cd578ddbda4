"""Atari games are the ALE's own under all protocols, and the fast path has all their bits."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from beside_gymnasium import DiffersError, play, require_equal

from esbench.core.arrays import Vector
from esbench.core.errors import UsageError
from esbench.core.noise import GaussianNoise, LowRankNoise, Noise
from esbench.core.population import LowRankMember, SampledPopulation
from esbench.core.seeding import Purpose, noise_key
from esbench.engine.jobs import Job, Task, member_tasks
from esbench.engine.player import Player
from esbench.engine.setup import Setup
from esbench.environments import atari_frames as screens
from esbench.environments.atari_frames import camera
from esbench.environments.atari_games import OF_FRAMES, Game
from esbench.environments.backends import atari
from esbench.environments.backends.atari import AtariBackend, mersenne_twister
from esbench.environments.backends.backend import backend_name
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.environments.make_environment import make_environment, register_family
from esbench.environments.registration import SUFFIXES, roms, without_alias
from esbench.grids.trial_spec import EnvironmentSpec, PolicySpec
from esbench.policies.kernels.convolution import ConvBatch
from esbench.policies.normalization import ObservationStatistics

GAMES = {
    "Pong": "pong", "Breakout": "breakout", "Freeway": "freeway", "Frostbite": "frostbite",
    "Seaquest": "seaquest", "SpaceInvaders": "space_invaders", "BeamRider": "beam_rider",
    "Qbert": "qbert", "Enduro": "enduro",
}  # fmt: skip
SEED = 1  # of an episode; the ALE's own vector environment takes no negative seed of the emulator
SMALL = {"screen_size": 42, "frame_skip": 3, "stack_size": 2}


def ale_seed(seed: int) -> int:
    """The seed that ``AtariEnv`` passes to the emulator."""
    return int(np.int32(np.random.SeedSequence(seed).generate_state(2)[1]))


def draw_actions(space: Any, steps: int) -> list[int]:
    return np.random.default_rng(0).integers(0, space.n, steps).tolist()


@pytest.mark.parametrize("game", ["Pong", "Breakout", "Qbert", "SpaceInvaders"])
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
    for step, action in enumerate(draw_actions(ours.single_action_space, 250)):
        observations, rewards, *ends, _ = ours.step(np.array([action]))
        frames, reward, terminated, truncated, _ = theirs.step(np.array([action]))
        newest = slice(None) if step >= 3 else slice(-1, None)
        require_equal(observations[0, newest], frames[0, newest], f"frames after step {step}")
        require_equal(rewards, reward, f"reward of step {step}")
        require_equal(ends, [terminated, truncated], f"end at step {step}")
        if terminated:
            break
    theirs.close()


def play_one(name: str, steps: int, **kwargs: Any) -> int:
    """Play beside Gymnasium in one slot; return the episodes."""
    return play(AtariBackend, name, kwargs, steps, slots=1, exposed=False)


@pytest.mark.parametrize("game", GAMES)
def test_the_deterministic_protocol_is_gymnasiums_to_the_bit(game: str) -> None:
    name = f"esbench/{game}Deterministic-v5"
    assert backend_name("auto", name, {}) == "atari"
    # The second episode begins in an emulator that another has left.
    assert play_one(name, 100, max_episode_steps=70) == 1


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("QbertDeterministic", {"max_num_frames_per_episode": 120, **SMALL}),
        ("Pong", {"max_episode_steps": 25, "full_action_space": True, "frame_skip": 1}),
        ("PongDeterministic", {"max_episode_steps": 25, "actions": ["RIGHT", "LEFT"]}),
        # Episodes that end in the first, the last or another frame of a step.
        ("Pong", {"screen_size": 21, "max_num_frames_per_episode": 84}),
        ("Qbert", {"max_num_frames_per_episode": 83}),
        ("SolarisDeterministic", {"max_num_frames_per_episode": 89}),
        ("BeamRider", {"frame_skip": 1, "max_num_frames_per_episode": 25}),
        ("Enduro", {"frame_skip": 2, "max_num_frames_per_episode": 62}),
        ("LaserGates", {"frame_skip": 2, "max_num_frames_per_episode": 61}),
    ],
)
def test_every_bit_is_gymnasiums(name: str, kwargs: dict[str, Any]) -> None:
    assert play_one(f"esbench/{name}-v5", 63, **kwargs) >= 1


@pytest.mark.parametrize("name", ["Berzerk", "Berzerk-ram", "DoubleDunk", "DoubleDunk-ram"])
def test_a_game_that_acts_in_its_reset_is_gymnasiums_to_the_bit(name: str) -> None:
    """It draws sticky actions there, so its first frame depends on the seed."""
    assert play_one(f"esbench/{name}-v5", 130, max_episode_steps=60) == 2


def test_an_ale_of_other_grays_is_taken_in_gray(monkeypatch: pytest.MonkeyPatch) -> None:
    grays = list(range(256))
    game = Game(rom="pong", protocol="v5")
    assert camera(game.emulator(0.0))[1].tolist() != grays
    monkeypatch.setattr(screens, "NTSC", bytes(level ^ 1 for level in screens.NTSC))
    assert camera(game.emulator(0.0))[1].tolist() == grays
    play_one("esbench/Pong-v5", 30, max_num_frames_per_episode=84, screen_size=21)


def test_a_policy_can_choose_from_fewer_actions() -> None:
    """Those of the whole set, by name, in the order given; the no-ops before a game stay no-ops."""
    name = "esbench/PongDeterministic-v5"
    few = AtariBackend(name, {"actions": ["LEFT", "NOOP", "RIGHT"], **SMALL}, 1)
    every = AtariBackend(name, SMALL, 1)
    assert few.single_action_space == gymnasium.spaces.Discrete(3)
    every.start(0, SEED)
    few.start(0, SEED)
    assert every.environment(0).get_wrapper_attr("get_action_meanings")()[:4] == [
        "NOOP", "FIRE", "RIGHT", "LEFT",
    ]  # fmt: skip
    for action in draw_actions(few.single_action_space, 60):
        few.step(np.array([action]))
        every.step(np.array([(3, 0, 2)[action]]))
        require_equal(few.observations, every.observations, "frames")


@pytest.mark.parametrize(
    ("game", "kwargs"),
    [
        ("Pong", {"max_episode_steps": 30}),
        ("Qbert", {"max_num_frames_per_episode": 83}),  # ends within a step
        ("MsPacman", {"max_num_frames_per_episode": 90, "frameskip": 3}),
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


def test_no_screen_is_looked_at_when_the_memory_is_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = AtariBackend("esbench/Pong-ram-v5", {}, 1)
    backend.start(0, SEED)  # loads the game
    monkeypatch.setattr(atari, "camera", None)
    monkeypatch.setattr(screens.Screens, "refresh", None)
    backend.start(0, SEED)
    for action in draw_actions(backend.single_action_space, 20):
        backend.step(np.array([action]))
    assert backend.observations.shape == (1, 128)


def test_repeated_actions_and_untouched_emulators_are_noticed(
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
        with pytest.raises(DiffersError):
            test_the_deterministic_protocol_is_gymnasiums_to_the_bit("Qbert")


def test_the_stream_is_that_of_the_standard() -> None:
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
    center = np.zeros(player.policy.num_params)
    noise: Noise = GaussianNoise(noise_key(0, 0), center.size)
    if policy is WIDE:
        noise = LowRankNoise(noise_key(0, 0), center.size, player.policy.shapes, rank=1)
    population = SampledPopulation(center=center, sigma=0.5, noise=noise, size=4)
    normalizer = ObservationStatistics(20 * 20).normalizer(5.0)
    purpose = Purpose.TRAINING_EPISODE
    job = Job(0, 0, purpose, population, center, episodes, normalizer, gather=True, max_steps=50)
    player.begin(job)
    player.add(member_tasks(range(4), episodes))
    gathered = {}
    while player.busy:
        for result in player.step():
            assert result.moments is not None
            gathered[result.task] = b"".join(part.tobytes() for part in result.moments[1:])
    return gathered


def test_members_see_the_same_whatever_plays_them() -> None:
    expected = play_members("gymnasium", 2)
    assert len(set(expected.values())) == 4
    assert play_members("auto", 3) == expected


def count_loads(monkeypatch: pytest.MonkeyPatch, method: str) -> list[int]:
    """Return the slots that a method of the policies' slots has loaded, as they are loaded."""
    loaded: list[int] = []
    load = getattr(ConvBatch, method)

    def counted(batch: ConvBatch, slot: int, member: Vector | LowRankMember) -> None:
        loaded.append(slot)
        load(batch, slot, member)

    monkeypatch.setattr(ConvBatch, method, counted)
    return loaded


def test_episodes_of_a_member_share_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = count_loads(monkeypatch, "load")
    expected = play_members("auto", 1, CONV, episodes=2)
    assert len(loaded) == 8  # in one slot, episode after episode
    assert len(set(expected.values())) > 2
    loaded.clear()
    assert play_members("auto", 4, CONV, episodes=2) == expected  # two beside two
    assert len(loaded) == 4


def test_members_of_low_rank_share_their_center(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = count_loads(monkeypatch, "load_low_rank")
    expected = play_members("auto", 1, WIDE)
    assert loaded == [0, 0, 0, 0]
    assert len(set(expected.values())) > 1
    assert play_members("auto", 3, WIDE) == expected


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
        (
            "Pong-v5",
            {"repeat_action_probability": 0.0},
            "repeat_action_probability .*Deterministic",
        ),
        ("Pong-v5", {"obs_type": "ram"}, "obs_type .*esbench/Pong-ram-v5"),
        ("Pong-v5", {"screen_sise": 42}, "screen_sise .*'screen_size'"),
        ("Pong-v5", {"screen_size": 200}, "screen_size = 200: .*160"),
        ("Pong-v5", {"frame_skip": True}, "frame_skip = true"),
        ("Pong-v5", {"actions": ["NOOP", "RIHGT"]}, "'RIHGT' in pong; .*'RIGHT'"),
        ("Pong-v5", {"actions": ["NOOP", "NOOP"]}, r"actions = \('NOOP', 'NOOP'\)"),
        ("Pong-v5", {"actions": ["NOOP"]}, "actions = .*NOOP.* 2"),
        *(("Pong-ram-v5", {key: 1}, f"{key} .*frame_skip") for key in sorted(OF_FRAMES)),
    ],
)
def test_what_no_protocol_has_is_refused(name: str, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AtariBackend(f"esbench/{name}", kwargs, 1)


def test_it_can_be_rendered() -> None:
    env = make_environment("esbench/Pong-v5", {"render_mode": "rgb_array"})
    env.reset(seed=SEED)
    picture: Any = env.render()
    assert picture.shape == (210, 160, 3)
    env.close()
