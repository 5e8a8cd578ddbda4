"""The files of the policies of a leaderboard's rows, one safetensors file per row.

The file has arrays of each seed as "SEED.NAME". Those of a search are ``parameters`` [P] in
float32, ``mean`` and ``scale`` [inputs] of the observation normalizer, and the ``reference`` batch
of virtual batch normalization. Those of an agent are ``weights.NAME`` in float32, by the names of
its ``state_dict``, and ``statistics.NAME``. Both have ``returns`` and ``lengths`` [episodes] of the
held-out episodes. The row has the digest of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from esbench.core.arrays import float_digest
from esbench.core.errors import UsageError, suggestion
from esbench.core.files import read_bytes, safe_name
from esbench.environments.registration import without_alias
from esbench.results.entries import Entry, place_of, read_entry
from esbench.results.statistics.estimates import Pick, picked

SUFFIX: Final = ".safetensors"
MOST_BYTES: Final = 40_000_000  # of a file; all published ones together have less
WEIGHTS: Final = "weights."
STATISTICS: Final = "statistics."
LEAST_SCALE: Final = 1e-100  # its square has a reciprocal

_FLOAT32: Final = np.dtype(np.float32)
_FLOAT64: Final = np.dtype(np.float64)
EPISODES: Final = ("returns", "lengths")
_ROW: Final = re.compile(
    r"((?:[\w:.-]+/)?[\w:.-]+-v\d+/[^/]+?)(?:/seed-(\d{1,18}))?|(?:esbench/)?[\w:.-]+-v\d+"
)
_ROOT: Final = Path(__file__).resolve().parents[1]
PLACES: Final = [
    *(place / "results" / "leaderboard" for place in (Path(), _ROOT.parent)),
    _ROOT / "zoo" / "leaderboard",  # of the installed package
]

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""The arrays of one seed, by their names."""


def policies_folder(leaderboard: Path) -> Path:
    """The folder of policies beside that of a leaderboard."""
    return leaderboard.resolve().with_name("policies")


def policies_file(entry: Entry, leaderboard: Path) -> Path:
    """The file of the policies of a row."""
    return (policies_folder(leaderboard) / entry.file_name).with_suffix(SUFFIX)


def row_name(entry: Entry) -> str:
    """The name of a row, which others with the same labels have too."""
    return f"{entry.cell.environment}/{entry.cell.algorithm}"


def size_of(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """The number of parameters of a policy."""
    own = (each.size for name, each in arrays.items() if name.startswith(("parameters", WEIGHTS)))
    return sum(own)


def as_file(row: str, seeds: Mapping[int, Arrays]) -> bytes:
    """The content of the file of a row, with the arrays of each seed."""
    tensors = {
        f"{seed}.{name}": np.ascontiguousarray(array)
        for seed, arrays in sorted(seeds.items())
        for name, array in sorted(arrays.items())
    }
    return safetensors.numpy.save(tensors, {"row": row})


def read_policies(entry: Entry, path: Path) -> dict[int, Arrays]:
    """The arrays of each seed of a row, from the file that ``entry`` has the digest of.

    UsageError if the row has none, or the file is missing, of another row or damaged, or a number
    in it is not finite.
    """
    if entry.policies is None:
        raise UsageError(f"{entry.name}: {entry.why_unpublished}")
    try:
        if path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; expected at most {MOST_BYTES:,}")
        content = read_bytes(path)
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; expected the policies of {entry.name}") from None
    if (digest := hashlib.sha256(content).hexdigest()) != entry.policies:
        raise UsageError(
            f"{path} has the digest {digest}; expected {entry.policies}, of the policies of "
            f"{entry.name}"
        )
    try:
        tensors = safetensors.numpy.load(content)
    except (SafetensorError, KeyError, ValueError, OverflowError, TypeError) as error:
        raise UsageError(f"{path} is no safetensors file of numbers ({error})") from error
    seeds = {str(seed): seed for seed in entry.seeds}
    found: dict[int, Arrays] = {}
    for key, array in tensors.items():
        seed, _, name = key.partition(".")
        expected = _type_of(name, array, entry)
        if seed not in seeds or expected is None:
            known = ", ".join(_known(entry))
            raise UsageError(f"{path} has {key!r}; expected {known} of the seeds of {entry.name}")
        if array.dtype != expected:
            raise UsageError(f"{path}: {key} is {array.dtype}; expected {expected}")
        if not np.isfinite(array).all():
            raise UsageError(f"{path}: {key} is not finite; expected finite numbers")
        if name == "scale" and not (array >= LEAST_SCALE).all():
            least = f"expected numbers of {LEAST_SCALE:g} or more"
            raise UsageError(f"{path}: {key} has {array.min():g}; {least}")
        found.setdefault(seeds[seed], {})[name] = array
    if (row := _row_in(content)) != entry.name:
        raise UsageError(f"{path} has the policies of {row!r}; expected those of {entry.name}")
    for own, arrays in found.items():
        if missing := [name for name in _required(entry) if name not in arrays]:
            raise UsageError(f"{path} lacks {missing[0]} of seed {own}")
        played = float_digest(arrays["returns"], arrays["lengths"])
        if played != entry.runs[entry.seeds.index(own)].episodes_digest:
            raise UsageError(f"{path}: the episodes of seed {own} are not those of the row")
    return found


def _row_in(content: bytes) -> object:
    """The row that a readable file names; None without one."""
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    return (header.get("__metadata__") or {}).get("row")


def _required(entry: Entry) -> list[str]:
    """The names of the arrays that each seed of a row has."""
    if entry.is_agent:
        return [*EPISODES]
    settings = entry.spec["policy"]["settings"]
    normalizer = ["mean", "scale"] * bool(settings.get("normalize_observations"))
    reference = ["reference"] * bool(settings.get("virtual_batch_norm"))
    return ["parameters", *normalizer, *reference, *EPISODES]


def _known(entry: Entry) -> list[str]:
    """The names of the arrays that a seed of a row may have.

    Whether a user's module has a reference batch depends on its layers.
    """
    settings = {} if entry.is_agent else entry.spec["policy"]["settings"]
    optional = "reference_size" in settings and "virtual_batch_norm" not in settings
    return [*_required(entry), *["reference"] * optional]


def _type_of(name: str, array: npt.NDArray[Any], entry: Entry) -> np.dtype[Any] | None:
    """The type of an array of this name; None if the policy of a row has no such array."""
    if entry.is_agent and name.startswith(WEIGHTS):
        return _FLOAT32
    if entry.is_agent and name.startswith(STATISTICS):
        return _FLOAT64
    if name not in _known(entry):
        return None
    if name == "reference":
        return array.dtype if array.dtype.kind in "buif" else _FLOAT32
    return _FLOAT32 if name == "parameters" else _FLOAT64


@final
@dataclass(frozen=True)
class Published:
    """A seed of a row and its arrays, as a name such as "HalfCheetah-v5/ars_short" tells it."""

    entry: Entry
    seed: int
    arrays: Arrays

    @property
    def name(self) -> str:
        """The name that tells the row and the seed, and no other one."""
        return f"{row_name(self.entry)}#{self.entry.variant}/seed-{self.seed}"

    @property
    def run(self) -> int:
        """The place of the seed among those of the row."""
        return self.entry.seeds.index(self.seed)

    @property
    def digest(self) -> str:
        """The digest of the last generation of training."""
        return self.entry.cell.trials[self.run].last_digest or ""

    @property
    def generation(self) -> int:
        """The number of generations of training."""
        return self.entry.runs[self.run].generations


def is_row_name(text: str) -> bool:
    """Whether a text that is no path may name a row: "ENVIRONMENT/ALGORITHM" or "ENVIRONMENT"."""
    return bool(_ROW.fullmatch(text.rstrip("/"))) and not os.path.exists(text)  # noqa: PTH110 - never raises


def leaderboard_here() -> Path | None:
    """The leaderboard of the current folder, of the checkout of esbench or of its package."""
    return next(filter(Path.is_dir, PLACES), None)


def find_policy(name: str, seed: int | None = None, leaderboard: Path | None = None) -> Published:
    """The published policy of a seed of a row, by default the first one; as ``find_policies``."""
    entry, policies = find_policies(name, leaderboard, seed)
    first = min(policies)
    return Published(entry, first, policies[first])


def find_episode(
    name: str, pick: Pick, seed: int | None = None, leaderboard: Path | None = None
) -> tuple[Published, int]:
    """The policy and the number of the picked held-out episode of a row, or of one of its seeds.

    UsageError as ``find_policies``.
    """
    entry, policies = find_policies(name, leaderboard, seed)
    places = [(own, n) for own in sorted(policies) for n in range(len(policies[own]["returns"]))]
    returns = np.concatenate([policies[own]["returns"] for own in sorted(policies)])
    seed, episode = places[picked(returns, pick)]
    return Published(entry, seed, policies[seed]), episode


def find_policies(
    name: str, leaderboard: Path | None = None, seed: int | None = None
) -> tuple[Entry, dict[int, Arrays]]:
    """The published policies of a row, "ENVIRONMENT/ALGORITHM", by seed: all, or that of one.

    Of several such rows, it is the best one with policies. The name of another one ends with "#"
    and the start of the hash of its settings. "ENVIRONMENT" is its best row of a search with
    policies. Without a ``leaderboard``, that of the current folder, of the checkout of esbench or
    of its package is searched.

    Raises:
        UsageError: there is no such row, the hash is that of several, it has no policies, or none
            of the seed that is given, or that "/seed-N" at the end of the name gives.
    """
    folder = leaderboard or leaderboard_here()
    if folder is None:
        raise UsageError(f"{name!r}: no published policies here; expected a checkout of esbench")
    row, named = _parts(name)
    if None not in (seed, named) and seed != named:
        raise UsageError(f"{name!r} with seed {seed}: expected one of them")
    wanted = named if seed is None else seed
    entry = _row_of(name, row, folder)
    policies = read_policies(entry, policies_file(entry, folder))
    if wanted not in (None, *policies):
        raise UsageError(f"{name!r} has no seed {wanted}; expected one of {sorted(policies)}")
    return entry, {own: each for own, each in policies.items() if wanted in (None, own)}


def best_of(entries: Sequence[Entry]) -> list[Entry]:
    """The best row with policies among those of searches in one environment, if there is one."""
    searches = [each for each in entries if each.policies and not each.is_agent]
    return sorted(searches, key=lambda each: place_of(each.to_cell()))[:1]


def _parts(name: str) -> tuple[str, int | None]:
    """The name of a row, and the seed at its end, if there is one."""
    name = name.rstrip("/")
    parts = _ROW.fullmatch(name)
    if parts is None or parts[1] is None:
        return name, None
    return parts[1], None if parts[2] is None else int(parts[2])


def _without_alias(row: str) -> str:
    """The name of a row with the environment's own one, such as that of an ``ALE/<Game>-v5``."""
    parts = row.split("/")
    environment, _ = without_alias("/".join(parts[:2]), {})
    return "/".join([environment, *parts[2:]])


def _row_of(name: str, row: str, folder: Path) -> Entry:
    """The row of that name: the best one with policies, or the best one."""
    row, _, variant = _without_alias(row).partition("#")
    near = _rows(folder, f"{safe_name(row)}-")
    if row in near:
        found = best_of(near[row])
    else:
        near = _rows(folder, f"{safe_name(row.rpartition('/')[0])}-")
        found = [entry for entry in near.get(row, []) if entry.variant.startswith(variant)]
    published = [entry for entry in found if entry.policies is not None] or found
    if len(published) > 1 and variant:
        several = ", ".join(f"{row}#{entry.variant}" for entry in published)
        raise UsageError(f"{name!r} is more than one row; expected one of {several}")
    if published:
        return min(published, key=lambda each: place_of(each.to_cell()))
    every = [key for key, rows in _rows(folder, "").items() if any(e.policies for e in rows)]
    environment = row.rpartition("/")[0]
    own = [key for key in every if key.startswith(f"{environment}/")]
    see = f" (see: esbench list --policies-of {environment})" if own else ""
    if folder == PLACES[-1]:
        see += "; the package has small rows only, a checkout of esbench has all"
    raise UsageError(
        f"{name!r} is no folder of a trial and no row with published policies of {folder}; "
        f"{suggestion(row, own or every)}{see}"
    )


def _rows(folder: Path, prefix: str) -> dict[str, list[Entry]]:
    """The rows by their names and by their environments, of files that begin with a prefix."""
    found: dict[str, list[Entry]] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith(prefix):
            entry = read_entry(path)
            found.setdefault(row_name(entry), []).append(entry)
            found.setdefault(entry.cell.environment, []).append(entry)
    return found
