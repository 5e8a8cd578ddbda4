"""Cells: stored trials that differ only in the seed. A cell is one row of a table, one curve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.errors import UsageError
from esbench.files import Json
from esbench.grids.environment_files import (
    EnvironmentFile,
    Scores,
    environment_names,
    load_environment,
)
from esbench.grids.trial_spec import DEFAULT_LABEL, flatten
from esbench.store.trial_folder import TrialFolder, find_trials

VARIANT_DIGITS: Final = 6
_Member: TypeAlias = tuple[TrialFolder, Json]


@final
@dataclass(frozen=True)
class Cell:
    """Trials that differ only in the seed.

    Attributes:
        environment, algorithm, policy: labels. Where several cells have the same three, the label
            of the algorithm ends with "#" and the start of the hash of the settings.
        differs: the settings in which cells with the same labels differ, as "key=value".
        trials: one per seed, sorted by seed.
        descriptions: the content of their ``trial.json``.
        scores: frozen scores of the environment; empty if ``kwargs`` change the environment.
        twice: two folders with the same trial, the one that counts and the other, or None.
    """

    environment: str
    algorithm: str
    policy: str
    differs: tuple[str, ...]
    trials: tuple[TrialFolder, ...]
    descriptions: tuple[Json, ...]
    scores: Scores
    twice: tuple[Path, Path] | None = None

    @property
    def name(self) -> str:
        """Algorithm and policy in words, without the default policy."""
        return cell_name(self.algorithm, self.policy)

    @property
    def has_scale(self) -> bool:
        """Whether there is a frozen random score and a reference score above it."""
        random, references = self.scores.random, self.scores.references
        return bool(random and references and references[0].score > random.mean)


def cells(root: Path) -> list[Cell]:
    """The cells of the trials below ``root``, sorted by labels.

    A seed that was run twice with the same settings counts once.

    Raises:
        UsageError: there is no trial, or one cannot be read.
    """
    alike: dict[tuple[str, str, str], list[_Member]] = {}
    for trial in find_trials(root):
        description = trial.description()
        labels = description["labels"]
        key = (labels["environment"], labels["algorithm"], labels["policy"])
        alike.setdefault(key, []).append((trial, description))
    known = {environment for environment, *_ in alike}.intersection(environment_names())
    files = {name: load_environment(name) for name in sorted(known)}
    return [
        cell
        for (environment, algorithm, policy), members in sorted(alike.items())
        for cell in _cells_of(environment, algorithm, policy, members, files.get(environment))
    ]


def require_distinct_seeds(found: Sequence[Cell]) -> None:
    """Refuse cells in which a seed was run twice.

    Raises:
        UsageError: names both folders.
    """
    for cell in found:
        if cell.twice:
            raise UsageError(
                f"{cell.twice[0]} and {cell.twice[1]} hold the same trial; expected a folder with "
                "one of them"
            )


def cell_name(algorithm: str, policy: str) -> str:
    """Algorithm and policy in words, without the default policy."""
    return algorithm if policy == DEFAULT_LABEL else f"{algorithm} {policy}"


def _cells_of(
    environment: str,
    algorithm: str,
    policy: str,
    members: Sequence[_Member],
    file: EnvironmentFile | None,
) -> Iterator[Cell]:
    """The cells with these labels, sorted by the hash of their settings."""
    variants: dict[str, dict[int, _Member]] = {}
    twice: dict[str, tuple[Path, Path]] = {}
    for trial, description in members:
        spec = description["spec"]
        variant = _variant(spec)
        seeds = variants.setdefault(variant, {})
        known = seeds.get(spec["seed"])
        if known is not None:
            twice[variant] = (known[0].path, trial.path)
        if known is None or (trial.is_done and not known[0].is_done):
            seeds[spec["seed"]] = (trial, description)
    specs = [next(iter(seeds.values()))[1]["spec"] for seeds in variants.values()]
    for variant, seeds in sorted(variants.items()):
        trials, descriptions = zip(*(seeds[seed] for seed in sorted(seeds)), strict=True)
        spec = descriptions[0]["spec"]
        unchanged = file is not None and file.kwargs == spec["environment"]["kwargs"]
        yield Cell(
            environment=environment,
            algorithm=algorithm if len(specs) == 1 else f"{algorithm} #{variant[:VARIANT_DIGITS]}",
            policy=policy,
            differs=_differing(spec, specs),
            trials=trials,
            descriptions=descriptions,
            scores=file.scores if file is not None and unchanged else Scores(),
            twice=twice.get(variant),
        )


def _variant(spec: Json) -> str:
    """The hash of a specification without its seed."""
    common = {key: value for key, value in spec.items() if key != "seed"}
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def _differing(spec: Json, specs: Sequence[Json]) -> tuple[str, ...]:
    """The settings of ``spec``, without the seed, that are not the same in all ``specs``."""
    flat = [flatten(each) for each in specs]
    return tuple(
        f"{key}={json.dumps(value)}"
        for key, value in flatten(spec).items()
        if key != "seed" and any(key not in other or other[key] != value for other in flat)
    )
