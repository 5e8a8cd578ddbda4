"""The progress of running trials as text: aligned rows for a terminal, one line for a log file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from rich.progress import Task
from rich.text import Text

from esbench.core.units import NONE, format_duration, format_number, format_steps
from esbench.store.generation_record import GenerationRecord

# The least width of the values of each column, in characters.
COLUMNS: Final = {
    "budget": 5,
    "gen": 4,
    "return": 8,
    "best": 8,
    "rank": 7,
    "sigma": 6,
    "steps/s": 5,
    "ETA": 11,
}
LEFT_OUT: Final = ("best", "sigma", "rank", "budget", "steps/s", "ETA")  # in this order
ACTIVITY_WIDTH: Final = 14  # "scoring 17/100"


def shown_return(record: GenerationRecord) -> float:
    """The return of the unperturbed policy; the population's mean if it did not play."""
    center, mean = record.center_return, record.population_return_mean
    return mean if math.isnan(center) else center


def progress_cells(task: Task) -> dict[str, str]:
    """The text of each column for a running trial; "-" where there is no value."""
    record: GenerationRecord | None = task.fields["record"]
    best, gained = task.fields["best"], task.completed - task.fields["resumed_from"]
    # The speed leaves out the first generation, which has the start-up in it, until a second ends.
    speed = task.speed or (gained / task.elapsed if gained and task.elapsed else math.nan)
    return {
        "budget": f"{math.floor(task.percentage)} %",
        "gen": "0" if record is None else str(record.generation),
        "return": NONE if record is None else format_number(shown_return(record)),
        "best": NONE if math.isinf(best) else format_number(best),
        "rank": NONE if record is None else _rank(record),
        "sigma": NONE if record is None else format_number(record.sigma),
        "steps/s": format_steps(speed),
        "ETA": format_duration(max(0, task.remaining or 0) / speed),
    }


def _rank(record: GenerationRecord) -> str:
    rank = record.center_rank
    return NONE if math.isnan(rank) else f"{rank:g}/{record.population_size}"


def progress_line(task: Task) -> str:
    """The values of a running trial in one line, each after its column's name."""
    cells = progress_cells(task)
    values = "  ".join(f"{name} {cells[name]:>{COLUMNS[name]}}" for name in COLUMNS)
    return f"{values}  {task.fields['activity']}".rstrip()


def progress_rows(tasks: Sequence[Task], width: int) -> Iterator[Text]:
    """A heading and the running trials, in lines of ``width`` characters.

    The name of a trial has a line of its own, above its values, if both do not fit into one line.
    Columns are left out if the values alone do not fit.
    """
    rows = [dict(zip(COLUMNS, COLUMNS, strict=True)), *map(progress_cells, tasks)]
    sizes = {name: max(COLUMNS[name], *(len(row[name]) for row in rows)) for name in COLUMNS}
    for name in LEFT_OUT:
        if sum(sizes.values()) + len(sizes) > width + 1:
            del sizes[name]
    gap = 2 if sum(sizes.values()) + 2 * len(sizes) <= width + 2 else 1
    heading, *values = ((" " * gap).join(f"{row[n]:>{sizes[n]}}" for n in sizes) for row in rows)
    names = [task.description for task in tasks]
    longest = max(map(len, names))
    if one_line := longest + len(heading) + ACTIVITY_WIDTH + 4 <= width:
        heading = f"{'trial':<{longest}}  {heading}"
    yield Text(heading, "dim", no_wrap=True)
    for name, text, task in zip(names, values, tasks, strict=True):
        activity = (f"  {task.fields['activity']}", "yellow")
        if one_line:
            yield Text.assemble(f"{name:<{longest}}  ", (text, "cyan"), activity, no_wrap=True)
        else:
            yield Text.assemble(name, activity)
            yield Text(text, "cyan", no_wrap=True)
