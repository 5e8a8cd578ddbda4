"""How public functions state and check their options, and the options of grids.

A function says what its options are once: their names, types and defaults in its signature, their
meaning in the section ``Args`` of its docstring. The command line is made of these.
"""

from __future__ import annotations

import builtins
import errno
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    final,
    get_args,
    get_origin,
)

from esbench.core.errors import UsageError, shown

if TYPE_CHECKING:
    from esbench.experiment.trials import Trial
    from esbench.grids.grid_file import Grid
    from esbench.grids.trial_spec import TrialSpec

Statistic: TypeAlias = Literal["mean", "tail", "area"]
Which: TypeAlias = Literal["last", "best"]
Pick: TypeAlias = Literal["median", "worst"]
EngineName: TypeAlias = Literal["local", "ray"]
GridLike: TypeAlias = str | Path | dict[str, Any] | None
Texts: TypeAlias = str | Sequence[str]
TextsOrTypes: TypeAlias = str | type | Sequence[str | type]

Given = ParamSpec("Given")
Result = TypeVar("Result")

TOO_LONG: Final = "is too long for the name of a file"
ARGS: Final = "\n\nArgs:\n"
RENAMED: Final = {"set": "overrides", "in_": "folder"}
SHARED: Final = "grid: and shared options."  # replaced by their texts
WORDS: Final[dict[Any, str]] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    Path: "a path",
    str: "text",
    dict: "a table",
    type: "a class",
    Sequence: "a list",
    NoneType: "None",
}


class GridOptions(TypedDict, total=False):
    """Options that change a grid.

    Args:
        grid: the name of a grid, or a grid file (TOML); in Python also its content as a table.
        env: environments; replace those of the grid.
        algorithm: algorithms; replace those of the grid. In Python also classes.
        seeds: seeds, such as 0-9 or 0,2,5.
        env_steps: environment steps of training per trial.
        overrides: settings of the grid to override, such as budget.env_steps=1000.
        skip: environments and algorithms to leave out.
        defaults: inherit no tuned settings of algorithms from the environments' files.
        device: device of a convolutional policy; short for ``overrides`` policy.device=...
    """

    env: Texts
    algorithm: TextsOrTypes
    seeds: str | int | Sequence[int] | None
    env_steps: int | None
    overrides: Texts
    skip: Texts
    defaults: bool
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
        workers: worker processes (default: one per core), or 0 to play in this process; results do
            not depend on it.
        at_once: concurrent trials (default: as many as share the workers evenly); results do not
            depend on it.
    """

    workers: int | None
    at_once: int | None


class TrustOptions(TypedDict, total=False):
    """Options of data that name code.

    Args:
        trust: also import the code that trials, baselines and leaderboards name, if it is neither
            of esbench nor of Gymnasium; read it first.
    """

    trust: bool


class RunOptions(TrialOptions, WorkerOptions, TrustOptions, total=False):
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


class TuneOptions(GridOptions, WorkerOptions, TrustOptions, total=False):
    """Options of a search that a run has too."""


def public(options: Any = None) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Check the arguments of a function by the types in its signature.

    A function with ``options``, one of the classes above, also shows these in its signature and
    docstring, and receives them as keywords.
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        signature = inspect.signature(function)
        names: Sequence[str] = ()
        if options is not None:
            first, *own = (p for p in signature.parameters.values() if p.kind != p.VAR_KEYWORD)
            shared = [_parameter(name, kind) for name, kind in options.__annotations__.items()]
            signature = signature.replace(parameters=[first, *shared, *own])
            names = [each.name for each in shared]

        @functools.wraps(function)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            for old in RENAMED.keys() & kwargs.keys():
                raise UsageError(f"the argument {old!r} is called {RENAMED[old]!r}")
            kinds = argument_types(checked)
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                if not _is_a(value, kinds[name]):
                    raise UsageError(f"{name} = {shown(value)}: expected {_words(kinds[name])}")
                for path in _paths(value, kinds[name]):
                    if why := _why_no_path(path):
                        raise UsageError(f"{name} = {shown(path)}: expected a path; this {why}")
            try:
                return function(*args, **kwargs)
            except OSError as error:  # a path that is too long with the name of a file in it
                if error.errno != errno.ENAMETOOLONG:
                    raise
                raise UsageError(f"{shown(error.filename)} {TOO_LONG}") from error

        described: Any = checked
        described.__signature__ = signature
        described.__doc__ = _documented(function, names)
        return checked

    return decorate


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    """A shared option as a keyword of a function."""
    kind: str = annotation.__forward_arg__
    default = {"EngineName": "local", "bool": False}.get(kind, None if "None" in kind else ())
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _documented(function: object, shared: Sequence[str]) -> str:
    """The docstring of a function, with the texts of the grid and of shared options."""
    known: dict[str, str] = {}
    for options in (GridOptions, TrialOptions, WorkerOptions, TrustOptions, RunOptions):
        known |= argument_texts(options)
    lines = "".join(f"    {name}: {known[name]}\n" for name in ("grid", *shared))
    return (inspect.getdoc(function) or "").replace(f"    {SHARED}\n", lines)


@final
class _Names(dict[str, Any]):
    """Names of types; those that are not imported at run time can be anything."""

    def __missing__(self, name: str) -> Any:
        return Any


def argument_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each argument in the signature of a function."""
    module = vars(sys.modules[inspect.unwrap(function).__module__])
    known = _Names({**vars(builtins), **globals(), **module})
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: Any if each.kind == each.VAR_KEYWORD else eval(each.annotation, {}, known)
        for each in parameters
    }


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def _is_a(value: object, kind: Any) -> bool:
    """Whether a value is of a type, as an argument: NumPy's numbers are numbers."""
    if len(members(kind)) > 1:
        return any(_is_a(value, each) for each in members(kind))
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inside)
    if origin is Sequence:
        is_list = isinstance(value, Collection) and not isinstance(value, str | bytes | dict)
        return is_list and all(_is_a(each, inside[0]) for each in value)  # type: ignore[attr-defined]
    if origin in {int, float}:
        number = Integral if origin is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    return (origin not in WORDS and origin is not tuple) or isinstance(value, origin)


def _paths(value: Any, kind: Any) -> list[str | Path]:
    """The value of an argument that may be a path, or those of one that may be several."""
    if isinstance(value, str | Path):
        return [value] if Path in members(kind) else []
    inside = [get_args(each)[0] for each in members(kind) if get_origin(each) is Sequence]
    is_list = isinstance(value, Collection) and not isinstance(value, dict)
    return [*value] if is_list and any(Path in members(each) for each in inside) else []


def _why_no_path(value: str | Path) -> str:
    """Why a text is no name of a file, or empty."""
    if value == "":
        return "is empty"  # as of a variable of the shell that is not set
    try:
        os.lstat(value)
    except UnicodeEncodeError:
        return "is not UTF-8"
    except ValueError:
        return "contains a NUL"
    except OSError as error:
        return TOO_LONG if error.errno == errno.ENAMETOOLONG else ""
    return ""


def _words(kind: Any) -> str:
    """A type in words, such as "'last' or 'best'"."""
    found: list[str] = []
    for each in members(kind):
        origin = get_origin(each) or each
        found += map(repr, get_args(each)) if origin is Literal else [WORDS.get(origin, "")]
    if WORDS[Path] in found:
        found.remove(WORDS[str])
    return " or ".join(filter(None, found))


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
    grid: GridLike, options: TrialOptions, keep: int = 1, record: bool = False
) -> tuple[Path, list[Trial]]:
    """The output folder of a grid and its trials, checked against what the folder holds."""
    from esbench.experiment.trials import open_grid

    out = options.get("out")
    return open_grid(
        str(grid) if isinstance(grid, Path) else grid,
        **_changes(options),
        out=None if out is None else Path(out),
        extend=options.get("extend", False),
        keep=keep,
        record=record,
        shard=options.get("shard"),
    )


def skip_missing(grid: GridLike, options: GridOptions) -> list[str]:
    """Make ``options`` skip what lacks a package, and say why; UsageError if nothing is left."""
    from esbench.grids.compose import missing_packages

    typed, _ = compose(grid, options)
    missing = missing_packages(typed)
    for names in (typed.environments, typed.algorithms):
        if not {*names} - {*missing}:
            raise UsageError(missing[next(iter(names))])
    options["skip"] = [*listed(options.get("skip")), *missing]
    return list(missing.values())


def require_trusted_start(specs: Sequence[TrialSpec], options: TrustOptions) -> None:
    """Raises UsageError if the trial that a grid starts from names code that is not trusted.

    All trials of a grid start from the same one. The names in the grid itself are trusted.
    """
    from esbench.experiment.stored_trainer import require_trusted_trials

    trust, starts = options.get("trust", False), [spec for spec in specs[:1] if spec.init_from]
    if trust and not starts:
        raise UsageError("--trust: expected init_from, a trial; a grid is trusted in any case")
    require_trusted_trials([spec.as_json() for spec in starts], "init_from", trust)


def compose(grid: GridLike, options: GridOptions) -> tuple[Grid, str]:
    """A grid with its changes, and its source."""
    from esbench.grids.compose import compose_grid

    return compose_grid(str(grid) if isinstance(grid, Path) else grid, **_changes(options))


def _changes(options: GridOptions) -> dict[str, Any]:
    from esbench.core.arguments import named

    seeds: Any = options.get("seeds")
    if seeds is not None and not isinstance(seeds, str):
        seeds = ",".join(map(str, [seeds] if isinstance(seeds, Integral) else seeds))
    return {
        "environments": listed(options.get("env")),
        "algorithms": named("algorithm", listed(options.get("algorithm"))),
        "seeds": seeds,
        "env_steps": options.get("env_steps"),
        "overrides": with_device(options.get("overrides"), options.get("device")),
        "skip": listed(options.get("skip")),
        "defaults": options.get("defaults", False),
    }


def with_device(overrides: Texts | None, device: str | None) -> list[str]:
    """The overrides and that of the device; UsageError if there is no such device."""
    if device == "cuda":
        from esbench.policies.kernels.device import require_device

        require_device("cuda")  # before the policy is checked, which might not support it
    return [*listed(overrides), *([] if device is None else [f"policy.device={device}"])]


def listed(value: Any) -> list[Any]:
    """A text or a class, or several, as a list."""
    return [value] if isinstance(value, str | type) else [*(value or ())]
