"""Writes the reference from the registries, before Sphinx reads the pages.

One page per algorithm, policy and environment, and one each for behaviors and backends, the
command line and the Python interface. The pages are not committed. What a registry cannot know, the
equations of an algorithm and the layers of a policy, is a committed fragment per name; the build
fails where one is missing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import draw_structure
import internals
from internals import ALGORITHMS, BACKENDS, BEHAVIORS, POLICIES, SettingRow, markdown_code
from markdown_text import (
    escaped,
    index_page,
    linked,
    markdown_table,
    page,
    page_link,
    sentence,
)
from results_pages import LEADERBOARD
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import esbench
from esbench import UsageError

REFERENCE = Path(__file__).resolve().parent.parent / "reference"
BASELINES = REFERENCE.parent.parent / "results" / "baselines"
SAMPLE_ENVIRONMENTS = ("CartPole-v1", "HalfCheetah-v5", "esbench/Pong-v5")
Row = dict[str, str]


def setup(app: Sphinx) -> dict[str, bool]:
    """Generate when the builder is ready; pages are read afterwards."""
    # Before the gallery, whose tutorials register algorithms of their own.
    app.connect("builder-inited", lambda _: generate(), priority=400)
    app.connect("builder-inited", lambda _: draw_structure.main(), priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def generate() -> None:
    """Write every generated page; a page that has not changed is left alone.

    Raises:
        ExtensionError: an algorithm, policy or grid key is not documented.
    """
    pages = dict(
        [
            *algorithm_pages(),
            *policy_pages(),
            *environment_pages(),
            ("backends-and-behaviors", backends_and_behaviors()),
            ("command-line", command_line()),
            ("python", python_interface()),
        ]
    )
    check_grid_page()
    for folder in ("algorithms", "policies", "environments"):
        for old in (REFERENCE / folder).glob("*.md"):
            if f"{folder}/{old.stem}" not in pages:
                old.unlink()
    for name, text in pages.items():
        path = REFERENCE / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# Algorithms


def algorithm_pages() -> Iterator[tuple[str, str]]:
    """A page for every registered algorithm, and their index."""
    results = baseline_rows()
    lines = []
    for name in internals.own_names(ALGORITHMS):
        cls: Any = ALGORITHMS.get(name)
        yield f"algorithms/{name}", algorithm_page(name, cls, results)
        lines.append([f"[`{name}`]({name}.md)", escaped(summary(cls)), linked(cls.paper)])
    intro = (
        "Every algorithm searches for the parameters with the highest return. "
        "`esbench list algorithms` prints the same list, and "
        "`esbench list --settings NAME` the settings of one.\n"
    )
    table = markdown_table(["Name", "Algorithm", "Paper"], lines)
    yield (
        "algorithms/index",
        index_page("Algorithms", intro, table, internals.own_names(ALGORITHMS)),
    )


def algorithm_page(name: str, cls: Any, results: list[Row]) -> str:
    """The page of one algorithm."""
    parts = [
        f"# {name}",
        escaped(summary(cls)),
        f"Paper: {linked(cls.paper)}",
        fragment("equations", name),
        "## Settings",
        settings_table(internals.setting_rows(cls.Settings)),
        "Set them in a grid file or on the command line:",
        f"```toml\n[algorithms.{name}]\n{example_of(cls)}\n```",
        f"```console\n$ esbench run --env CartPole-v1 --algorithm {name} --seeds 0-2\n```",
        *results_section(results, "Algorithm", name),
    ]
    return page(parts)


def example_of(cls: Any) -> str:
    """One setting of an algorithm as TOML, at its default."""
    for row in internals.setting_rows(cls.Settings):
        if row.name in {"population_size", "search_algorithm", "strategy"} and row.default != "-":
            value = row.default if row.default.isdigit() else f'"{row.default}"'
            return f"{row.name} = {value}"
    return "population_size = 32"


# Policies


def policy_pages() -> Iterator[tuple[str, str]]:
    """A page for every policy template, and their index."""
    lines = []
    for name in internals.own_names(POLICIES):
        cls: Any = POLICIES.get(name)
        sizes = policy_sizes(name)
        parts = [
            f"# {name}",
            escaped(summary(cls)),
            fragment("architectures", name),
            *([markdown_table(["Environment", "Parameters"], sizes)] if sizes else []),
            "## Settings",
            settings_table(internals.setting_rows(cls.Settings)),
        ]
        yield f"policies/{name}", page(parts)
        lines.append([f"[`{name}`]({name}.md)", escaped(summary(cls))])
    intro = (
        "A policy template maps an observation to an action. Choose it with "
        "`--set policy.template=NAME`, or in the table `[policy]` of a grid.\n"
    )
    table = markdown_table(["Name", "Policy"], lines)
    yield "policies/index", index_page("Policies", intro, table, internals.own_names(POLICIES))


def policy_sizes(template: str) -> list[list[str]]:
    """The number of parameters of a template with its defaults, where it can be used."""
    rows = []
    for name in SAMPLE_ENVIRONMENTS:
        file = internals.load_environment(name)
        own = file.model_copy(update={"policy": {"template": template}})
        try:
            size = internals.played(own).num_params
        except UsageError:  # this policy cannot be used in that environment
            continue
        rows.append([page_link(name, "../environments/"), f"{size:,}"])
    return rows


# Environments


def environment_pages() -> Iterator[tuple[str, str]]:
    """A page for every file of ``envs/``, and their index."""
    results = baseline_rows()
    families: dict[str, list[list[str]]] = {}
    names = internals.environment_names()
    for name in names:
        file = internals.load_environment(name)
        family, text = environment_page(name, file, results)
        yield f"environments/{internals.safe_name(name)}", text
        row = [page_link(name, ""), escaped(sentence(file.description))]
        families.setdefault(family, []).append(row)
    intro = (
        "These environments have a file in `envs/` with a policy, a budget, tuned settings and "
        "scores to compare with. Any other Gymnasium environment works too, "
        "with default settings and no scores; see [](../../how-to/add-environment.md).\n"
    )
    tables = [
        f"## {family}\n\n{markdown_table(['Name', 'Task'], rows)}"
        for family, rows in sorted(families.items())
    ]
    yield "environments/index", index_page("Environments", intro, "\n\n".join(tables), names)


def environment_page(name: str, file: Any, results: list[Row]) -> tuple[str, str]:
    """The family and the page of one environment."""
    played = internals.played(file)
    policy = dict(file.policy)
    template = policy.pop("template")
    facts = [
        ["Observations", f"`{' '.join(played.observations.split())}`"],
        ["Actions", f"`{' '.join(played.actions.split())}`"],
        ["Longest episode", f"{played.max_episode_steps:,} steps"]
        if played.max_episode_steps
        else ["", ""],
        ["Policy", f"[`{template}`](../policies/{template}.md), {played.num_params:,} parameters"],
        ["Budget", "; ".join(f"`{key} = {toml(value)}`" for key, value in file.budget.items())],
        ["Backend", f"`{played.backend}`"],
    ]
    changed = file.spec().model_dump(exclude={"id"}, exclude_defaults=True)
    tables = {"": {key: value for key, value in changed.items() if not isinstance(value, dict)}}
    tables |= {key: value for key, value in changed.items() if isinstance(value, dict)}
    tables |= {"policy": policy, "evaluation": file.evaluation}
    tables |= {f"algorithms.{key}": value for key, value in file.algorithms.items()}
    parts = [
        f"# {name}",
        escaped(sentence(file.description)),
        markdown_table(["", ""], [fact for fact in facts if fact[0]]),
        "## Settings",
        "What the environment's file sets besides its budget. A grid can override each of them.",
        f"```toml\n{toml_tables(tables)}\n```",
        f"```console\n$ esbench run --env {name} --algorithm openai_es --seeds 0-2\n```",
        *score_sections(file.scores),
        *version_sections(file.versions),
        *results_section(results, "Environment", name),
    ]
    if played.backend == "atari":
        family = "Atari games"
    elif file.kind == "function":
        family = "Test functions"
    elif played.backend == "mujoco":
        family = "MuJoCo"
    else:
        folder = internals.module_of(name).split(".")[2]
        family = {"box2d": "Box2D", "toy_text": "Toy text"}.get(folder, "Classic control")
    return family, page(parts)


def score_sections(scores: Any) -> Iterator[str]:
    """What random actions score, when the task is solved, and what others have published."""
    yield "## Scores to compare with"
    if scores.random is not None:
        random = scores.random
        yield (
            f"Random actions score {random.mean:,} (standard deviation {random.std:,} over "
            f"{random.episodes:,} episodes), measured by `{random.command}`."
        )
    if scores.solved is not None:
        yield f"The task counts as solved at {scores.solved:,}."
    if scores.references:
        rows = [
            [
                escaped(each.method),
                f"{each.score:,}",
                "-" if each.env_steps is None else f"{each.env_steps:,.0f}",
                linked(each.source),
                "yes" if each.comparable else "no",
                linked(each.note),
            ]
            for each in scores.references
        ]
        headings = ["Method", "Score", "Steps", "Source", "Comparable", "What differs"]
        yield markdown_table(headings, rows, numbers=("Score", "Steps"))


# Backends, behaviors, command line, Python


def backends_and_behaviors() -> str:
    """The page of both, which have few names each."""
    parts = [
        "# Backends and behaviors",
        "## Backends",
        (
            "A backend steps many copies of an environment. All backends give the same bits; "
            '`environment.backend` is `"auto"` by default, which takes the fastest that supports '
            "the environment."
        ),
    ]
    rows = [[f"`{n}`", escaped(summary(BACKENDS.get(n)))] for n in internals.own_names(BACKENDS)]
    parts += [markdown_table(["Name", "Backend"], rows), "## Behaviors"]
    parts.append(
        "Novelty search ([`ns_es`](algorithms/ns_es.md), [`nsr_es`](algorithms/nsr_es.md), "
        "[`nsra_es`](algorithms/nsra_es.md)) compares episodes by a behavior, which is a vector. "
        "`environment.behavior` names it; see [](../how-to/novelty.md)."
    )
    for name in internals.own_names(BEHAVIORS):
        cls: Any = BEHAVIORS.get(name)
        rows_ = internals.setting_rows(cls.Settings)
        table = settings_table(rows_) if rows_ else "It has no settings."
        parts += [f"### {name}", escaped(summary(cls)), table]
    return page(parts)


def command_line() -> str:
    """The page of all commands, from the application's own help texts."""
    parts = [
        "# Command line",
        (
            "`esbench COMMAND --help` prints the same. Exit codes: 0 success (after `run`, other "
            "processes may still train the trials that it calls busy); 1 a failed trial or "
            "a regression; 2 wrong usage or bad input; 3 not everything was measured (`check`, "
            "`verify`); 4 inconclusive (`check`); 130 interrupted."
        ),
    ]
    for name, command in internals.COMMANDS.items():
        parts += [f"## esbench {name}", escaped(command.help or "")]
        arguments = [each for each in command.params if not each.opts[0].startswith("-")]
        usage = " ".join(["esbench", name, *map(argument_word, arguments), "[OPTIONS]"])
        parts.append(f"```text\n{usage}\n```")
        for each in command.params:
            word = argument_word(each) if each in arguments else option_word(command, each)
            parts.append(f"`{word}`\n: {described(each)}")
        examples = re.sub(r"^Examples?:\s*", "", command.epilog or "").split("   |   ")
        if examples[0]:
            parts.append("```console\n" + "\n".join(f"$ {each}" for each in examples) + "\n```")
    return page(parts)


def argument_word(argument: Any) -> str:
    """The name of an argument, in brackets if it may be left out."""
    word = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1 and not word.endswith("..."):
        word += "..."
    return word if argument.required else f"[{word}]"


def option_word(command: Any, option: Any) -> str:
    """The name of an option and what it takes."""
    names = ", ".join(option.opts)
    if option.is_flag:
        return names
    return f"{names} {internals.value_word(command, option)}"


def described(parameter: Any) -> str:
    """The help text of an argument or option, with its default."""
    text = escaped(parameter.help or "")
    default = getattr(parameter.default, "value", parameter.default)
    flag = getattr(parameter, "is_flag", False)
    if default in (None, "") or flag:
        return text
    return f"{text} Default: `{default}`."


def python_interface() -> str:
    """The page of the public names, with a directive of autodoc for each."""
    public = {name: getattr(esbench, name) for name in esbench.__all__}
    public = {name: found for name, found in public.items() if found not in internals.BASES}
    # Methods of a registry, whose docstring speaks of any registry.
    registering = [name for name, target in public.items() if inspect.ismethod(target)]
    classes = [name for name, target in public.items() if inspect.isclass(target)]
    errors = [name for name in classes if issubclass(public[name], Exception)]
    functions = [name for name in public if name not in {*registering, *classes}]
    parts = [
        "# Python",
        "```{py:module} esbench\n```",
        "## Functions",
        *(directive(f".. autofunction:: esbench.{name}") for name in functions),
        "## Training",
        *(documented(cls, path_of(cls)) for cls in internals.TRAINING),
        *(documented(public[name], f"esbench.{name}") for name in classes if name not in errors),
        "## Errors",
        *(directive(f".. autoexception:: esbench.{name}") for name in errors),
        "## Write your own",
        "The bases of what a file of your own can add, and the decorators that register it.",
        *(registers(name) for name in registering),
        *(documented(cls, path_of(cls)) for cls in internals.BASES),
    ]
    return page(parts)


def directive(*lines: str) -> str:
    """A directive of reStructuredText in a page of Markdown."""
    return "\n".join(["```{eval-rst}", *lines, "```"])


def path_of(cls: type) -> str:
    """Where a class is imported from."""
    return f"{cls.__module__}.{cls.__qualname__}"


def documented(cls: type, path: str) -> str:
    """The directive that documents a class; the fields of a record are no arguments of a caller."""
    arguments = "()" if is_dataclass(cls) and len(fields(cls)) > 5 else ""
    return directive(f".. autoclass:: {path}{arguments}", "   :members:")


def registers(name: str) -> str:
    """What a decorator of a registry does."""
    kind = name.removeprefix("register_")
    article = "an" if kind[0] in "aeiou" else "a"
    return f"`esbench.{name}(name)`\n: Class decorator that registers {article} {kind} as `name`."


# Results


def baseline_rows() -> list[Row]:
    """Every row of a score table in ``results/baselines``, with its file and its command."""
    rows = []
    for path in sorted(BASELINES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        command = re.search(r"^- Made by: (.*)$", text, re.MULTILINE)
        for row in table_rows(text):
            if {"Environment", "Algorithm", "Score"} <= row.keys():
                rows.append({**row, "File": path.name, "Command": command[1] if command else ""})
    return rows


def table_rows(text: str) -> Iterator[Row]:
    """The rows of the first Markdown table of a text, by heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    if len(lines) < 3:
        return
    headings, _, *body = ([cell.strip() for cell in line.strip("| ").split("|")] for line in lines)
    for cells in body:
        if len(cells) == len(headings):
            yield dict(zip(headings, cells, strict=True))


def version_sections(versions: dict[str, Any]) -> Iterator[str]:
    """How other versions of an environment differ; nothing if that is not known."""
    if versions:
        rows = [
            [name, other.comparable, escaped(other.what), f"[source]({other.source})"]
            for name, other in versions.items()
        ]
        yield "## Other versions"
        yield markdown_table(["Version", "Scores comparable", "What differs from ours", ""], rows)


def results_section(results: list[Row], key: str, name: str) -> Iterator[str]:
    """The measured results of one algorithm or environment; nothing if there are none."""
    rows = [row for row in results if row[key] == name]
    page_of_results = leaderboard_page(key, name)
    if rows or page_of_results:
        yield "## Results"
    if page_of_results:
        yield f"[All rows of the leaderboard]({page_of_results})."
    if not rows:
        return
    other = "Environment" if key == "Algorithm" else "Algorithm"
    headings = [other, "Score", "95 % interval", "Seeds", "Steps", "Time"]
    for file in dict.fromkeys(row["File"] for row in rows):
        own = [row for row in rows if row["File"] == file]
        cells = [
            [result_link(other, row[other]), *(escaped(row.get(h, "-")) for h in headings[1:])]
            for row in own
        ]
        yield f"From `results/baselines/{file}`, made by `{own[0]['Command']}`:"
        yield markdown_table(headings, cells, numbers=headings[1:])
    yield (
        "The score is the interquartile mean over training seeds of the final policy's mean return "
        "over held-out episodes; see [](../../explanation/scoring.md)."
    )


def leaderboard_page(key: str, name: str) -> str:
    """The page with the leaderboard's rows of an algorithm or environment; empty without one."""
    if name not in leaderboard_names(key):
        return ""
    return f"../../results/{key.lower()}s/{internals.safe_name(name)}.md"


@cache
def leaderboard_names(key: str) -> frozenset[str]:
    """The algorithms or environments of the leaderboard."""
    return frozenset(
        entry.cell.algorithm if key == "Algorithm" else entry.cell.environment
        for entry in internals.read_leaderboard(LEADERBOARD)
    )


def result_link(kind: str, name: str) -> str:
    """A link to the page of an algorithm or environment, if there is one."""
    own = {
        "Environment": internals.environment_names(),
        "Algorithm": internals.own_names(ALGORITHMS),
    }
    return page_link(name, f"../{kind.lower()}s/") if name in own[kind] else markdown_code(name)


# Text


def fragment(folder: str, name: str) -> str:
    """The hand-written part of a page.

    Raises:
        ExtensionError: it is missing.
    """
    path = REFERENCE / folder / f"{name}.md"
    if not path.is_file():
        raise ExtensionError(
            f"{name} has no page fragment; write docs/reference/{folder}/{name}.md"
        )
    return path.read_text(encoding="utf-8").strip()


def check_grid_page() -> None:
    """Check that the page on grid files names every key.

    Raises:
        ExtensionError: a key is missing.
    """
    text = (REFERENCE / "grid-file.md").read_text(encoding="utf-8")
    for table, model in internals.GRID_TABLES.items():
        for key in model.model_fields:
            if key != "id" and f"`{key}`" not in text:
                raise ExtensionError(
                    f"docs/reference/grid-file.md: no `{key}` (of {table or 'grid'})"
                )


def settings_table(rows: Sequence[SettingRow]) -> str:
    """The settings of a model as a table."""
    cells = [
        [
            f"`{row.name}`",
            "-" if row.default == "-" else f"`{row.default}`",
            escaped(row.type),
            escaped(f"{row.meaning} [{row.unit}]" if row.unit else row.meaning)
            + (f" `esbench tune`: {escaped(row.search)}." if row.search else ""),
        ]
        for row in rows
    ]
    table = markdown_table(["Setting", "Default", "Type", "Meaning [unit]"], cells)
    return f"{{.settings}}\n{table}"


def summary(cls: type) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def toml_tables(tables: dict[str, Any]) -> str:
    """Tables of plain values as TOML; empty ones are left out."""
    blocks = []
    for name, values in tables.items():
        lines = [f"[{name}]"] if name else []
        lines += [f"{key} = {toml(value)}" for key, value in values.items()]
        blocks += ["\n".join(lines)] if values else []
    return "\n\n".join(blocks)


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"
