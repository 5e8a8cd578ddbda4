"""Films of the best published policies: ``results/films/ENVIRONMENT.webp``.

    python plots/films.py [ENVIRONMENT ...]

films, in each environment whose rows have policies, the best row of a search: the held-out episode
whose return is nearest to the median of all seeds, and the worst one if it fails, which means that
its return is nearer to the score of the random policy than to that median. A film that is of these
policies already is left alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from esbench.core import files
from esbench.core.errors import EsbenchError, UsageError, unknown
from esbench.core.json_text import as_text
from esbench.experiment.published_policy import load_published
from esbench.publish.leaderboard.films import (
    INDEX,
    MOST_BYTES,
    Film,
    films_folder,
    films_of,
    read_films,
)
from esbench.results.entries import Entry, read_leaderboard
from esbench.results.policy_files import best_of, find_episode, find_policies
from esbench.results.statistics.estimates import Pick
from esbench.video.render_trial import FilmLimits, frame_rate, render_policy

# The first that gives a small file. The floor of MuJoCo, which moves, needs the last ones.
LIMITS = (FilmLimits(10, 25, 320), FilmLimits(7, 10, 240), FilmLimits(6, 8, 200))
FAST = 4  # times the speed of the episode
LONGEST = 60  # seconds of a film that shows a whole episode
LEADERBOARD = Path(__file__).parent.parent / "results" / "leaderboard"


def make_films(leaderboard: Path = LEADERBOARD, environments: Sequence[str] = ()) -> list[Film]:
    """Write the films that are missing, by default of all environments; return all films.

    UsageError if a row of an environment has no policies, or cannot be rendered.
    """
    best = {
        environment: entry
        for environment, own in groupby(read_leaderboard(leaderboard), environment_of)
        for entry in best_of(list(own))
    }
    for name in environments:
        if name not in best:
            raise unknown("environment with published policies", name, best)
    folder = films_folder(leaderboard)
    folder.mkdir(exist_ok=True)
    found = {each.file_name: each for each in read_films(leaderboard)}
    for environment in environments or best:
        entry = best[environment]
        if films_of(entry, [*found.values()]):
            continue
        found = {name: film for name, film in found.items() if film.environment != environment}
        for pick in episodes_to_show(entry, leaderboard):
            film = make_film(entry, pick, leaderboard)
            found[film.file_name] = film
            sys.stdout.write(f"{film.file_name}: {film.caption}\n")
    for path in folder.glob("*.webp"):
        if path.name not in found:
            path.unlink()
    films = [film for _, film in sorted(found.items())]
    files.replace(folder / INDEX, as_text([film.model_dump(mode="json") for film in films]))
    return films


def environment_of(entry: Entry) -> str:
    """The environment of a row."""
    return entry.cell.environment


def row_name(entry: Entry) -> str:
    """The name of a row that no other one has."""
    return f"{entry.cell.environment}/{entry.cell.algorithm}#{entry.variant}"


def episodes_to_show(entry: Entry, leaderboard: Path) -> list[Pick]:
    """The typical episode, and the worst one if it fails."""
    _, policies = find_policies(row_name(entry), leaderboard)
    returns = np.concatenate([arrays["returns"] for arrays in policies.values()])
    return ["median", "worst"] if fails(returns, entry.to_cell().random_score) else ["median"]


def fails(returns: np.ndarray, random_score: float) -> bool:
    """Whether the lowest return is nearer to the random policy's score than to the median."""
    median, lowest = float(np.median(returns)), float(np.min(returns))
    return not math.isnan(random_score) and lowest < (median + random_score) / 2 < median


def limits_to_try(steps: int, fps: float) -> list[FilmLimits]:
    """The limits of a film of an episode, the best ones first.

    The end of an episode may be what it is about, so one that is too long at its speed is shown
    fast, if the film has its end then.
    """
    first, seconds = LIMITS[0], steps / (FAST * fps)
    is_fast = first.seconds * fps < steps and seconds <= LONGEST
    fast = replace(first, speed=FAST, seconds=max(first.seconds, seconds))
    return [*[fast] * is_fast, *LIMITS]


def make_film(entry: Entry, pick: Pick, leaderboard: Path) -> Film:
    """Write one film."""
    row, number = find_episode(row_name(entry), pick, leaderboard=leaderboard)
    _, policies = find_policies(row_name(entry), leaderboard)
    film = Film(
        environment=entry.cell.environment,
        row=entry.file_name,
        name=row_name(entry),
        policies=str(entry.policies),
        pick=pick,
        seed=row.seed,
        episode=number,
        episodes=sum(len(arrays["returns"]) for arrays in policies.values()),
        total=row.arrays["returns"][number],
        steps=int(row.arrays["lengths"][number]),
        shown=0,
    )
    path = films_folder(leaderboard) / film.file_name
    returns = row.arrays["returns"].tolist()
    for limits in limits_to_try(film.steps, frame_rate(load_published(row).policy.environment)):
        policy = load_published(row).policy
        played = render_policy(policy, returns, path, number, film.steps, limits)
        if path.stat().st_size <= MOST_BYTES:
            break
    if played.differs:
        raise UsageError(f"{row_name(entry)}: return {played.total}; recorded: {played.recorded}")
    return film.model_copy(update={"shown": played.shown, "speed": limits.speed})


if __name__ == "__main__":
    try:
        make_films(environments=sys.argv[1:])
    except EsbenchError as error:
        sys.exit(f"{error}")
