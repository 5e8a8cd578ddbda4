"""Compose a grid: a named one, a file or a table, with the options of the command line on top."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from esbench.core.errors import MissingPackageError, UsageError, suggestion, unknown
from esbench.core.files import safe_name
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import Table
from esbench.environments.make_environment import require_package
from esbench.grids.bases import base_of, on_bases
from esbench.grids.environment_files import environment_table, load_environment
from esbench.grids.grid_file import Grid, parse_grid, read_grid, with_tables
from esbench.grids.trial_spec import is_agent, trainer_settings

Path: TypeAlias = tuple[str, ...]
"""The parts of a dotted key."""

MOST_SEEDS: Final = 100_000
KEY_PART: Final = r'(?:"([^"]+)"|([^.\s"]+))'
# Keys of a grid that the table of one environment or of one algorithm may have too.
OF_ENVIRONMENT: Final = frozenset({"algorithms", "budget", "evaluation", "policy", "seeds"})
OF_ALGORITHM: Final = frozenset({"environments", "policy", "seeds"})


def compose_grid(
    grid: str | Table | None,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
    skip: Sequence[str] = (),
    defaults: bool = False,
) -> tuple[Grid, str]:
    """A grid with changes, and its source.

    Args:
        grid: named grid, TOML file or table; None composes a grid from the other arguments.
        environments: replace the grid's environments.
        algorithms: replace the grid's algorithms, which keep their settings.
        seeds: such as "0-9"; replace the grid's seeds.
        env_steps: short for ``budget.env_steps=N``.
        overrides: ``key.sub=value``, applied in order.
        skip: environments and algorithms to leave out.
        defaults: inherit no tuned settings from the environments' files.

    Raises:
        UsageError: a name, key or value is wrong.
    """
    if isinstance(grid, dict):
        table, source = with_tables({"name": "python", **grid}, "grid"), "grid"
    elif grid is not None:
        table, source = read_grid(grid)
    elif environments and algorithms:
        name = safe_name("+".join([*environments, *algorithms]))
        table, source = {"name": name}, "command line"
    else:
        raise UsageError(
            "nothing to run: name a grid (esbench list grids), or give --env and --algorithm"
        )
    for environment in environments:
        environment_table(environment)  # an unknown name is reported before anything else
    changes = [_assignment(each) for each in overrides]
    if seeds is not None:
        changes.append((("seeds",), parse_seeds(seeds)))
    if env_steps is not None:
        changes.append((("budget", "env_steps"), env_steps))
    _require_distinct_keys([path for path, _ in changes], environments, algorithms)
    unused: set[str] = set()
    if environments:
        unused = {*table.get("environment", {})} - {path[1] for path, _ in changes if path[1:]}
        table = {**table, "environments": list(environments)}
    if algorithms:
        table = _chosen(table, algorithms, source)
    table = _changed(table, changes)
    if skip:
        table = _skipped(table, skip, source)
        unused |= {*table.get("environment", {})} - {*table["environments"]}
    if defaults:
        table = {**table, "defaults": True}
    if not isinstance(grid, dict | None) and changes:
        source += " with these options"
    typed = parse_grid(table, source, unused)
    _require_effect([path for path, _ in changes], typed)
    return typed, source


def _require_effect(paths: Sequence[Path], grid: Grid) -> None:
    """Raises UsageError if an option is about the policies of searches, and there is no search."""
    names = [str(own.get("algorithm", label)) for label, own in grid.algorithms.items()]
    of_policies = (
        path
        for path in paths
        if path[0] == "policy" or (path[0] == "environment" and path[2:3] == ("policy",))
    )
    path = next(of_policies, None)
    if path and all(map(is_agent, names)):
        raise UsageError(
            f"--set {'.'.join(path)}: this grid has only agents ({', '.join(names)}), which make "
            f"their own policies; expected a setting of algorithms.{next(iter(grid.algorithms))}"
        )


def missing_packages(grid: Grid) -> dict[str, str]:
    """Why environments and algorithms of a grid lack a package, by their names."""
    found: dict[str, str] = {}
    for name in grid.environments:
        try:
            require_package(load_environment(name).id)
        except MissingPackageError as error:
            found[name] = str(error)
    for label, settings in grid.algorithms.items():
        try:
            trainer_settings(settings.get("algorithm", label))
        except MissingPackageError as error:
            found[label] = str(error)
    return found


def _skipped(table: Table, names: Sequence[str], source: str) -> Table:
    """The grid without some of its environments and algorithms; UsageError if none is left."""
    environments, algorithms = list(table.get("environments", [])), {**table.get("algorithms", {})}
    for name in names:
        if name not in (known := [*environments, *algorithms]):
            raise unknown(f"name to skip in {source}", name, known)
    left = [name for name in environments if name not in names]
    others = [label for label in algorithms if label not in names]
    if not left or not others:
        raise UsageError(f"{source}: nothing to run without {', '.join(names)}; expected fewer")
    return {**_chosen(table, others, source), "environments": left}


def _assignment(text: str) -> tuple[Path, Any]:
    """The key and the value of "key.sub=value"; a value that is not TOML is a text."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not re.fullmatch(rf"{KEY_PART}(\.{KEY_PART})*", key):
        raise UsageError(f"--set {text!r}: expected key.sub=value, such as budget.env_steps=1000")
    path = tuple(quoted or plain for quoted, plain in re.findall(KEY_PART, key))
    if path[0] not in Grid.model_fields:
        raise UsageError(
            f"--set {text!r}: unknown key {path[0]!r}; {suggestion(path[0], Grid.model_fields)} "
            "(a setting of an algorithm is algorithms.NAME.KEY)"
        )
    try:
        found = tomllib.loads(f"value = {value.strip()}")
    except (ValueError, RecursionError):
        return path, value.strip()
    return path, found["value"] if len(found) == 1 else value  # else there is a second line


def _require_distinct_keys(
    paths: Sequence[Path], environments: Sequence[str], algorithms: Sequence[str]
) -> None:
    short: list[Path] = [("environments",)] if environments else []
    short += [("algorithms",)] if algorithms else []
    for path, times in Counter([*paths, *short]).items():
        if times > 1:
            raise UsageError(f"{'.'.join(path)} is set twice; expected one option that sets it")


def _chosen(table: Table, names: Sequence[str], source: str) -> Table:
    """The grid with these algorithms only, which keep their settings.

    Refuses the name of an algorithm to which the grid gives settings under other labels only.
    """
    for name, times in Counter(names).items():
        if times > 1:
            raise UsageError(f"--algorithm {name!r} is given {times} times; expected once")
    own: Table = table.get("algorithms", {})
    for name in names:
        labels = [label for label, settings in own.items() if settings.get("algorithm") == name]
        if labels and name not in own:
            expected = " or ".join(map(repr, labels))
            raise UsageError(
                f"--algorithm {name!r} has settings under another label in {source}; expected "
                f"{expected}"
            )
    left_out = own.keys() - set(names)
    # A base that stays is a base of what --set makes of it.
    starting = [name for name in names if name in own and base_of(name, own) in left_out]
    own, tables = on_bases(own, table.get("environment", {}), starting)
    environment = {
        name: {
            key: _without(value, left_out) if key == "algorithms" else value
            for key, value in changes.items()
        }
        for name, changes in tables.items()
    }
    return {
        **table,
        "algorithms": {name: own.get(name, {}) for name in names},
        "environment": environment,
        "tune": _without(table.get("tune", {}), left_out),
    }


def _without(table: Any, keys: set[str]) -> Any:
    if not isinstance(table, dict):
        return table  # refused by the types
    return {key: value for key, value in table.items() if key not in keys}


def _changed(table: Table, changes: Sequence[tuple[Path, Any]]) -> Table:
    """The grid with these values, the shortest key first; none may add an algorithm to it."""
    result: Table = _copied(table)
    labels = [*result.get("algorithms", ())]
    for path, value in sorted(changes, key=lambda change: len(change[0])):
        _put(result, path, value)
        for own in _own_tables(result, path[0]):
            _replace(own, path, value, result)
        if path == ("algorithms",):
            labels = [*value] if isinstance(value, dict | list) else []
    for label in result.get("algorithms", ()) if labels else ():
        if label not in labels:
            near = suggestion(label, labels)
            if dotted := [name for name in labels if "." in name]:
                near += f"; a name with dots needs quotes: 'algorithms.\"{dotted[0]}\".KEY=VALUE'"
            raise UsageError(f"algorithms.{label} (--set) is not in this grid; {near}")
    return result


def _copied(value: Any) -> Any:
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _own_tables(table: Table, key: str) -> Iterator[Table]:
    """The tables of single environments and algorithms that have a key of the grid too.

    ``policy`` is a setting of its own in the table of an agent.
    """
    for name, replaceable in (("environment", OF_ENVIRONMENT), ("algorithms", OF_ALGORITHM)):
        tables = table.get(name)
        if key not in replaceable or not isinstance(tables, dict):
            continue
        for label, own in tables.items():
            if not isinstance(own, dict) or key not in own:
                continue
            if not (name == "algorithms" and key == "policy" and _of_agent(label, own)):
                yield own


def _of_agent(label: str, own: Table) -> bool:
    with contextlib.suppress(UsageError):  # an unknown algorithm is reported later
        return is_agent(str(own.get("algorithm", label)))
    return False


def _replace(own: Table, path: Path, value: Any, grid: Table) -> None:
    """Makes a value of the grid that of one environment or algorithm, which has its first key."""
    *above, last = path
    if path == ("policy", "template"):
        del own["policy"]  # the settings of another template
    elif path[0] == "policy" and above:
        _put(own, path, value)  # a policy with a template inherits nothing
    else:
        place: Any = own
        for key in above:
            place = place.get(key) if isinstance(place, dict) else None
        for name in {last, *_alternatives(grid, path)}:
            if isinstance(place, dict):  # others are refused by the types
                place.pop(name, None)


def _alternatives(grid: Table, path: Path) -> set[str]:
    """The settings that cannot be given together with algorithms.LABEL.SETTING."""
    if path[0] != "algorithms" or len(path) != 3:
        return set()
    name = grid.get("algorithms", {}).get(path[1], {}).get("algorithm", path[1])
    with contextlib.suppress(UsageError):  # an unknown algorithm is reported later
        groups = trainer_settings(str(name)).alternatives
        return {each for group in groups if path[2] in group for each in group}
    return set()


def _put(table: Table, path: Path, value: Any) -> None:
    """Sets the value at ``path``, in new tables where there are none."""
    *above, last = path
    place = table
    for key in above:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise UsageError(f"--set {'.'.join(path)}: {key} = {place!r} is a value, not a table")
    place[last] = value


def parse_seeds(text: str, option: str = "--seeds") -> list[int]:
    """The seeds of "0-9", "3" or "0,2,5-7"; UsageError for text that is not of that form.

    ``option`` is its name for messages.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,20})(?:\s*-\s*(\d{1,20}))?\s*", part)
        if not match:
            raise UsageError(f"{option} {text!r}: expected seeds such as 3, 0-9 or 0,2,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > LARGEST_SEED or len(seeds) + last - first >= MOST_SEEDS:
            raise UsageError(
                f"{option} {text!r}: expected rising seeds up to {LARGEST_SEED}, at most "
                f"{MOST_SEEDS}"
            )
        seeds += range(first, last + 1)
    return seeds
