"""Input that no command can use is refused: one sentence, exit code 2, nothing is changed."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest
from command_line import Run
from fake_trials import write_scores

from esbench.core.errors import LONGEST_LINE

Refused = Callable[..., str]
WRITTEN_BY_0_2_0 = Path(__file__).parent / "written_by_0_2_0"
TRIAL = "out/CartPole-v1/openai_es/seed-0"
GRID = "--env CartPole-v1 --algorithm openai_es --seeds 0 --out out"


@pytest.mark.parametrize(
    "command",
    [
        "table out",
        "compare openai_es ars --in out",
        "plot out",
        f"status {GRID}",
        f"run {GRID}",
        f"eval {TRIAL}",
        f"render {TRIAL}",
        "diagnose out",
        "baseline out --out new.json",
        "check out --baseline b.json",
        "verify out",
    ],
)
def test_an_output_folder_of_version_0_2_0(
    refused: Refused, esbench: Run, tmp_path: Path, command: str
) -> None:
    if "b.json" in command:
        write_scores(tmp_path / "base", [400.0])
        assert esbench("baseline", "base", "--out", "b.json")[0] == 0
    shutil.copytree(WRITTEN_BY_0_2_0, tmp_path / "out")
    sentence = refused(*command.split())
    for fact in (TRIAL, "format 1", "0.2.0", "format 2"):
        assert fact in sentence


TRAINER = "from esbench.trainer import Trainer\n"
REGISTER = "from esbench.core.registry import register_algorithm\n"
PLUGINS = {
    "entry point": ("esbench.plugins.evotorch:Old", "esbench.plugins", ""),
    "old module": ("old_plugin:Old", "esbench.trainer", TRAINER),
    "old place": ("old_plugin:Old", "register_algorithm", REGISTER),
}


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_that_names_an_old_module(
    refused: Refused, install: Callable[..., None], kind: str
) -> None:
    value, missing, source = PLUGINS[kind]
    install({"old_plugin": source}, f"[esbench.algorithms]\nold = {value}\n")
    sentence = refused("run", "--env", "CartPole-v1", "--algorithm", "old", "--seeds", "0")
    for fact in ("algorithm 'old'", value, "another version of esbench", missing):
        assert fact in sentence


gymnasium.register("Missing-v0", entry_point="a_library_nobody_has:Env")
MISSING = "'Missing-v0'.*'a_library_nobody_has'"
SPACES = 'environment."doubles:Spaces-v0".kwargs={observation="text"}'
RUN = "run --env CartPole-v1 --algorithm openai_es --seeds 0"
PLAN = "plan --env CartPole-v1 --seeds 0 --algorithm"
STATUS = RUN.replace("run", "status", 1)
CARTPOLE = 'environment."CartPole-v1"'
WRAPPED = f"{RUN} --set {CARTPOLE}.wrappers="
NORMALIZE = '[{wrapper="gymnasium.wrappers:NormalizeReward"}]'
ADAM = "algorithms.openai_es.optimizer_settings"
SIX = "--env CartPole-v1 --algorithm snes --algorithm openai_es"
LONG = "x" * 5000
HERE = {  # files of the current folder, beside two scores of OpenAI-ES on CartPole
    "bad.toml": "environments = ['esbench/Sphere-v0']\nalgorithms.openai_es = {}\n"
    "budget.env_steps = 240\ntune.openai_es.population_size = [8, 16]\n",
    "broken_here.py": "1 / 0",
    "lacks_here.py": "import nothing_there",
    "old_nets.py": "from esbench.layers import Linear\n",
    "old_search.py": "from esbench.algorithms.settings import AlgorithmSettings\n",
}
REFUSED = {
    "table nowhere": "nowhere",
    "run quick --env-steps 1e5": "--env-steps '1e5': expected an integer",
    "eval": "expected either a trial's folder or --random-policy",
    "eval somewhere --seed 5": "--seed 5: expected --random-policy ENV or a row",
    "table out --wide --format json": "--wide with --format json: expected one of text, markdown",
    "baseline out --suggest --replace": "--replace: expected --out",
    f"verify {__file__} --leaderboard elsewhere": "TRIAL with --leaderboard elsewhere",
    "verify out --sample 1": "--sample 1 with out, a folder of trials: expected a leaderboard",
    "bench --env CartPole-v1 --rounds 0": "rounds = 0: expected at least 1",
    "bench --env CartPole-v1 --set seeds=[0,1]": "2 trials",
    "bench --algorithm ppo --rounds 1": "an agent",
    "check out --baseline b.json --markdown ''": "--markdown",
    f"{RUN} --out {__file__}": "test_bad_input.py is a file",
    f"{RUN} --out /dev/null/out": "/dev/null is a file; expected a folder",
    "list --settings mpl": "unknown algorithm, agent, policy or behavior 'mpl'; did you mean 'mlp'",
    # What the user names is not there, or something else.
    "plan --env Missing-v0 --algorithm openai_es": MISSING,
    # One trial is checked in this process, which is the one that knows the name.
    "run --env Missing-v0 --algorithm openai_es --seeds 0": MISSING,
    f"run --env doubles:Spaces-v0 --algorithm snes --seeds 0 --set '{SPACES}'": "a Text space",
    f"{RUN} --env CartPole-v7": "unknown environment 'CartPole-v7'; did you mean",
    f"{RUN} --env broken_here:Env-v0": (
        r"cannot import 'broken_here' \(ZeroDivisionError: division by zero"
    ),
    f"{RUN} --env lacks_here:Env-v0": (
        r"'lacks_here' \(No module named 'nothing_there'; expected 'nothing_there' in"
    ),
    # Nearer to an environment that is not of this package.
    f"{RUN} --env doubles:Walker2d-v0": "did you mean 'doubles:Walk-v0'",
    f"{WRAPPED}'[{{wrapper=\"gymnasium.wrappers:TimeAwareObservatio\"}}]'": (
        "did you mean 'TimeAwareObservation'"
    ),
    f"{WRAPPED}'[{{wrapper=\"gymnasium.wrappers:TimeLimit\",steps=3}}]'": (
        "TimeLimit' with arguments {'steps': 3}: TypeError: .*'steps'"
    ),
    f"{WRAPPED}'[{{wrapper=\"builtins:repr\"}}]'": "'builtins:repr': cannot import",
    f"{WRAPPED}'{NORMALIZE}'": "NormalizeReward keeps state",
    f"{WRAPPED.replace('run', 'plan', 1)}'{NORMALIZE}'": "NormalizeReward keeps state",
    f"{PLAN} own_search:Derived": "own_search:Derived.*not an algorithm",
    f"{PLAN} own_search:Unfinished": "own_search:Unfinished.*lacks _ask",
    f"{PLAN} own_search:OtherSettings": "own_search:OtherSettings.*AlgorithmSettings",
    f"{PLAN} own_search:Mime": "own_search:Mime.*'Mine'",
    f"{PLAN} old_search:Mine": r"esbench\.algorithms\.search_settings",
    f"{RUN} --set policy.template=old_nets:Net": r"policy 'old_nets:Net'.*esbench\.layers",
    f"{RUN} --callback math": "'math'",
    f"{RUN} --callback math:none": "'math:none'",
    f"{RUN} --callback math:pi": "'math:pi'",
    f"{RUN} --callback nothing:stop": "'nothing:stop'",
    f"{RUN} --track tensorbord": "'tensorbord'.*'tensorboard'",
    f"{RUN} --track command_line:python": "command_line:python.*Tracker",
    "run quick --skip CartPol-v1": "skip.*'CartPol-v1'.*'CartPole-v1'",
    f"{RUN} --skip openai": "'openai'.*'openai_es'",
    f"{RUN} --skip openai_es": "nothing to run",
    "plan quick --skip CartPole-v1 --skip Acrobot-v1": "nothing to run",
    "plot out --figures CartPole": "figure.*'CartPole'.*'CartPole-v1'",
    "table out --rename snes": "--rename snes.*OLD=NEW",
    "table out --rename openai=x": "'openai'.*'openai_es'",
    # Settings
    "run quick --set defaults=3": "defaults = 3.*boolean",
    f"{RUN} --set {ADAM}.beta=1": r"optimizer adam: unknown key beta \(= 1\); .* 'betas'",
    f"{STATUS} --set '{CARTPOLE}.behavior=\"nope\"'": "final_position",
    f"{STATUS} --set \"environment=''\" --set policy.template=linear": "environment",
    f"{STATUS} --set algorithms.openai_es.population_size=1000000000000": "1000000000000",
    f"{STATUS} --set evaluation.episodes={'9' * 5000}": "an integer",
    f"{STATUS} --set policy.{'.'.join('a' * 5000)}=1": "JSON",
    f"status --env {LONG} --algorithm openai_es": "environment",
    f"table {LONG}": "name too long",
    "tune quick": "--all",
    "tune bad.toml --tuning-seeds 0-3": "0, 1, 2",
    "tune bad.toml --storage bad.toml": "bad.toml",
    "tune bad.toml --set tune.openaies.sigma=false": "openai_es",
    # Workers, nodes and shards
    f"{RUN},1 --workers 0 --episode-timeout 5": "workers",
    f"{RUN},1 --workers 0 --trial-timeout 5": "workers",
    f"{RUN},1 --workers 0 --at-once 2": "workers",
    f"{RUN} --workers 0 --engine ray": "workers",
    f"{RUN} --workers -1": "workers",
    f"{RUN} --engine ray --address nowhere": "nowhere",
    f"{RUN} --engine ray --address 127.0.0.1:9": "127.0.0.1:9",  # no server
    f"{RUN} --address 127.0.0.1:6379": "127.0.0.1:6379",
    f"{RUN} --allow-mixed": "mixed",
    f"run {SIX} --shard 5/4": "5/4",
    f"plan {SIX} --shard x": "'x'",
    f"status {SIX} --shard 1/7": "7",
    f"slurm {SIX} --submit --array 7": "7 shards .* 6 trials",
    f"slurm {SIX} --submit --array 2 --sbatch array=3": "--sbatch 'array=3'",
    f"slurm {SIX} --submit --array 2 --time 4:59": "--time '4:59'.* 5 minutes",
    f"slurm {SIX} --submit --array 2 --cpus-per-task 2 --at-once 3": "at_once = 3",
    f"slurm {SIX} --submit --array 2 --set budget.env_step=3": "'env_steps'",
    f"slurm {SIX} --submit --array 2 --callback math:sqrtt": "sqrtt",
    # Trust without data
    "eval --trust": "expected either a trial's folder",
    "eval --random-policy CartPole-v1 --trust": "trust",
    "verify --trust": "expected a trial's folder",
    "check out --baseline b.json --trust": "trust",
    "run quick --trust": "trust",
}


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: command[:150])
def test_a_command_that_cannot_be_run_is_refused(
    refused: Refused, tmp_path: Path, command: str
) -> None:
    write_scores(tmp_path / "out", [400.0, 450.0])
    for name, text in HERE.items():
        (tmp_path / name).write_text(text)
    sentence = refused(*shlex.split(command))
    assert re.search(REFUSED[command], sentence), sentence
    assert len(sentence) < LONGEST_LINE
