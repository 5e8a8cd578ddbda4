"""The films of published policies: WebP files and ``films.json`` beside a leaderboard."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, final

from pydantic import Field

from esbench.core.errors import UsageError
from esbench.core.files import read_bytes, read_json, safe_name
from esbench.core.settings import Settings, parse
from esbench.core.units import counted, format_number
from esbench.results.entries import Entry
from esbench.results.statistics.estimates import Pick

INDEX: Final = "films.json"
MOST_BYTES: Final = 300_000


@final
class Film(Settings):
    """A film of a held-out episode of a row.

    Attributes:
        row: the name of the row's file.
        policies: the digest of the row's policies when the film was made.
        pick: which episode of all held-out ones of the row it is.
        episodes: the number of these.
        total: the return of the whole episode.
        steps, shown: the steps of the episode, and how many of them the film shows.
        speed: that of the film, as a multiple of the episode's.
    """

    environment: str
    row: str
    name: str
    policies: str
    pick: Pick
    seed: int
    episode: int
    episodes: int
    total: float
    steps: int
    shown: int
    speed: Annotated[int, Field(exclude_if=lambda speed: speed == 1)] = 1

    @property
    def file_name(self) -> str:
        """Of the film: that of the environment, and whether it is the worst episode."""
        return safe_name(self.environment) + ("-worst" if self.pick == "worst" else "") + ".webp"

    @property
    def command(self) -> str:
        """What makes the film again."""
        cut = "" if self.shown == self.steps else f" --max-steps {self.shown}"
        episode = f"--seed {self.seed} --episode {self.episode}{cut}"
        return f"esbench render {self.name} {episode} --out film.webp"

    @property
    def caption(self) -> str:
        """What it shows, in words."""
        which = "nearest to the median" if self.pick == "median" else "the lowest"
        cut = "" if self.shown == self.steps else f"the first {self.shown} of "
        fast = "" if self.speed == 1 else f", shown at {self.speed} times its speed"
        return (
            f"return {format_number(self.total)}, {which} of "
            f"{counted(self.episodes, 'held-out episode')}; "
            f"seed {self.seed}, {cut}{counted(self.steps, 'step')}{fast}"
        )

    def is_of(self, entry: Entry) -> bool:
        """Whether it shows a policy of a row."""
        return (self.row, self.policies) == (entry.file_name, entry.policies)


def films_folder(leaderboard: Path) -> Path:
    """The folder of films beside that of a leaderboard."""
    return leaderboard.resolve().with_name("films")


def read_films(leaderboard: Path) -> list[Film]:
    """The films beside a leaderboard; UsageError if one of the files is wrong."""
    path = films_folder(leaderboard) / INDEX
    if not path.exists():
        return []
    content = read_json(path)
    if not isinstance(content, list):
        raise UsageError(f"{path}: expected a list of films")
    return [parse(Film, each, str(path)) for each in content]


def film_content(film: Film, leaderboard: Path) -> bytes:
    """The file of a film; UsageError if it is missing, too large or no WebP."""
    path = films_folder(leaderboard) / film.file_name
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; 'python plots/films.py' makes it") from None
    if content[:4] + content[8:12] != b"RIFFWEBP" or len(content) > MOST_BYTES:
        raise UsageError(f"{path}: expected a WebP of at most {MOST_BYTES:,} bytes")
    return content


def film_address(film: Film, leaderboard: Path) -> str:
    """The content of a film as an address that needs no other file."""
    return "data:image/webp;base64," + base64.b64encode(film_content(film, leaderboard)).decode()


def films_of(entry: Entry, films: Sequence[Film]) -> list[Film]:
    """The films of a row, the typical episode first."""
    return sorted((each for each in films if each.is_of(entry)), key=lambda each: each.pick)
