"""Feeds wrong and odd inputs to commands and functions; none may end in a traceback or hang.

    python tests/campaigns/fuzzed_inputs.py [--inputs N] [--seed S] [--only NUMBER]

Every input depends on the seed and its number only, so ``--only`` repeats a violation. Each runs in
a process of its own, in a folder with a few stored trials. The rules:

* the exit code is one of those in the documentation, and there is no traceback;
* exit code 2 comes with a message of at most 25 lines and 10,000 characters;
* no file is changed, unless a command that writes succeeds;
* it ends within a time limit.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from command_line import files
from commands import Ended, forked, with_code
from fake_trials import write_scores

import esbench
from esbench import cli
from esbench.publish.gate.baselines import freeze, write_baseline

MOST_LINES, MOST_CHARACTERS = 25, 10_000
# What a command that succeeds may write.
MADE = ("figures", "out/figures", "report.html", "new", "results")

Input = tuple[str, Callable[[], object]]  # as text, and what runs it


def _names(rng: random.Random) -> str:
    """A name that is wrong, or nearly right, but of no folder outside of the current one."""
    name = _any_name(rng)
    outside = name.startswith(("/", "..", "~")) or "/.." in name
    return f"x{name}" if outside else name


def _any_name(rng: random.Random) -> str:
    known = [
        "CartPole-v1",
        "openai_es",
        "mlp",
        "quick",
        "final_position",
        "adam",
        "out",
        "base.json",
    ]
    odd = [
        "", " ", ".", "..", "/", "-", "--", "a:b", ":", "a:", ":b", "os:path", "os:path.join",
        "json:loads", "a/b/c", "../../etc/passwd", "\n", "\t\r", "%s%n", "{}", "{0.__class__}",
        "nan", "None", "0", "-1", "1e999", "é", "日本語", "🙂", "‮", "\x1b[31m", "\udcff",
        "__init__", "__main__", "esbench", "esbench:api", "CON", "~", "$HOME", "*", "[", "a" * 256,
    ]  # fmt: skip
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(odd)
    if kind == 1:
        return rng.choice(["x", ".", "a.", "a:", "/", "é", "[", "a b "]) * rng.choice([300, 5000])
    if kind == 2:
        return "".join(chr(rng.choice([rng.randrange(1, 128), rng.randrange(160, 0xD7FF)]))
                       for _ in range(rng.randrange(1, 40)))  # fmt: skip
    name = list(rng.choice(known))
    for _ in range(rng.randrange(3)):
        place = rng.randrange(len(name) + 1)
        name[place : place + rng.randrange(2)] = rng.choice(["", "x", "A", "-", ".", "é", "0", ":"])
    return "".join(name)


def _value(rng: random.Random, depth: int = 0) -> str:
    """A value in TOML, or what is nearly one."""
    numbers = ["0", "-1", "1", "2", "3", "64", "1.5", "-0.0", "1e308", "1e-320", "1e999", "inf",
               "nan", "-inf", "true", "false", "1_000", "0x1f", "1979-05-27", "07:32:00",
               str(10**12), str(2**31), str(2**63), str(-(2**64)), "9" * 4300, "9" * 4301,
               "9" * 9000, "0." + "3" * 5000]  # fmt: skip
    kind = rng.randrange(9)
    if kind <= 2:
        return rng.choice(numbers)
    if kind == 3:
        text = _names(rng)
        return f'"{text}"' if rng.random() < 0.7 else text
    if kind == 4:
        many = rng.choice([1, 10, 49, 60, 300, 2000])
        opened, closed = rng.choice([("[", "]"), ("{", "}"), ("[", "}")])
        return opened * many + closed * rng.choice([many, many - 1])
    if kind == 5 and depth < 3:
        items = ", ".join(_value(rng, depth + 1) for _ in range(rng.randrange(4)))
        return f"[{items}]"
    if kind == 6 and depth < 3:
        return f"{{ {rng.choice(['a', 'seeds', 'sigma', 'template'])} = {_value(rng, depth + 1)} }}"
    if kind == 7:
        return "[" + "4," * rng.choice([3, 100, 5000]) + "4]"
    return rng.choice(
        ['"mlp"', '"linear"', '"auto"', '"gymnasium"', "'", '"', "=", "[", "'''", "#"]
    )


KEYS = [
    "name", "description", "seeds", "environments", "algorithms", "policy", "policies", "budget",
    "evaluation", "environment", "init_from", "tune", "budget.env_steps", "budget.generations",
    "budget.target_return", "budget.target_window", "evaluation.episodes", "evaluation.center",
    "policy.template", "policy.hidden", "policy.activation", "policy.normalize_observations",
    "policy.observation_clip", "policies.a.template", "algorithms.openai_es",
    "algorithms.openai_es.sigma", "algorithms.openai_es.population_size",
    "algorithms.openai_es.optimizer", "algorithms.openai_es.optimizer_settings",
    "algorithms.openai_es.optimizer_settings.betas", "algorithms.openai_es.shaping",
    "algorithms.openai_es.center_init", "algorithms.openai_es.learning_rate",
    "algorithms.openai_es.num_interactions", "algorithms.openai_es.policy",
    "algorithms.openai_es.seeds", "algorithms.openai_es.environments",
    "algorithms.openai_es.algorithm", "tune.openai_es.sigma", "tune.openai_es.sigma.low",
    *(f'environment."CartPole-v1".{key}' for key in (
        "id", "kwargs", "kwargs.x", "kwargs.sutton_barto_reward", "wrappers", "backend",
        "episodes_per_member", "max_episode_steps", "action_noise", "reward_shift",
        "episode_seeds", "behavior", "behavior_settings", "behavior_settings.x", "scores",
        "budget.env_steps", "evaluation", "policy", "algorithms.openai_es.sigma", "seeds")),
]  # fmt: skip


def _key(rng: random.Random) -> str:
    kind = rng.randrange(8)
    if kind == 0:
        return ".".join(["a"] * rng.choice([1, 2, 51, 5000]))
    if kind == 1:
        return _names(rng)
    if kind == 2:
        return f"{rng.choice(KEYS)}.{rng.choice(['x', 'a.b', 'sigma', _names(rng)])}"
    return rng.choice(KEYS)


def _settings(rng: random.Random) -> list[str]:
    sets = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        sets += ["--set", f"{_key(rng)}{rng.choice(['=', '=', '=', '=', ' = ', ''])}{_value(rng)}"]
    return ["status", "--env", "CartPole-v1", "--algorithm", "openai_es", "--out", "new", *sets]


def _named(rng: random.Random) -> list[str]:
    name = _names(rng)
    grid = ["--env", "CartPole-v1", "--algorithm", "openai_es", "--out", "new"]
    return rng.choice([
        ["status", "--env", name, "--algorithm", "openai_es"],
        ["status", "--env", "CartPole-v1", "--algorithm", name],
        ["status", name],
        ["status", *grid, "--out", name],
        ["status", *grid, "--device", name],
        ["status", *grid, "--seeds", name],
        ["run", *grid, "--callback", f"{name}:f"],
        ["run", *grid, "--track", name],
        ["run", "--env", name, "--algorithm", "openai_es"],
        ["plan", "--env", name, "--algorithm", "openai_es"],
        ["eval", "--random-policy", name],
        ["eval", name], ["render", name], ["export", name], ["verify", name], ["diagnose", name],
        ["list", name], ["list", "--settings", name], ["list", "policies", "--settings", name],
        ["table", name], ["table", "out", "--by", name], ["table", "out", "--format", name],
        ["compare", name, "openai_es", "--in", "out"], ["compare", "out", name],
        ["efficiency", "out", "--target", name], ["plot", "out", "--algorithms", name],
        ["plot", "out", "--size", name], ["report", name],
        ["baseline", name, "--out", "new/b.json"], ["check", name, "--baseline", "base.json"],
        ["check", "out", "--baseline", name], ["merge", name, "--out", "new"], ["history", name],
        ["check", "out", "--baseline", "base.json", "--markdown", f"new/{name}"],
        ["leaderboard", name], ["submit", name], ["bench", "--env", name],
        ["bench", "--algorithm", name], ["tune", name, "--trials", "1"],
        [name], [name, "out"], ["table", "out", name], ["--" + name],
    ])  # fmt: skip


def _numbered(rng: random.Random) -> list[str]:
    number = rng.choice([
        "0", "-1", "-0", "1.5", "nan", "inf", "1e9", "", " ", "x", "0x10", "1_000", "٣",
        str(10**12), str(2**63), str(-(2**63) - 1), "9" * 4300, "9" * 4301, "-" + "9" * 5000,
    ])  # fmt: skip
    grid = ["--env", "CartPole-v1", "--algorithm", "openai_es", "--out", "new"]
    wrong = ["run", *grid, "--set", "evaluation.episodes=0"]  # is refused in any case
    return rng.choice([
        ["status", *grid, "--env-steps", number], ["status", *grid, "--seeds", number],
        ["status", *grid, "--seeds", f"{number}-{number}"],
        [*wrong, "--workers", number], [*wrong, "--at-once", number], [*wrong, "--keep", number],
        ["verify", "out/missing", "--workers", number], ["verify", "--sample", number],
        ["verify", "--sample", "1", "--seed", number],
        ["efficiency", "out", "--target", number], ["efficiency", "out", "--window", number],
        ["check", "out", "--baseline", "base.json", "--alpha", number],
        ["check", "out", "--baseline", "base.json", "--margin", number],
        ["eval", "out", "--episodes", number], ["eval", "out", "--generation", number],
        ["render", "out", "--episode", number], ["render", "out", "--max-steps", number],
        ["eval", "--random-policy", "CartPole-v1", "--episodes", "0", "--seed", number],
        ["bench", "--rounds", "0", "--population", number],
        ["bench", "--after", number, "--rounds", "0"],
        ["bench", "--seconds", number, "--rounds", "0"],
        ["tune", *grid[:4], "--tuning-seeds", "x", "--trials", number],
    ])  # fmt: skip


GRID = """name = "g"
seeds = [0, 1]
environments = ["CartPole-v1", "Pendulum-v1"]
[budget]
env_steps = 1000
[algorithms.openai_es]
population_size = 16
sigma = [0.1, 0.2]
[algorithms.cma_es]
environments = ["CartPole-v1"]
[policy]
template = "mlp"
hidden = [8]
[environment."CartPole-v1"]
episodes_per_member = 2
"""


def _grid_file(rng: random.Random) -> tuple[list[str], str]:
    lines = GRID.splitlines()
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines[place] = (
                    f"{lines[place].partition('=')[0].strip('[] ') or 'x'} = {_value(rng)}"
                )
            case 1:
                lines.insert(place, f"{_key(rng)} = {_value(rng)}")
            case 2:
                lines.insert(place, f"[{_key(rng)}]")
            case 3:
                del lines[place]
            case 4:
                lines.insert(place, lines[rng.randrange(len(lines))])
            case 5:
                text = lines[place]
                cut = rng.randrange(len(text) + 1)
                lines[place] = text[:cut] + _names(rng) + text[cut + rng.randrange(3) :]
        lines = lines or [""]
    command = rng.choice([["status"], ["status"], ["tune", "--trials", "1"]])
    return [*command, "grid.toml"], "\n".join(lines)


def _objects(rng: random.Random) -> Any:
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    return rng.choice([
        None, True, False, 0, -1, 1, 2**70, 10**12, -(10**5000), 1.5, float("nan"), float("inf"),
        "", "x", "1", "x" * 5000, b"x", [], [1], [None], {}, {"a": 1}, {1: 2}, (), object, print,
        np.float64("nan"), np.int64(3), np.zeros(3), np.zeros((2, 2)), np.array(["a"]), 1j, cyclic,
        [[[[1]]]], range(3), int, Path("x"),
    ])  # fmt: skip


def _call(rng: random.Random) -> Input:
    value = _objects(rng)
    algorithm = rng.choice(esbench.list_algorithms())
    algorithm = "openai_es" if algorithm in {"evotorch", "evosax"} else algorithm
    good: dict[str, Any] = {"num_params": 4, "seed": 1}
    setting = rng.choice([
        "population_size", "sigma", "center_init", "optimizer", "learning_rate", "shaping",
        "optimizer_settings", "weight_decay", "nonsense", "seed", "num_params", "shapes", "name",
    ])  # fmt: skip
    top = rng.choice(["seed", "workers", "policy", "environment", "budget", "evaluation", "env",
                      "init_from", "record", "sigma", "population_size"])  # fmt: skip

    def made() -> Any:
        return esbench.make_algorithm(algorithm, **good)

    def make() -> Any:
        found = esbench.make_algorithm(**{"name": algorithm, **good, setting: value})
        return found.ask().members([0])

    def tell() -> None:
        search = made()
        population = search.ask()
        returns = rng.choice([value, [value] * len(population)])
        behaviors = rng.choice([None, value, [[0.0]] * len(population)])
        search.tell(rng.choice([population, population, value]), returns, behaviors)

    def load() -> None:
        search = made()
        state = search.state_dict()
        state[rng.choice(sorted(state))] = value
        search.load_state_dict(rng.choice([state, state, state, value]))
        assert search.center.shape == (4,)

    def trainer() -> None:
        table = {"env": "CartPole-v1", "workers": 1, "algorithm": "openai_es"}
        with esbench.make_trainer(**{**table, top: value}):
            pass

    def small() -> None:
        rng.choice([
            lambda: esbench.TargetReturn(value), lambda: esbench.TargetReturn(1.0, value),
            lambda: esbench.Stop(value), lambda: esbench.run("quick", seeds=value, workers=0),
            lambda: esbench.run(value, workers=0),
            lambda: esbench.run("quick", overrides=value, workers=0),
        ])()  # fmt: skip

    call = rng.choice([make, make, tell, load, trainer, trainer, small])
    with contextlib.suppress(ValueError):  # an integer of too many digits
        shown = repr(value)[:80]
        return f"{call.__name__} {algorithm} {setting} {top} {shown}", call
    return f"{call.__name__} {algorithm} {setting} {top} (many digits)", call


def make_input(seed: int, number: int) -> Input:
    """The input of a number, as text and as a function that runs it."""
    rng = random.Random(f"{seed} {number}")
    kind = rng.randrange(10)
    if kind >= 8:
        return _call(rng)
    if kind >= 6:
        arguments, text = _grid_file(rng)
        return f"{arguments[0]} grid.toml:\n{text}", lambda: _command(arguments, text)
    arguments = _settings(rng) if kind < 3 else _named(rng) if kind < 5 else _numbered(rng)
    return shlex.join(arguments), lambda: _command(arguments)


def _command(arguments: list[str], grid: str | None = None) -> None:
    if grid is not None:
        Path("grid.toml").write_text(grid, encoding="utf-8", errors="surrogateescape")
    sys.argv = ["esbench", *arguments]
    cli.main()


def violation(ended: Ended, changed: Sequence[str] = ()) -> str:
    """What is wrong with the outcome of an input; empty if nothing is."""
    output = ended.out + ended.err
    if ended.code == 2 and (output.count("\n") > MOST_LINES or len(output) > MOST_CHARACTERS):
        return f"a message of {output.count(chr(10))} lines and {len(output)} characters"
    if ended.code == 2 and not output.strip():
        return "no message"
    if changed and (ended.code == 2 or any(not name.startswith(MADE) for name in changed)):
        return f"files changed: {', '.join(changed[:5])}"
    return ended.crash


def _prepare(folder: Path) -> dict[Path, Any]:
    """Write stored trials and a baseline; returns all files."""
    shutil.rmtree(folder, ignore_errors=True)
    write_scores(folder / "out", [100.0, 200.0, 300.0])
    write_baseline(folder / "base.json", freeze(folder / "out", "fuzz"), replace=False)
    return files(folder)


def campaign(seed: int, numbers: range) -> int:
    """Run inputs and print the violations; their number."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "folder"
        before = _prepare(folder)
        for number in numbers:
            text, call = make_input(seed, number)
            ended = forked(lambda call=call: with_code(call), folder)  # type: ignore[misc]
            (folder / "grid.toml").unlink(missing_ok=True)
            now = files(folder)
            changed = [path for path in before | now if before.get(path) != now.get(path)]
            wrong = violation(ended, sorted(str(path.relative_to(folder)) for path in changed))
            outcomes["violation" if wrong else f"exit code {ended.code}"] += 1
            if wrong:
                output = (ended.out + ended.err)[-1500:]
                print(f"seed {seed}, input {number}: {wrong}\n  {text[:600]}\n  {output}")
            if changed:
                before = _prepare(folder)
    print(f"seed {seed}: {len(numbers)} inputs", *sorted(outcomes.items()), sep="\n  ")
    return outcomes["violation"]


def main() -> None:
    """Run the campaign; exit code 1 if there is a violation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one input")
    options = parser.parse_args()
    numbers = range(options.inputs)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    sys.exit(int(campaign(options.seed, numbers) > 0))


if __name__ == "__main__":
    main()
