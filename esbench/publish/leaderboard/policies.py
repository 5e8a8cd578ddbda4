"""The final policies of the rows of a leaderboard, one safetensors file per row.

The file of a seed has, as "SEED.NAME", the ``parameters`` [P] in float32, ``mean`` and ``scale``
[inputs] of the observation normalizer, the ``reference`` batch of virtual batch normalization, and
``returns`` and ``lengths`` [episodes] of the held-out episodes. The row has the digest of the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from safetensors import SafetensorError

from esbench.core.errors import UsageError, suggestion
from esbench.core.files import read_bytes
from esbench.engine.engine import Engine
from esbench.engine.setup import ReferenceBatch, Setup
from esbench.experiment.evaluator import held_out_job, score
from esbench.experiment.final_policy import HeldOutScore
from esbench.experiment.search_trainer import SearchTrainer
from esbench.experiment.stored_trainer import require_trusted_trials
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.grids.trial_spec import TrialSpec
from esbench.policies.normalization import Normalizer
from esbench.publish.leaderboard.entries import Entry, read_entry
from esbench.publish.leaderboard.table import leaderboard_rows
from esbench.results.statistics.estimates import Pick, picked

MOST_PARAMS: Final = 50_000  # of a published policy: 200 kB per seed
SUFFIX: Final = ".safetensors"

TYPES: Final = {
    "parameters": np.dtype(np.float32),
    **dict.fromkeys(("mean", "scale", "returns", "lengths"), np.dtype(np.float64)),
}
_ROW: Final = re.compile(r"(?:[\w:.-]+/)?[\w:.-]+-v\d+/[^/]+|(?:esbench/)?[\w:.-]+-v\d+")
PLACES: Final = [
    place / "results" / "leaderboard" for place in (Path(), Path(__file__).resolve().parents[3])
]
ABSENT: Final = np.empty(0)
REQUIRED: Final = ("parameters", "returns", "lengths")

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
"""The arrays of one seed, by their names."""


def policies_folder(leaderboard: Path) -> Path:
    """The folder of policies beside that of a leaderboard."""
    return leaderboard.resolve().with_name("policies")


def policies_file(entry: Entry, leaderboard: Path) -> Path:
    """The file of the policies of a row."""
    return (policies_folder(leaderboard) / entry.file_name).with_suffix(SUFFIX)


def arrays_of(trainer: SearchTrainer) -> Arrays | None:
    """The final policy of a trial; None if it has more than ``MOST_PARAMS`` parameters."""
    job, setup = trainer.held_out_job(), trainer.gathered_setup()
    if job.center.size > MOST_PARAMS:
        return None
    found: Arrays = {"parameters": job.center.astype(np.float32)}
    if job.normalizer is not None:
        found |= {"mean": job.normalizer.mean, "scale": job.normalizer.scale}
    if setup.reference_batch is not None:
        found["reference"] = setup.reference_batch.observations
    return found


@final
class PublishedPolicy:
    """The final policy of a seed, from its specification and its arrays.

    UsageError if they do not fit, or are not finite.
    """

    def __init__(
        self, spec: TrialSpec, arrays: Mapping[str, npt.NDArray[Any]], generation: int = 0
    ) -> None:
        assert spec.policy is not None, "a search has a policy template"
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise UsageError(f"{name} of seed {spec.seed} is not finite")
        normalizer, batch = None, arrays.get("reference")
        if spec.policy.settings.normalize_observations:
            clip = spec.policy.settings.observation_clip
            mean, scale = (arrays.get(name, ABSENT) for name in ("mean", "scale"))
            normalizer = Normalizer(mean, scale, clip)
        self.setup = Setup(
            spec.environment, spec.policy, None if batch is None else ReferenceBatch(batch)
        )
        self.job = held_out_job(spec, arrays["parameters"].astype(np.float64), normalizer)
        self.policy = TrainedPolicy(self.setup, self.job, generation)

    def play(self, pool: Engine) -> HeldOutScore:
        """Play the held-out episodes."""
        pool.configure(self.setup)
        return score(pool, self.job)


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

    UsageError if the row has none, or the file is missing, of another row or damaged.
    """
    if entry.policies is None:
        raise UsageError(f"{entry.name}: no policies are published; train the row again")
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise UsageError(f"no file {str(path)!r}; expected the policies of {entry.name}") from None
    if (digest := hashlib.sha256(content).hexdigest()) != entry.policies:
        raise UsageError(f"{path} has the digest {digest}; expected {entry.policies}")
    try:
        tensors = safetensors.numpy.load(content)
    except SafetensorError as error:
        raise UsageError(f"{path} is no safetensors file ({error})") from error
    found: dict[int, Arrays] = {}
    for key, array in tensors.items():
        seed, _, name = key.partition(".")
        if (
            not seed.isdecimal()
            or int(seed) not in entry.seeds
            or name not in {*TYPES, "reference"}
        ):
            raise UsageError(f"{path} has {key!r}; expected arrays of the seeds of {entry.name}")
        if array.dtype != (expected := TYPES.get(name, array.dtype)):
            raise UsageError(f"{path}: {key} is {array.dtype}; expected {expected}")
        found.setdefault(int(seed), {})[name] = array
    for own, arrays in found.items():
        if missing := [name for name in REQUIRED if name not in arrays]:
            raise UsageError(f"{path} lacks {missing[0]} of seed {own}")
    return found


@final
@dataclass(frozen=True)
class Published:
    """A seed of a row, as a name such as "HalfCheetah-v5/openai_es" tells it.

    Attributes:
        arrays: of the seed.
    """

    entry: Entry
    seed: int
    arrays: Arrays

    def load(self, trust: bool = False) -> TrainedPolicy:
        """The policy; UsageError if its row names code that is not trusted."""
        require_trusted_trials([self.entry.spec], self.entry.name, trust)
        spec, run = self.entry.to_cell().trial_spec(self.seed), self.entry.seeds.index(self.seed)
        return PublishedPolicy(spec, self.arrays, self.entry.runs[run].generations).policy


def is_row_name(text: str) -> bool:
    """Whether a text that is no path may name a row: "ENVIRONMENT/ALGORITHM" or "ENVIRONMENT"."""
    return bool(_ROW.fullmatch(text)) and not Path(text).exists()


def find_policy(name: str, seed: int | None = None, leaderboard: Path | None = None) -> Published:
    """The published policy of a seed of a row, by default the first one; as ``find_policies``.

    UsageError as there, and if the row does not have the seed.
    """
    entry, policies = find_policies(name, leaderboard)
    seed = min(policies) if seed is None else seed
    if seed not in policies:
        raise UsageError(f"{name!r} has no seed {seed}; expected one of {sorted(policies)}")
    return Published(entry, seed, policies[seed])


def find_episode(
    name: str, pick: Pick, seed: int | None = None, leaderboard: Path | None = None
) -> tuple[Published, int]:
    """The policy and the number of the picked held-out episode of a row, or of one of its seeds.

    UsageError as ``find_policy``.
    """
    entry, policies = find_policies(name, leaderboard)
    if seed is not None:
        policies = {seed: find_policy(name, seed, leaderboard).arrays}
    places = [(own, n) for own in sorted(policies) for n in range(len(policies[own]["returns"]))]
    returns = np.concatenate([policies[own]["returns"] for own in sorted(policies)])
    seed, episode = places[picked(returns, pick)]
    return Published(entry, seed, policies[seed]), episode


def find_policies(name: str, leaderboard: Path | None = None) -> tuple[Entry, dict[int, Arrays]]:
    """The published policies of a row, "ENVIRONMENT/ALGORITHM", by seed.

    The name of one of several such rows ends with "#" and the start of the hash of its settings.
    "ENVIRONMENT" is its best row of a search with policies. Without a ``leaderboard``, that of the
    current folder or of the checkout of esbench is searched.

    Raises:
        UsageError: there is no such row, there are several, or it has no policies.
    """
    folder = leaderboard or next(filter(Path.is_dir, PLACES), None)
    if folder is None:
        raise UsageError(f"{name!r}: no published policies here; expected a checkout of esbench")
    row, _, variant = name.partition("#")
    stems = sorted(path.stem for path in policies_folder(folder).glob(f"*{SUFFIX}"))
    rows: dict[str, list[Entry]] = {}
    for entry in (read_entry(folder / f"{stem}.json") for stem in stems):
        if entry.variant.startswith(variant):
            rows.setdefault(f"{entry.cell.environment}/{entry.cell.algorithm}", []).append(entry)
            rows.setdefault(entry.cell.environment, []).append(entry)
    found = rows.get(row, [])
    if found and row == found[0].cell.environment:
        found = best_of(found)
    if len(found) != 1:
        several = ", ".join(f"{row}#{entry.variant}" for entry in found)
        near = f"expected one of {several}" if found else suggestion(row, rows)
        raise UsageError(f"{name!r} is no row with published policies; {near}")
    return found[0], read_policies(found[0], policies_file(found[0], folder))


def best_of(entries: Sequence[Entry]) -> list[Entry]:
    """The best row with policies among those of searches in one environment, if there is one."""
    searches = [each for each in entries if each.policies and each.spec["policy"] is not None]
    return [row.entry for row in leaderboard_rows(searches)[:1]]
