"""Stored trials, grouped by all they have in common but the seed: one row of a table, one curve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from esbench.grids.trial_spec import DEFAULT_LABEL, TrialSpec, flatten
from esbench.settings import parse
from esbench.store.defaults import completed_if_known
from esbench.store.trial_folder import TrialFolder, find_trials

VARIANT_DIGITS: Final = 6
_Labels: TypeAlias = tuple[str, str, str]  # of environment, algorithm and policy
_Member: TypeAlias = tuple[TrialFolder, Json]
_Seeds: TypeAlias = dict[int, _Member]


@final
@dataclass(frozen=True)
class Cell:
    """The trials that differ in nothing but the seed: one row, one curve.

    Attributes:
        environment, algorithm, policy: labels. Where several cells have the same three, the
            algorithm's ends with "#" and the start of the hash of its settings, as this version of
            esbench knows them.
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

    Sorted by labels. A seed that was run twice with the same settings counts once. A setting that
    is newer than a trial has its default.

    Raises:
        UsageError: there is no trial, or one is not readable.
    """
    alike: dict[_Labels, list[_Member]] = {}
    for trial in find_trials(root):
        description = trial.description()
        labels = description["labels"]
        key = (labels["environment"], labels["algorithm"], labels["policy"])
        alike.setdefault(key, []).append((trial, description))
    files = _environment_files({environment for environment, *_ in alike})
    return [
        cell for key, members in sorted(alike.items()) for cell in _cells_of(key, members, files)
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


def _cells_of(
    key: _Labels, members: Sequence[_Member], files: dict[str, EnvironmentFile]
) -> Iterator[Cell]:
    """Yield the cells of these labels, sorted by the hash of their settings."""
    if len({_variant(description["spec"]) for _, description in members}) > 1:
        # Trials of an older esbench may lack settings that others have, and differ in nothing else.
        whole: dict[str, Json] = {}
        members = [(trial, _completed(description, whole)) for trial, description in members]
    variants: dict[str, _Seeds] = {}
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
    for variant in sorted(variants):
        yield replace(_cell(key, variant, variants, files), twice=twice.get(variant))


def _completed(description: Json, known: dict[str, Json]) -> Json:
    """Return a description with the defaults of settings that are newer than it.

    Args:
        description: of a trial.
        known: completed specifications by variant, which this adds to.
    """
    spec = description["spec"]
    if (variant := _variant(spec)) not in known:
        whole = completed_if_known(parse(TrialSpec, spec, "specification"))
        known[variant] = whole.model_dump(mode="json")
    return {**description, "spec": known[variant] | {"seed": spec["seed"]}}


def _cell(
    key: _Labels,
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
