"""Stored trials, grouped by all they have in common but the seed: one row of a table, one curve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, final

from esbench.environments import (
    EnvironmentFile,
    Scores,
    environment_names,
    load_environment,
)
from esbench.errors import UsageError
from esbench.files import Json
from esbench.spec import flatten
from esbench.store import TrialFolder, find_trials
from esbench.trials import DEFAULT_LABEL

VARIANT_DIGITS: Final = 6
_Seeds: TypeAlias = dict[int, tuple[TrialFolder, Json]]


@final
@dataclass(frozen=True)
class Cell:
    """The trials that differ in nothing but the seed: one row, one curve.

    Attributes:
        environment, algorithm, policy: labels. Where several cells have the same three, the
            algorithm's ends with "#" and the start of the hash of its settings.
        differs: the settings in which cells of the same labels differ, as "key=value".
        trials: one a seed, in the order of the seeds.
        descriptions: their ``trial.json``.
        twice: a folder that holds the same trial again, and the one that counts; None if there is
            none.
        scores: frozen numbers of the environment; empty if it was changed (``kwargs``), since they
            do not hold for another environment.
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
        """Algorithm and policy in words; the default policy has no name."""
        return cell_name(self.algorithm, self.policy)

    @property
    def has_scale(self) -> bool:
        """Whether there is a frozen random score, and a reference above it."""
        random, references = self.scores.random, self.scores.references
        return bool(random and references and references[0].score > random.mean)


def cells(root: Path) -> list[Cell]:
    """Return the trials below ``root``, grouped by all they have in common but the seed.

    Sorted by labels. A seed that was run twice with the same settings counts once.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    groups: dict[tuple[str, str, str], dict[str, _Seeds]] = {}
    twice: dict[tuple[str, str, str, str], tuple[Path, Path]] = {}
    for trial in find_trials(root):
        description = trial.description()
        labels, spec = description["labels"], description["spec"]
        key = (labels["environment"], labels["algorithm"], labels["policy"])
        seeds = groups.setdefault(key, {}).setdefault(_variant(spec), {})
        known = seeds.get(spec["seed"])
        if known is not None:
            twice[key[0], key[1], key[2], _variant(spec)] = (known[0].path, trial.path)
        if known is None or (trial.is_done and not known[0].is_done):
            seeds[spec["seed"]] = (trial, description)
    files = _environment_files({environment for environment, *_ in groups})
    return [
        replace(_cell(key, variant, variants, files), twice=twice.get((*key, variant)))
        for key, variants in sorted(groups.items())
        for variant in sorted(variants)
    ]


def require_distinct_seeds(found: Sequence[Cell]) -> None:
    """Refuse cells of which a seed was run twice: nobody knows which of the two is meant.

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
    """Return algorithm and policy in words; the default policy has no name."""
    return algorithm if policy == DEFAULT_LABEL else f"{algorithm} {policy}"


def _variant(spec: Json) -> str:
    """Return the hash of a specification without its seed."""
    common = {key: value for key, value in spec.items() if key != "seed"}
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def _environment_files(environments: set[str]) -> dict[str, EnvironmentFile]:
    """Return the files of those environments that have one, by name."""
    names = environments.intersection(environment_names())
    return {name: load_environment(name) for name in sorted(names)}


def _cell(
    key: tuple[str, str, str],
    variant: str,
    variants: dict[str, _Seeds],
    files: dict[str, EnvironmentFile],
) -> Cell:
    environment, algorithm, policy = key
    seeds = variants[variant]
    trials, descriptions = zip(*(seeds[seed] for seed in sorted(seeds)), strict=True)
    spec = descriptions[0]["spec"]
    twins = [next(iter(seeds.values()))[1]["spec"] for seeds in variants.values()]
    return Cell(
        environment=environment,
        algorithm=algorithm if len(twins) == 1 else f"{algorithm} #{variant[:VARIANT_DIGITS]}",
        policy=policy,
        differs=_differing(spec, twins),
        trials=trials,
        descriptions=descriptions,
        scores=_scores(files.get(environment), spec["environment"]["kwargs"]),
    )


def _differing(spec: Json, twins: Sequence[Json]) -> tuple[str, ...]:
    """Return the settings of ``spec``, without the seed, that are not the same in all ``twins``."""
    flat = [flatten(twin) for twin in twins]
    return tuple(
        f"{key}={json.dumps(value)}"
        for key, value in flatten(spec).items()
        if key != "seed" and any(key not in other or other[key] != value for other in flat)
    )


def _scores(file: EnvironmentFile | None, kwargs: Json) -> Scores:
    return file.scores if file is not None and file.kwargs == kwargs else Scores()
