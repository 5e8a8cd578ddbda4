"""The sources of results: each gives cells of runs.

A folder of trials has everything. A file of a baseline or a leaderboard gives the same records: its
runs have ``known_scores``, ``known_digests`` and ``description`` (``spec``, the fields of their
origin, ``command``) instead of a folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from esbench.core.errors import UsageError
from esbench.core.json_text import Json
from esbench.core.settings import parse
from esbench.core.units import counted
from esbench.grids.environment_files import Scores, frozen_scores
from esbench.grids.trial_spec import flatten
from esbench.results.cell import Cell, require_distinct, variant_of
from esbench.results.run import Run, read_run
from esbench.store.find_trials import find_trials

VARIANT_DIGITS: Final = 6


def read_folder(root: Path) -> list[Cell]:
    """The cells of the trials below ``root``, sorted by labels.

    A seed that was run twice with the same settings counts once. UsageError if there is no trial,
    or one cannot be read.
    """
    alike: dict[tuple[str, str, str], list[Run]] = {}
    for folder in find_trials(root):
        run = read_run(folder)
        labels = run.description["labels"]
        key = labels["environment"], labels["algorithm"], labels["policy"]
        alike.setdefault(key, []).append(run)
    return _with_random_scores(
        [cell for labels, runs in sorted(alike.items()) for cell in _cells(labels, runs)]
    )


def load_cells(root: Path) -> list[Cell]:
    """As ``read_folder``; UsageError also as ``require_distinct``."""
    found = read_folder(root)
    require_distinct(found)
    return found


def done_cells(root: Path) -> list[Cell]:
    """As ``load_cells``; raises UsageError also if a trial is not done."""
    found = load_cells(root)
    if undone := unfinished(found):
        raise UsageError(f"{undone}; expected all done: finish the grid first")
    return found


def unfinished(found: Sequence[Cell]) -> str:
    """The number of runs that are not done and the first of them, in words; empty if all are."""
    undone = [run for cell in found for run in cell.runs if not run.done]
    if not undone:
        return ""
    first = undone[0]
    number = counted(len(undone), "trial")
    return f"{number} not done, {first.folder.path} the first ({first.status})"


def _cells(labels: tuple[str, str, str], runs: Sequence[Run]) -> Iterator[Cell]:
    """The cells of runs with the same labels, one for each variant of the settings."""
    environment, label, policy = labels
    variants: dict[str, dict[int, Run]] = {}
    twice: dict[str, tuple[Path, Path]] = {}
    for run in runs:
        variant = variant_of(run.description["spec"])
        seeds = variants.setdefault(variant, {})
        known = seeds.get(run.seed)
        counts = known is None or (run.done and not known.done)
        if counts:
            seeds[run.seed] = run
        if known is not None:
            first, second = (run, known) if counts else (known, run)
            twice[variant] = first.folder.path, second.folder.path
    specs = [next(iter(seeds.values())).description["spec"] for seeds in variants.values()]
    for variant, seeds in sorted(variants.items()):
        chosen = tuple(seeds[seed] for seed in sorted(seeds))
        descriptions = [run.description for run in chosen]
        spec = descriptions[0]["spec"]
        first, *others = (each.get("defaults", ()) for each in descriptions)
        yield Cell(
            environment=environment,
            algorithm=label if len(specs) == 1 else f"{label} #{_settings_hash(spec)}",
            policy=policy,
            runs=chosen,
            label=label,
            frozen=_frozen_scores(chosen),
            differs=_differing(spec, specs),
            inherited=tuple(
                dict.fromkeys(name for each in descriptions for name in each.get("inherited", ()))
            ),
            defaults=tuple(name for name in first if all(name in other for other in others)),
            twice=twice.get(variant),
            scores_differ=len({json.dumps(s) for d in descriptions if (s := d.get("scores"))}) > 1,
        )


def _frozen_scores(runs: Sequence[Run]) -> Scores:
    """The frozen scores that the first run records, if one does: those of ``envs/`` otherwise.

    Only finished runs record that of random actions in an environment without a file. A file that
    was written since takes its place.
    """
    recorded = [(run, own) for run in runs if (own := run.description.get("scores")) is not None]
    found = [
        parse(Scores, own, str(run.folder.path / "trial.json"), "scores") for run, own in recorded
    ]
    random = next((each.random for each in found if each.random), None)
    file = frozen_scores(runs[0].description["spec"]["environment"])
    first = file if all(each.is_measured for each in found) else found[0]
    return first.model_copy(update={"random": first.random or random})


def _with_random_scores(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, each with the score of random actions if a cell of its environment has it."""
    environments = [cell.spec["environment"] for cell in cells]
    keys = [json.dumps([each[k] for k in ("id", "kwargs", "wrappers")]) for each in environments]
    pairs = [*zip(keys, cells, strict=True)]
    known = {key: cell.frozen.random for key, cell in reversed(pairs) if cell.frozen.random}
    return [
        replace(cell, frozen=cell.frozen.model_copy(update={"random": known[key]}))
        if cell.frozen.random is None and key in known
        else cell
        for key, cell in pairs
    ]


def _settings_hash(spec: Json) -> str:
    """The start of the hash of a specification without its seed and its environment's name.

    So a cell has the same label in all environments where its settings are the same.
    """
    environment = {key: value for key, value in spec["environment"].items() if key != "id"}
    return variant_of({**spec, "environment": environment})[:VARIANT_DIGITS]


def _differing(spec: Json, specs: Sequence[Json]) -> tuple[str, ...]:
    """The settings of ``spec``, without the seed, that are not the same in all ``specs``."""
    flat = [flatten(each) for each in specs]
    return tuple(
        f"{key}={json.dumps(value)}"
        for key, value in flatten(spec).items()
        if key != "seed" and any(key not in other or other[key] != value for other in flat)
    )
