"""Films of published policies show the episodes that they say, and stay small."""

import io
import shutil
from pathlib import Path

import films
import numpy as np
import pytest
from checkout import LEADERBOARD
from PIL import Image

from esbench.core.errors import UsageError
from esbench.publish.leaderboard.films import (
    INDEX,
    MOST_BYTES,
    Film,
    film_content,
    films_folder,
    films_of,
    read_films,
)
from esbench.results.entries import read_entry
from esbench.results.policy_files import find_episode, find_policies, policies_folder
from esbench.results.statistics.estimates import Pick
from esbench.video.render_trial import FilmLimits

ROWS = ("CartPole-v1-random_search-533841cf", "CartPole-v1-cem-de2d9f7e")


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A leaderboard of two published rows; the second one is better."""
    folder = tmp_path / "leaderboard"
    for source, suffix in ((LEADERBOARD, ".json"), (policies_folder(LEADERBOARD), ".safetensors")):
        (tmp_path / source.name).mkdir()
        for row in ROWS:
            shutil.copy(source / f"{row}{suffix}", tmp_path / source.name)
    return folder


def test_a_film_is_of_the_best_row_and_is_made_once(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(films, "LIMITS", [FilmLimits(0.4, 25, 64)])
    monkeypatch.setattr(films, "FAST", 25)
    monkeypatch.setattr(films, "fails", lambda *_: True)
    made = films.make_films(board)
    assert made == read_films(board)
    assert [film.file_name for film in made] == ["CartPole-v1-worst.webp", "CartPole-v1.webp"]
    assert {film.row for film in made} == {f"{ROWS[1]}.json"}
    entry = read_entry(board / made[0].row)
    assert [film.pick for film in films_of(entry, made)] == ["median", "worst"]
    for film in made:
        returns = find_policies("CartPole-v1", board)[1][film.seed]["returns"]
        assert film.total == returns[film.episode]
        assert (film.shown, film.speed) == (film.steps, 25)  # the end is shown
        assert film.caption.endswith("500 steps, shown at 25 times its speed")
        with Image.open(io.BytesIO(film_content(film, board))) as image:
            assert image.format == "WEBP"
            assert 9 <= image.n_frames <= 11  # type: ignore[attr-defined]  # equal ones are one
            assert max(image.size) == 64
    monkeypatch.delattr(films, "render_policy")  # nothing is left to do
    assert films.make_films(board) == made
    other = entry.model_copy(update={"policies": "0" * 64})
    assert films_of(other, made) == []
    with pytest.raises(UsageError, match="Pendulum"):
        films.make_films(board, ["Pendulum-v1"])


@pytest.mark.parametrize(("pick", "seed"), [("median", None), ("worst", None), ("worst", 2)])
def test_the_picked_episode_is_that_of_the_row_or_of_a_seed(
    board: Path, pick: Pick, seed: int | None
) -> None:
    name = "CartPole-v1/random_search"
    _, policies = find_policies(name, board)
    row, episode = find_episode(name, pick, seed, board)
    assert seed in {None, row.seed}
    own = [policies[each]["returns"] for each in policies if seed in {None, each}]
    returns = np.concatenate(own)
    goal = np.median(returns) if pick == "median" else returns.min()
    assert abs(row.arrays["returns"][episode] - goal) == abs(returns - goal).min()


@pytest.mark.parametrize(
    ("returns", "random_score", "expected"),
    [
        ([500.0, 500.0, 260.0], 20.0, False),
        ([500.0, 500.0, 259.0], 20.0, True),
        ([-80.0, -85.0, -500.0], -499.0, True),
        ([1.0, 2.0, 3.0], 50.0, False),  # worse than random as a whole
        ([1.0, 2.0, 3.0], float("nan"), False),
    ],
)
def test_an_episode_fails_if_it_is_nearer_to_the_random_policy(
    returns: list[float], random_score: float, expected: bool
) -> None:
    assert films.fails(np.array(returns), random_score) is expected


@pytest.mark.parametrize(
    ("steps", "fps", "speeds"),
    [
        (500, 50, [1, 1, 1]),
        (501, 50, [4, 1, 1, 1]),
        (12_000, 50, [4, 1, 1, 1]),
        (12_001, 50, [1, 1, 1]),  # its end is not in a fast film either
        (501, 100, [1, 1, 1]),
    ],
)
def test_an_episode_is_shown_fast_if_that_shows_its_end(
    steps: int, fps: float, speeds: list[int]
) -> None:
    limits = films.limits_to_try(steps, fps)
    assert [each.speed for each in limits] == speeds
    assert all(each.seconds * each.speed * fps >= steps for each in limits if each.speed > 1)
    assert len({*limits}) == len(limits)  # no film is made twice


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (INDEX, b"{}"),
        (INDEX, b'[{"environment": "../../x"}]'),
        ("CartPole-v1.webp", b"<svg/>"),
        ("CartPole-v1.webp", b"RIFF0000WEBP" + bytes(MOST_BYTES)),
        ("CartPole-v1.webp", b""),
    ],
)
def test_a_wrong_file_of_a_film_is_refused(board: Path, name: str, content: bytes) -> None:
    folder = films_folder(board)
    shutil.copytree(films_folder(LEADERBOARD), folder)
    (folder / name).write_bytes(content)
    with pytest.raises(UsageError, match=name):
        [film_content(film, board) for film in read_films(board)]


@pytest.mark.parametrize("film", read_films(LEADERBOARD), ids=lambda film: film.file_name)
def test_a_published_film_is_of_its_row_short_and_small(film: Film) -> None:
    assert film.is_of(read_entry(LEADERBOARD / film.row))
    returns = find_policies(film.name, LEADERBOARD)[1][film.seed]["returns"]
    assert film.total == returns[film.episode]
    content = film_content(film, LEADERBOARD)
    assert len(content) <= MOST_BYTES
    with Image.open(io.BytesIO(content)) as image:
        duration = 0
        for number in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(number)
            image.load()
            duration += image.info["duration"]
    longest = films.LIMITS[0].seconds if film.shown < film.steps else films.LONGEST
    assert duration <= 1000 * longest + 500  # ms
