"""The published suites: their environments, budgets, seeds, policies and algorithms."""

from pathlib import Path

import pytest

from esbench.core.errors import UsageError
from esbench.experiment.trials import Trial, open_grid
from esbench.grids.trainers import is_agent

NINE = {
    *("openai_es", "ars", "pgpe", "snes", "csa_es", "sep_cma_es", "cma_es", "genetic"),
    "random_search",
}
# By suite: template, algorithms, and the steps in millions and number of seeds per environment.
SUITES: dict[str, tuple[str, set[str], dict[str, tuple[float, int]]]] = {
    "mujoco": (
        "linear",
        NINE | {"ppo"},
        {
            "Swimmer-v5": (0.5, 10),
            "InvertedDoublePendulum-v5": (0.3, 10),
            "Hopper-v5": (1, 10),
            "HalfCheetah-v5": (3, 10),
            "Walker2d-v5": (2, 10),
        },
    ),
    "mujoco-mlp": (
        "mlp",
        {"openai_es", "ars", "pgpe", "snes", "sep_cma_es", "eggroll"},
        {"HalfCheetah-v5": (3, 10), "Hopper-v5": (1, 10)},
    ),
    "control": (
        "linear",
        NINE | {"nsra_es"},
        {
            "CartPole-v1": (0.5, 10),
            "Acrobot-v1": (0.5, 10),
            "Pendulum-v1": (0.5, 10),
            "MountainCarContinuous-v0": (0.5, 10),
            "LunarLander-v3": (0.5, 10),
            "BipedalWalker-v3": (2, 5),
        },
    ),
    "pong-ram": (
        "linear",
        {"openai_es", "ars", "csa_es", "sep_cma_es", "cma_es"},
        {"esbench/Pong-ram-v5": (10, 5), "ale_py:PongNoFrameskip-v4": (10, 5)},
    ),
    "pong-positions": (
        "linear",
        {"cma_es", "cma_es_averaged", "xnes"},
        {"esbench/Pong-ram-v5": (5, 3)},
    ),
    "pong": ("mlp", {"openai_es", "pgpe", "eggroll"}, {"esbench/Pong-v5": (10, 3)}),
}
ONLY_IN = {"nsra_es": {"MountainCarContinuous-v0"}}


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_has_the_published_budgets_policies_and_seeds(suite: str, tmp_path: Path) -> None:
    template, algorithms, environments = SUITES[suite]
    found: dict[tuple[str, str], list[int]] = {}
    for trial in open_grid(suite, out=tmp_path)[1]:
        spec, environment = trial.spec, trial.spec.environment.id
        found.setdefault((environment, trial.labels["algorithm"]), []).append(spec.seed)
        assert spec.budget.env_steps == environments[environment][0] * 1_000_000
        assert spec.evaluation.episodes == 100
        if spec.policy is None:
            assert is_agent(spec.algorithm.name)
            continue
        assert spec.policy.template == template
        assert spec.policy.settings.normalize_observations
        if suite == "mujoco-mlp":
            assert spec.policy.settings.model_dump(mode="json")["hidden"] == [64, 64]
    assert found == {
        (environment, name): list(range(5 if name == "ppo" else seeds))
        for environment, (_, seeds) in environments.items()
        for name in algorithms
        if environment in ONLY_IN.get(name, environments)
    }


@pytest.mark.parametrize("suite", SUITES)
def test_a_part_of_a_suite_is_the_same_as_in_the_whole(suite: str, tmp_path: Path) -> None:
    whole = [trial.spec.hash for trial in open_grid(suite, out=tmp_path)[1]]
    environments = SUITES[suite][2]
    parts = [
        trial.spec.hash
        for environment in environments
        for name in sorted(SUITES[suite][1])
        if environment in ONLY_IN.get(name, environments)
        for trial in open_grid(suite, environments=[environment], algorithms=[name], out=tmp_path)[
            1
        ]
    ]
    assert sorted(parts) == sorted(whole)


def test_settings_of_an_unknown_algorithm_are_refused_also_in_a_part(tmp_path: Path) -> None:
    text = GRID.replace("seeds = [5]", "algorithms.arz.sigma = 0.1")
    for chosen in ([], ["ars"], ["openai_es"]):
        with pytest.raises(UsageError, match="algorithms.arz"):
            trials(tmp_path, text, algorithms=chosen)


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


def trials(path: Path, text: str, **options: str | list[str]) -> list[Trial]:
    file = path / "grid.toml"
    file.write_text(text)
    return open_grid(str(file), out=path / "out", **options)[1]  # type: ignore[arg-type]


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
        specs = [trial.spec for trial in trials(tmp_path, GRID, **options)]
        return [(spec.environment.id[0], spec.algorithm.name, spec.seed) for spec in specs]

    acrobot = [("A", "openai_es", seed) for seed in (0, 1, 2)]
    assert cells() == [("C", "openai_es", 5), *acrobot, ("A", "ars", 7), ("A", "ars", 8)]
    assert cells(seeds="4") == [("C", "openai_es", 4), ("A", "openai_es", 4), ("A", "ars", 4)]
    assert cells(environments=["CartPole-v1"]) == [("C", "openai_es", 5)]
    with pytest.raises(UsageError, match="nothing to run"):
        cells(environments=["CartPole-v1"], algorithms=["ars"])


@pytest.mark.parametrize(
    ("wrong", "value"),
    [
        ('environments = ["Acrobat-v1"]', "Acrobat-v1"),
        ("seeds = []", "algorithms.ars.seeds"),
        ("seeds = [7, 7]", "7 is given 2 times"),
    ],
)
def test_a_wrong_scope_is_refused(wrong: str, value: str, tmp_path: Path) -> None:
    own = 'seeds = [7, 8]\nenvironments = ["Acrobot-v1"]'
    assert own in GRID
    with pytest.raises(UsageError, match=value):
        trials(tmp_path, GRID.replace(own, wrong))
