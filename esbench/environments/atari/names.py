"""The environments of Atari games: one name per game and protocol, and the ALE's names as aliases.

Scores of different protocols are not comparable, nor are policies that observe different things.
``esbench.environments.atari.games`` describes the protocols.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

from esbench.core.errors import UsageError

SUFFIXES: Final = {"v5": "", "deterministic": "Deterministic", "ram": "-ram"}  # by protocol
# Games without a version for one player in the ALE.
OTHERS: Final = frozenset({"combat", "joust", "maze_craze", "warlords"})
STICKY: Final = 0.25  # the probability of a repeated action, in ALE/Pong-v5 too


@cache
def roms() -> tuple[str, ...]:
    """The names of all games for one player, sorted, without the slow import of the ALE."""
    found = importlib.util.find_spec("ale_py")
    folders = found.submodule_search_locations if found else None
    files = [path for folder in folders or [] for path in Path(folder, "roms").glob("*.bin")]
    return tuple(sorted({path.stem for path in files} - OTHERS))


@cache
def atari_environments() -> dict[str, tuple[str, str]]:
    """The ROM and the protocol of each environment, by name."""
    return {
        f"esbench/{rom.title().replace('_', '')}{suffix}-v5": (rom, protocol)
        for rom in roms()
        for protocol, suffix in SUFFIXES.items()
    }


def without_alias(name: str, kwargs: Any) -> tuple[str, Any]:
    """The name and arguments of the same protocol here, for an ``ALE/<Game>-v5``.

    ``obs_type`` becomes a part of the name. The ALE's names of other arguments are translated; an
    argument that no protocol has is refused when the environment is made. Other names are returned
    as they are.

    Raises:
        UsageError: arguments of such a game are no table, or the ALE has no such ``obs_type``.
    """
    namespace, _, game = name.partition("/")
    if namespace != "ALE" or atari_environments().get(f"esbench/{game}", ("", ""))[1] != "v5":
        return name, kwargs
    if not isinstance(kwargs, dict):
        raise UsageError(f"{name}: kwargs = {kwargs!r}: expected a table")
    own = dict(kwargs)
    observed = own.pop("obs_type", "rgb")
    if observed not in ("rgb", "grayscale", "ram"):
        raise UsageError(
            f"{name}: obs_type = {observed!r}: expected 'ram', or 'rgb' or 'grayscale', which both "
            f"mean the small gray frames of esbench/{game}"
        )
    if own.get("repeat_action_probability") == STICKY:
        del own["repeat_action_probability"]
    if "frameskip" in own:
        own["frame_skip"] = own.pop("frameskip")
    suffix = SUFFIXES["ram"] if observed == "ram" else ""
    return f"esbench/{game.removesuffix('-v5')}{suffix}-v5", own
