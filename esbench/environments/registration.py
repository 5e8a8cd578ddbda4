"""The environments that esbench adds to Gymnasium: Atari games and test functions.

Importing this module registers them. Nothing of an environment is imported until it is made. Atari
games have one name per game and protocol, because scores of different protocols are not comparable,
nor are policies that observe different things; ``esbench.environments.atari_games`` describes the
protocols. An ``ALE/<Game>-v5`` is an alias.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import gymnasium
from gymnasium.envs.registration import EnvSpec

from esbench.core.errors import UsageError

TARGET: Final = 1e-8  # the final target precision of BBOB
FUNCTION_ENVIRONMENTS: Final[dict[str, dict[str, Any]]] = {
    "esbench/Sphere-v0": {"function": "sphere"},
    "esbench/Ellipsoid-v0": {"function": "ellipsoid"},
    "esbench/RotatedEllipsoid-v0": {"function": "rotated_ellipsoid"},
    "esbench/Rosenbrock-v0": {"function": "rosenbrock"},
    "esbench/Rastrigin-v0": {"function": "rastrigin"},
    "esbench/NoisySphere-v0": {"function": "sphere", "noise": 1.0},
}
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

    A module that registers the name anyway, as in "esbench:esbench/Pong-v5", is left out.
    ``obs_type`` becomes a part of the name, and the ALE's names of other arguments are translated.
    Other names are returned as they are. UsageError for arguments that the ALE does not have.
    """
    module, _, own_name = name.rpartition(":")
    if f"{module}:{own_name.partition('/')[0]}" in ("esbench:esbench", "ale_py:ALE"):
        name = own_name
    namespace, _, game = name.partition("/")
    if namespace != "ALE" or atari_environments().get(f"esbench/{game}", ("", ""))[1] != "v5":
        return name, kwargs
    if not isinstance(kwargs, dict):
        raise UsageError(f"{name}: kwargs = {kwargs!r}: expected a table")
    own = dict(kwargs)
    observed = own.pop("obs_type", "rgb")
    if observed not in ("rgb", "grayscale", "ram"):
        raise UsageError(f"{name}: obs_type = {observed!r}: expected 'ram', 'rgb' or 'grayscale'")
    if own.get("repeat_action_probability") == STICKY:
        del own["repeat_action_probability"]
    if "frameskip" in own:
        own["frame_skip"] = own.pop("frameskip")
    suffix = SUFFIXES["ram"] if observed == "ram" else ""
    return f"esbench/{game.removesuffix('-v5')}{suffix}-v5", own


def _register(name: str, entry_point: str, **specification: Any) -> None:
    # Not gymnasium.register, which compares each name with all others: 0.1 s for all games.
    gymnasium.registry[name] = EnvSpec(name, f"esbench.environments.{entry_point}", **specification)


for _name, _kwargs in FUNCTION_ENVIRONMENTS.items():
    _threshold = None if "noise" in _kwargs else -TARGET
    _register(_name, "functions:FunctionEnv", kwargs=_kwargs, reward_threshold=_threshold)
for _name, (_rom, _protocol) in atari_environments().items():
    _register(_name, f"atari_games:{_protocol}", kwargs={"game": _rom})
