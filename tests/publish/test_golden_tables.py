"""Every table in every format of text, as stored in the folder ``golden``.

To accept a change, delete the files, run this test and read the difference that git shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Run
from fake_trials import edit, make_records, make_trials, write_runs, write_scores, write_trial

GOLDEN = Path(__file__).with_name("golden")
COMMANDS = {
    "scores": "table out --tail",
    "by-sigma": "table out --by sigma",
    "wide": "table out --wide",
    "wide-tail": "table out --wide --tail",
    "efficiency": "efficiency out --target 60",
    "compare": "compare openai_es pgpe --in out",
    "compare-areas": "compare openai_es pgpe --in out --statistic area",
}


def write_folder(root: Path) -> None:
    """Trials with most of what a table can say."""
    for name in ("Acrobot-v1", "CartPole-v1"):
        write_runs(root, [[20.0, 60.0 + seed] * 5 for seed in range(5)], 90.0, environments=[name])
        for algorithm, scores in (("pgpe", [70.0, 71.0, math.nan, 72.0]), ("ars", [1.0, 2.0, 3.0])):
            write_scores(root, scores, environments=[name], algorithms={algorithm: {}})
    write_scores(root, [5.0, 6.0, 7.0], environments=["Pendulum-v1"])
    for trial in make_trials(root, algorithms={"snes": {"sigma": [0.1, 0.2]}}):
        write_trial(trial, make_records([15.0, 30.0]), 30.0)
    small = {"algorithms": {"cem": {}}, "policy": {"hidden": [4]}}
    write_scores(root, [8.0] * 2, environments=["Pendulum-v1"], **small)
    write_scores(root, [8.0] * 3, algorithms={"xnes": {}}, budget={"env_steps": 2000})
    for trial in make_trials(root, seeds=[9]):
        write_trial(trial, make_records([1.0]), error="Traceback")
    returns = [float(n) for n in range(20)]
    edit(root / "CartPole-v1/openai_es", "result.json", lambda c: c.update(returns=returns))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_table_is_that_of_its_golden_file(
    name: str,
    esbench: Run,
    tmp_path: Path,
    freeze: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    freeze("CartPole-v1", comparable="true")
    freeze("Acrobot-v1")
    with (tmp_path / "envs/Acrobot-v1.toml").open("a") as file:
        file.write("[algorithms.openai_es]\nsigma = 0.2\n")
    write_folder(tmp_path / "out")
    for format_ in ("text", "markdown", "latex"):
        code, out, err = esbench(*COMMANDS[name].split(), "--format", format_)
        assert (code, err) == (0, "")
        path = GOLDEN / f"{name}.{format_}"
        if not path.exists():
            path.write_text(out, encoding="utf-8")
        assert out == path.read_text(encoding="utf-8")
