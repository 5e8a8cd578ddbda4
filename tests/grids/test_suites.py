"""Parts of suites, and grids whose algorithms have seeds and environments of their own.

That the suites are those of the published rows is tested with the leaderboard.
"""

from pathlib import Path

import pytest
from test_grid_file import opened

from esbench.core.errors import UsageError
from esbench.experiment.trials import open_grid


@pytest.mark.parametrize("suite", ["control", "mujoco-mlp"])
def test_a_part_of_a_suite_is_the_same_as_in_the_whole(suite: str, tmp_path: Path) -> None:
    whole: dict[tuple[str, str], list[str]] = {}
    for trial in open_grid(suite, out=tmp_path)[1]:
        part = trial.spec.environment.id, trial.labels["algorithm"]
        whole.setdefault(part, []).append(trial.spec.hash)
    for (environment, name), hashes in whole.items():
        options = {"environments": [environment], "algorithms": [name]}
        _, alone = open_grid(suite, **options, out=tmp_path)
        assert [trial.spec.hash for trial in alone] == hashes


def test_settings_of_an_unknown_algorithm_are_refused_also_in_a_part(tmp_path: Path) -> None:
    text = GRID.replace("seeds = [5]", "algorithms.arz.sigma = 0.1")
    for chosen in ([], ["ars"], ["openai_es"]):
        with pytest.raises(UsageError, match="algorithms.arz"):
            opened(tmp_path, text, algorithms=chosen)


def test_the_memory_of_pong_is_observed_with_and_without_sticky_actions(tmp_path: Path) -> None:
    from ale_py.env import AtariEnv

    from esbench.environments.make_environment import make_environment

    repeats = {}
    for trial in open_grid("pong-ram", algorithms=["ars"], seeds="0", out=tmp_path)[1]:
        env = make_environment(trial.spec.environment.id, trial.spec.environment.kwargs)
        assert env.observation_space.shape == (128,)
        emulator = env.unwrapped
        assert isinstance(emulator, AtariEnv)
        repeats[trial.spec.environment.id] = emulator.ale.getFloat("repeat_action_probability")
    assert repeats == {"esbench/Pong-ram-v5": 0.25, "ale_py:PongNoFrameskip-v4": 0.0}


GRID = """
seeds = [0, 1, 2]
environments = ["CartPole-v1", "Acrobot-v1"]
[algorithms.openai_es]
[algorithms.ars]
seeds = [7, 8]
environments = ["Acrobot-v1"]
[environment."CartPole-v1"]
seeds = [5]
"""


def test_seeds_and_environments_of_one_algorithm(tmp_path: Path) -> None:
    def cells(**options: str | list[str]) -> list[tuple[str, str, int]]:
        specs = [trial.spec for trial in opened(tmp_path, GRID, **options)]
        return [(spec.environment.id[0], spec.algorithm.name, spec.seed) for spec in specs]

    acrobot = [("A", "openai_es", seed) for seed in (0, 1, 2)]
    assert cells() == [("C", "openai_es", 5), *acrobot, ("A", "ars", 7), ("A", "ars", 8)]
    assert cells(seeds="4") == [("C", "openai_es", 4), ("A", "openai_es", 4), ("A", "ars", 4)]
    assert cells(environments=["CartPole-v1"]) == [("C", "openai_es", 5)]
    with pytest.raises(UsageError, match="nothing to run"):
        cells(environments=["CartPole-v1"], algorithms=["ars"])
