"""Compose a grid: a named one or a file, with the options of the command line on top."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from esbench.core.errors import UsageError, suggestion
from esbench.core.files import safe_name
from esbench.core.seeding import LARGEST_SEED
from esbench.core.settings import MOST_LEVELS, Table, require_shallow
from esbench.grids.environment_files import environment_table
from esbench.grids.grid_file import (
    Grid,
    parse_grid,
    read_grid,
    require_distinct,
    require_tables,
)
from esbench.grids.trainers import is_agent, trainer_settings

MOST_SEEDS: Final = 100_000
KEY_PART: Final = r'(?:"([^"]+)"|([^.\s"]+))'
# Keys of a grid that the table of one environment or of one algorithm may have too.
OF_ENVIRONMENT: Final = frozenset({"algorithms", "budget", "evaluation", "policy", "seeds"})
OF_ALGORITHM: Final = frozenset({"environments", "policy", "seeds"})
LONGEST_SEED: Final = 20  # digits that are read; more than ten are too many anyway


def compose_grid(
    grid: str | Table | None,
    environments: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    seeds: str | None = None,
    env_steps: int | None = None,
    overrides: Sequence[str] = (),
) -> tuple[Grid, str]:
    """A grid with the options of ``esbench.experiment.trials.open_grid``, and its source.

    UsageError if a name, key or value is wrong.
    """
    table: Table
    if isinstance(grid, dict):
        table, source = {"name": "python", **grid}, "grid"
        require_tables(table, source)
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
    unused: list[str] = []
    if environments:
        changed = [_split_key(assignment.partition("=")[0].strip())[:2] for assignment in overrides]
        unused = [n for n in table.get("environment", {}) if ["environment", n] not in changed]
        table = {**table, "environments": list(environments)}
    if algorithms:
        try:
            require_distinct(algorithms)
        except ValueError as error:
            raise UsageError(f"--algorithm {error}") from None
        own = table.get("algorithms")
        settings: Table = own if isinstance(own, dict) else {}
        _require_labels(algorithms, settings, source)
        table = {**table, "algorithms": {name: settings.get(name, {}) for name in algorithms}}
        table = _without_settings_of(table, settings.keys() - set(algorithms))
        if "tune" in table:
            table["tune"] = {k: v for k, v in table["tune"].items() if k in algorithms}
    short = {
        "environments": "--env" if environments else "",
        "algorithms": "--algorithm" if algorithms else "",
        "seeds": "" if seeds is None else f"--seeds {seeds}",
        "budget.env_steps": "" if env_steps is None else f"--env-steps {env_steps}",
    }
    require_distinct_keys(overrides, short)
    if seeds is not None:
        table = apply_override(table, f"seeds={parse_seeds(seeds)}")
    if env_steps is not None:
        table = apply_override(table, f"budget.env_steps={env_steps}")
    table = _apply_overrides(table, overrides)
    if not isinstance(grid, dict | None) and (overrides or (seeds, env_steps) != (None, None)):
        source += " with these options"
    require_tables(table, source)
    return parse_grid(table, source, unused), source


def _require_labels(names: Sequence[str], tables: Table, source: str) -> None:
    """Refuses the name of an algorithm to which the grid gives settings under other labels only."""
    for name in names:
        labels = [
            label
            for label, table in tables.items()
            if isinstance(table, dict) and table.get("algorithm") == name
        ]
        if labels and name not in tables:
            expected = " or ".join(map(repr, labels))
            raise UsageError(
                f"--algorithm {name!r} has settings under another label in {source}; expected "
                f"{expected}"
            )


def _without_settings_of(table: Table, left_out: Collection[str]) -> Table:
    """A raw grid without what its environments set for some algorithms."""
    environments = table.get("environment")
    if not isinstance(environments, dict):
        return table
    kept = {}
    for name, changes in environments.items():
        own = changes.get("algorithms") if isinstance(changes, dict) else None
        if isinstance(own, dict):
            own = {label: each for label, each in own.items() if label not in left_out}
            changes = {**changes, "algorithms": own}
        kept[name] = changes
    return {**table, "environment": kept}


def _apply_overrides(table: Table, assignments: Sequence[str]) -> Table:
    """Applies every ``--set``; none may add an algorithm to the grid.

    They are applied in order, but a policy for all is set before the policies of single
    environments and algorithms, which it would remove.
    """
    labels = table.get("algorithms")
    for assignment in sorted(assignments, key=lambda each: not _sets_policy_of_all(each)):
        table = apply_override(table, assignment)
        if assignment.partition("=")[0].strip() == "algorithms":
            labels = table["algorithms"]
    now = table.get("algorithms")
    if labels and isinstance(labels, dict | list) and isinstance(now, dict):
        known = [label for label in labels if isinstance(label, str)]
        for label in now:
            if label not in known:
                near = suggestion(label, known)
                if dotted := [name for name in known if "." in name]:
                    near += (
                        f"; a name with dots needs quotes: 'algorithms.\"{dotted[0]}\".KEY=VALUE'"
                    )
                raise UsageError(f"algorithms.{label} (--set) is not in this grid; {near}")
    return table


def _sets_policy_of_all(assignment: str) -> bool:
    return _split_key(assignment.partition("=")[0].strip()) in (["policy"], ["policy", "template"])


def require_distinct_keys(
    assignments: Sequence[str], short: Mapping[str, str] | None = None
) -> None:
    """Raises UsageError if a ``--set`` replaces what another one or a short option has set.

    ``short`` has the options in use by the key that they set; an empty one is not in use.
    """
    options = short or {}
    seen = {tuple(key.split(".")): option for key, option in options.items() if option}
    for assignment in assignments:
        key = tuple(_split_key(assignment.partition("=")[0].strip()))
        for other in seen:
            if key and other[: len(key)] == key:
                name = ".".join(other)
                if key == other:
                    raise UsageError(
                        f"{name} is set twice, by {seen[other]!r} and {assignment!r}; expected once"
                    )
                raise UsageError(
                    f"{assignment!r} would replace {name}, which {seen[other]!r} sets; expected "
                    f"one --set {'.'.join(key)}.KEY=VALUE for each key"
                )
        seen[key] = assignment


def _alternatives(table: Table, path: Sequence[str]) -> set[str]:
    """The settings that cannot be given together with that of algorithms.LABEL.SETTING."""
    if len(path) != 3 or path[0] != "algorithms":
        return set()
    algorithms = table.get("algorithms")
    own = algorithms.get(path[1]) if isinstance(algorithms, dict) else None
    name = own.get("algorithm", path[1]) if isinstance(own, dict) else path[1]
    with contextlib.suppress(UsageError):  # an unknown algorithm is reported later
        groups = trainer_settings(str(name)).alternatives
        return {each for group in groups if path[2] in group for each in group}
    return set()


def apply_override(table: Table, assignment: str) -> Table:
    """The content of a grid with one ``--set key.sub=value`` applied.

    The value is read as TOML (0, false, [32, 32], "text"), or as a string if it is not TOML. It
    also replaces the setting where the grid gives it for a single environment or algorithm.
    UsageError if there is no "=" or no key.
    """
    key, equals, text = assignment.partition("=")
    path = _split_key(key.strip())
    if not equals or not path:
        raise UsageError(
            f"--set {assignment!r}: expected key.sub=value, such as budget.env_steps=1000"
        )
    if len(path) > MOST_LEVELS:
        raise UsageError(
            f"--set {assignment!r}: a key of {len(path)} parts; expected at most {MOST_LEVELS}"
        )
    _require_key_of_grid(table, assignment, path)
    value = _value(text, assignment)
    result = copy.deepcopy(table)
    gone = {path[-1], *_alternatives(table, path)}
    for own in _own_tables(result, path[0]):
        _remove(own, path, gone)
        policy = own.get("policy")
        if path[0] == "policy" and isinstance(policy, dict) and "template" in policy:
            _put(own, path, value, assignment)  # a policy with a template inherits nothing
    _put(result, path, value, assignment)
    return result


def _own_tables(table: Table, key: str) -> Iterator[Table]:
    """The tables of single environments and algorithms that may replace a key of the grid.

    ``policy`` is a setting of its own in the table of an agent.
    """
    for name, replaceable in (("environment", OF_ENVIRONMENT), ("algorithms", OF_ALGORITHM)):
        tables = table.get(name)
        if key not in replaceable or not isinstance(tables, dict):
            continue
        for label, own in tables.items():
            if not isinstance(own, dict):
                continue
            if name == "algorithms" and key == "policy" and _of_agent(label, own):
                continue
            yield own


def _of_agent(label: str, own: Table) -> bool:
    with contextlib.suppress(UsageError):  # an unknown algorithm is reported later
        return is_agent(str(own.get("algorithm", label)))
    return False


def _remove(own: Table, path: Sequence[str], gone: Collection[str]) -> None:
    """Removes the keys ``gone`` beside ``path``; a new template removes the whole policy."""
    if list(path) == ["policy", "template"] and isinstance(own.get("policy"), dict):
        del own["policy"]
    place: Any = own
    for key in path[:-1]:
        place = place.get(key, {}) if isinstance(place, dict) else {}
    if isinstance(place, dict):
        for name in gone:
            place.pop(name, None)


def _put(table: Table, path: Sequence[str], value: Any, assignment: str) -> None:
    """Sets the value at ``path``, in new tables where there are none."""
    *above, last = path
    place = table
    for key in above:
        if key == "algorithms" and isinstance(place.get(key), list):
            place[key] = {name: {} for name in place[key]}
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise UsageError(f"--set {assignment!r}: {key} = {place!r} is a value, not a table")
    place[last] = copy.deepcopy(value)


def _value(text: str, assignment: str) -> Any:
    try:
        value = _toml_value(text.strip())
    except (ValueError, RecursionError):  # more digits or brackets than Python reads
        raise UsageError(
            f"--set {assignment!r}: expected at most {sys.get_int_max_str_digits()} digits and "
            f"{MOST_LEVELS} brackets inside each other"
        ) from None
    require_shallow(value, f"--set {assignment!r}")
    return value


def _require_key_of_grid(table: Table, assignment: str, path: Sequence[str]) -> None:
    """Raises UsageError, with the full key, for a setting of an algorithm without its table."""
    first = path[0]
    if first in Grid.model_fields:
        return
    given = table.get("algorithms")
    algorithms = list(given) if isinstance(given, dict | list) else []
    if first in algorithms:
        raise UsageError(f"--set {assignment!r}: expected algorithms.{'.'.join(path)}")
    if len(path) == 1 and algorithms:
        raise UsageError(
            f"--set {assignment!r}: unknown key {first!r}; expected algorithms.{algorithms[0]}."
            f"{first} for a setting of an algorithm, or a key of the grid; "
            f"{suggestion(first, Grid.model_fields)}"
        )


def parse_seeds(text: str, option: str = "--seeds") -> list[int]:
    """The seeds of "0-9", "3" or "0,2,5-7"; UsageError for text that is not of that form.

    ``option`` is its name for messages.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise UsageError(f"{option} {text!r}: expected seeds such as 3, 0-9 or 0,2,5-7")
        first, last = (int(digits[:LONGEST_SEED]) for digits in (match[1], match[2] or match[1]))
        if last > LARGEST_SEED or len(seeds) + last - first >= MOST_SEEDS:
            raise UsageError(
                f"{option} {text!r}: expected at most {MOST_SEEDS} seeds, at most {LARGEST_SEED}"
            )
        if last < first:
            raise UsageError(
                f"{option} {text!r}: {first}-{last} runs backwards; expected {last}-{first}"
            )
        seeds += range(first, last + 1)
    return seeds


def _split_key(key: str) -> list[str]:
    """The parts of a dotted TOML key, in which one with dots is quoted; none if it is wrong."""
    if not re.fullmatch(rf"{KEY_PART}(\.{KEY_PART})*", key):
        return []
    return [quoted or plain for quoted, plain in re.findall(KEY_PART, key)]


def _toml_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text  # else there is a second line
