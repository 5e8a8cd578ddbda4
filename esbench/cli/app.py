"""The command-line application: commands with the options of functions.

An option is stated once, in the signature and the docstring of its function in ``esbench.app``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, final, get_args, get_origin

import typer
import typer.core

from esbench.app import options
from esbench.app.display import complain
from esbench.core.errors import EsbenchError, UsageError, as_training_errors
from esbench.core.escape import printable
from esbench.core.process import is_interrupted

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_LEFT_OUT: Final = 3
EXIT_INTERRUPTED: Final = 130

Options: TypeAlias = dict[str, Any]
"""The values of a function's options, by the names of its arguments."""

# Options that have another name in Python; ``folder`` is one of ``compare``.
NAMES: Final = {"only_plan": "--plan", "overrides": "--set", "every": "--all", "folder": "--in"}
METAVARS: Final = {
    "grid": "NAME-OR-FILE",
    "folder": "DIR",
    "folders": "DIR",
    "trial": "TRIAL",
    "path": "TRIAL",
    "first": "A",
    "second": "B",
    "file": "FILE",
    "good": "GOOD",
    "bad": "BAD",
    "overrides": "KEY=VALUE",
    "skip": "NAME",
    "device": "cpu|cuda",
    "shard": "I/N",
    "address": "HOST:PORT",
    "install": "COMMAND",
    "command": "COMMAND",
    "callback": "PACKAGE.FILE:FUNCTION",
    "track": "TRACKER",
    "episode_timeout": "SECONDS",
    "trial_timeout": "SECONDS",
    "storage": "FILE",
    "sample": "K",
    "source": "URL",
    "measure": "TEXT",
    "versions": "TEXT",
    "by": "SETTING",
    "target": "SCORE",
    "algorithms": "NAMES",
    "panels": "NAMES",
    "size": "WIDTHxHEIGHT",
    "title": "TEXT",
}
# Arguments that are one text each.
TEXTS: Final = {"grid", "good", "bad", "first", "second", "algorithms", "panels", "device"}


@final
class _Commands(typer.core.TyperGroup):
    """The commands; an error of user code in one is a ``TrainingError`` with its file and line.

    An option that takes one value is given once.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            context = command.context_class(command, info_name=name, parent=ctx)
            _, _, given = command.make_parser(context).parse_args(list(rest))
            for option, count in Counter(given).items():
                if count > 1 and not (option.multiple or getattr(option, "is_flag", True)):
                    raise UsageError(f"{option.opts[0]} is given {count} times; expected one value")
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Invoke the command."""
        try:
            with as_training_errors(typer.Exit, typer.Abort):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="esbench",
    cls=_Commands,
    help="The benchmark suite for evolution strategies in reinforcement learning.",
    epilog="Start with: esbench run quick",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from esbench import __version__

        write(f"esbench {__version__}")
        raise typer.Exit


def command(
    panel: str,
    function: Callable[..., Any],
    *examples: str,
    name: str = "",
    about: str = "",
    optional: str = "",
    without: Collection[str] = (),
    only: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function's options and the parameters of the decorated function.

    That receives the values of the options as its first argument; its docstring, if any, is added
    to the help text. The argument ``optional`` can be left out. Options ``without`` are left out,
    or all but ``only``.
    """

    def decorate(shell: Callable[..., None]) -> Callable[..., None]:
        shared = [
            each
            for each in options_of(function)
            if each.name not in without and (not only or each.name in only)
        ]
        shared = [each.replace(default=None) if each.name == optional else each for each in shared]
        _, *own = inspect.signature(shell, eval_str=True).parameters.values()
        every = [*shared, *(each.replace(kind=each.KEYWORD_ONLY) for each in own)]
        empty = {each.name: each.default for each in _parameters(function) if each.default == ()}

        @functools.wraps(shell)
        def with_options(**values: Any) -> None:
            given = {each.name: values.pop(each.name) for each in shared}
            given |= {key: () for key in empty if given.get(key, ()) is None}
            shell(given, **values)

        described: Any = with_options  # for typer
        described.__signature__ = inspect.Signature(every)
        described.__annotations__ = {each.name: each.annotation for each in every}
        text = about or (inspect.getdoc(function) or "").partition(options.ARGS)[0]
        app.command(
            name or function.__name__,
            help="\n\n".join(filter(None, [text, inspect.getdoc(shell)])),
            rich_help_panel=panel,
            epilog=f"Example{'s' if examples[1:] else ''}: {'   |   '.join(examples)}",
        )(with_options)
        return with_options

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def options_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The options of a function as typer takes them; ``display`` is none."""
    texts, kinds = options.argument_texts(function), options.argument_types(function)
    chosen = [each for each in _parameters(function) if each.name != "display"]
    words = {each.name: _word(each) for each in chosen}
    return [_option(each, words, texts[each.name], kinds[each.name]) for each in chosen]


def _word(parameter: inspect.Parameter) -> str:
    """How a command names an argument of a function."""
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return METAVARS[parameter.name]
    return option_word(parameter.name)


def option_word(name: str) -> str:
    """The option of an argument of a function."""
    return NAMES.get(name, f"--{name.replace('_', '-')}")


def _option(
    parameter: inspect.Parameter, words: Mapping[str, str], text: str, found: Any
) -> inspect.Parameter:
    kind, default = _kind(parameter.name, found), parameter.default
    text = re.sub(r"``(\w+)``", lambda match: words.get(match[1], match[1]), text)
    text = text[0].upper() + text[1:]
    word = words[parameter.name]
    if parameter.kind is not parameter.KEYWORD_ONLY:
        about = typer.Argument(metavar=word, help=text)
    else:
        if get_origin(kind) is list:
            text = f"{text.removesuffix('.')}; can be repeated."
        about = typer.Option(word, metavar=METAVARS.get(parameter.name), help=text)
    if default is None or default == ():
        kind, default = kind | None, None
    return inspect.Parameter(
        parameter.name, parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


def _kind(name: str, found: Any) -> Any:
    """The type of an option: of the types of an argument, the one that is written as text."""
    if name in TEXTS:
        return str
    members = options.members(found)
    for member in members:
        if get_origin(member) is Sequence and {str, Path} & {*_flat(get_args(member))}:
            return list[Path] if Path in _flat(get_args(member)) else list[str]
    for kind in (Path, str, bool, int, float):
        if kind in members:
            return kind
    return next(member for member in members if get_origin(member) is Literal)


def _flat(kinds: Collection[Any]) -> list[Any]:
    return [each for kind in kinds for each in (get_args(kind) or [kind])]


def write(text: str) -> None:
    """Print a result to standard output, ended by a newline."""
    sys.stdout.write(printable(text if text.endswith("\n") else f"{text}\n"))
    sys.stdout.flush()


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Print the command that resumes what is interrupted, and exit."""
    try:
        yield
    except (KeyboardInterrupt, EsbenchError) as error:
        if isinstance(error, EsbenchError):
            if not is_interrupted():
                raise
            complain(str(error))  # of saving
        command = shlex.join(["esbench", *sys.argv[1:]])
        complain(f"interrupted. Resume with: {command}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
