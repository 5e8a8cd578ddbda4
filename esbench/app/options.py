"""The options of functions that open a grid, stated once, and what the command line reads of them.

A function says what its options are: their names, types and defaults in its signature, their
meaning in the section ``Args`` of its docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from esbench.core.errors import UsageError, require_flag, require_integer, shown
from esbench.core.files import as_path, require_path

if TYPE_CHECKING:
    from esbench.core.settings import Table
    from esbench.experiment.trials import Trial
    from esbench.grids.grid_file import Grid

Statistic: TypeAlias = Literal["mean", "tail", "area"]
Which: TypeAlias = Literal["last", "best"]
EngineName: TypeAlias = Literal["local", "ray"]
GridLike: TypeAlias = "str | Path | Table | None"

Given = ParamSpec("Given")
Result = TypeVar("Result")

RENAMED: Final = {"set": "overrides", "in_": "folder"}
ARGS: Final = "\n\nArgs:\n"
SHARED: Final = "grid: and shared options."  # replaced by their texts


class GridOptions(TypedDict, total=False):
    """Options that change a grid.

    Args:
        grid: the name of a grid, or a grid file (TOML); in Python also its content as a table.
        env: environments; replace those of the grid.
        algorithm: algorithms; replace those of the grid.
        seeds: seeds, such as 0-9 or 0,2,5.
        env_steps: environment steps of training per trial.
        overrides: settings of the grid to override, such as budget.env_steps=1000.
        device: device of a convolutional policy; short for ``overrides`` policy.device=...
    """

    env: str | Sequence[str]
    algorithm: str | Sequence[str]
    seeds: str | int | Sequence[int] | None
    env_steps: int | None
    overrides: str | Sequence[str]
    device: Literal["cpu", "cuda"] | None


class TrialOptions(GridOptions, total=False):
    """Options of the trials of a grid.

    Args:
        out: output folder (default: results/runs/NAME).
        extend: continue trials with a smaller budget up to the new one.
        shard: only part I of N; all parts have about the same cost and their own folders (default:
            results/runs/NAME-shards/NAME-I-of-N).
    """

    out: str | Path | None
    extend: bool
    shard: str | None


class WorkerOptions(TypedDict, total=False):
    """Options of the processes that play episodes.

    Args:
        workers: worker processes (default: one per core); results do not depend on it.
        at_once: concurrent trials (default: as many as share the workers evenly); results do not
            depend on it.
    """

    workers: int | None
    at_once: int | None


class RunOptions(TrialOptions, WorkerOptions, total=False):
    """All options of a run that other functions have too.

    Args:
        engine: where episodes are played; results do not depend on it.
        address: head of the Ray cluster to use (default: a local Ray on this machine).
        allow_mixed: also use nodes with other versions, processors or user code; marks trials
            inexact.
    """

    engine: EngineName
    address: str | None
    allow_mixed: bool


class TuneOptions(GridOptions, WorkerOptions, total=False):
    """Options of a search that a run has too."""


def takes(options: Any) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Show shared options in the signature and the docstring of a function.

    It receives them as keywords, which ``options``, one of the classes above, types.
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        own = inspect.signature(function)
        first, *others = (each for each in own.parameters.values() if each.kind != each.VAR_KEYWORD)
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(annotation.__forward_arg__),
                annotation=annotation.__forward_arg__,
            )
            for name, annotation in options.__annotations__.items()
        ]
        signature = own.replace(parameters=[first, *shared, *others])

        @functools.wraps(function)
        def with_options(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            refuse_old_names(kwargs)
            signature.bind(*args, **kwargs)
            return function(*args, **kwargs)

        described: Any = with_options
        described.__signature__ = signature
        described.__doc__ = _documented(function, [each.name for each in shared])
        return with_options

    return decorate


def _documented(function: object, shared: Sequence[str]) -> str:
    """The docstring of a function, with the texts of the grid and of shared options."""
    known: dict[str, str] = {}
    for options in (GridOptions, TrialOptions, WorkerOptions, RunOptions):
        known |= argument_texts(options)
    lines = "".join(f"    {name}: {known[name]}\n" for name in ("grid", *shared))
    return (inspect.getdoc(function) or "").replace(f"    {SHARED}\n", lines)


def _default(annotation: str) -> Any:
    if annotation == "EngineName":
        return "local"
    if annotation == "bool":
        return False
    return None if "None" in annotation else ()


def refuse_old_names(names: Collection[str]) -> None:
    """Raises UsageError for an argument by the name that it had before."""
    for old in RENAMED.keys() & set(names):
        raise UsageError(f"{old}: expected {RENAMED[old]}, the new name of this argument")


def argument_texts(documented: object) -> dict[str, str]:
    """The text of each argument in the section ``Args`` of a docstring, on one line.

    "as ``run``." stands for the text of that function's argument of the same name.
    """
    import esbench

    _, _, section = (inspect.getdoc(documented) or "").partition(ARGS)
    section = re.split(r"\n(?=\S)", section)[0]
    found = re.finditer(r"^    (\w+): (.*(?:\n {5,}\S.*)*)", section, re.MULTILINE)
    texts = {match[1]: " ".join(match[2].split()) for match in found}
    for name, text in texts.items():
        if other := re.fullmatch(r"as ``(\w+)``\.", text):
            texts[name] = argument_texts(getattr(esbench, other[1]))[name]
    return texts


def open_trials(
    grid: GridLike,
    options: TrialOptions,
    keep: int = 1,
    record: bool = False,
) -> tuple[Path, list[Trial]]:
    """The output folder of a grid and its trials, checked against what the folder holds."""
    from esbench.experiment.trials import open_grid

    extend, out = options.get("extend", False), options.get("out")
    require_flag("extend", extend)
    return open_grid(
        _grid(grid),
        **_changes(options),
        out=None if out is None else as_path("out", out),
        extend=extend,
        keep=keep,
        record=record,
        shard=options.get("shard"),
    )


def compose(grid: GridLike, options: GridOptions) -> tuple[Grid, str]:
    """A grid with its changes, and its source."""
    from esbench.grids.compose import compose_grid

    return compose_grid(_grid(grid), **_changes(options))


def _grid(grid: GridLike) -> str | Table | None:
    if grid is None or isinstance(grid, dict):
        return grid
    require_path("grid", grid)
    return str(grid)


def _changes(options: GridOptions) -> dict[str, Any]:
    seeds = options.get("seeds")
    return {
        "environments": texts("env", options.get("env")),
        "algorithms": texts("algorithm", options.get("algorithm")),
        "seeds": seeds if seeds is None or isinstance(seeds, str) else _seeds_text(seeds),
        "env_steps": options.get("env_steps"),
        "overrides": with_device(options.get("overrides"), options.get("device")),
    }


def with_device(overrides: str | Sequence[str] | None, device: str | None) -> list[str]:
    """The overrides and that of the device; UsageError if there is no such device."""
    if device not in {None, "cpu", "cuda"}:
        raise UsageError(f"device = {shown(device)}: expected 'cpu' or 'cuda'")
    if device == "cuda":
        from esbench.policies.kernels.device import require_device

        require_device("cuda")  # before the policy is checked, which might not support it
    given = texts("overrides", overrides)
    return [*given, *([] if device is None else [f"policy.device={device}"])]


def texts(name: str, value: str | Sequence[str] | None) -> list[str]:
    """A text or several as a list; UsageError, which names the argument, for anything else."""
    values = [value] if isinstance(value, str) else () if value is None else value
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise UsageError(f"{name} = {shown(value)}: expected text, or a list of texts")
    return list(values)


def _seeds_text(seeds: int | Sequence[int]) -> str:
    from esbench.core.seeding import LARGEST_SEED

    given: object = [seeds] if isinstance(seeds, Integral) else seeds
    if not isinstance(given, Iterable):
        raise UsageError(f"seeds = {shown(seeds)}: expected an integer, a list of them or text")
    if not (numbers := list(given)):
        raise UsageError(f"seeds = {shown(seeds)}: expected one integer or more")
    for number in numbers:
        require_integer("seeds", number, 0, LARGEST_SEED)
    return ",".join(map(str, numbers))


def renamed(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Name the new name of an argument to a caller that gives the old one."""

    @functools.wraps(function)
    def with_new_names(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        refuse_old_names(kwargs)
        return function(*args, **kwargs)

    return with_new_names
