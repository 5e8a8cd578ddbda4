from typing import Any

import numpy as np
import pytest
import torch

import esbench
from esbench.core.errors import UsageError
from esbench.experiment.search_trainer import SearchTrainer


class Net(torch.nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int, width: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(num_inputs, width), torch.nn.Tanh(), torch.nn.Linear(width, num_outputs)
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(observations)
        return output


def test_an_algorithm_for_any_function() -> None:
    start = np.arange(4.0)
    settings = {"population_size": np.int64(60), "center_init": start, "sigma": 0.1}
    algorithm = esbench.make_algorithm("openai_es", num_params=4, **settings)
    np.testing.assert_array_equal(algorithm.center, start)
    population = algorithm.ask()
    assert len(population) == 60
    assert population.members().shape == (60, 4)
    algorithm.tell(population, -np.square(population.members()).sum(axis=1))
    assert np.square(algorithm.center).sum() < np.square(start).sum()
    assert start.tolist() == [0, 1, 2, 3]


def test_a_trainer_has_the_tuned_settings_below_its_own() -> None:
    with esbench.make_trainer(
        "openai_es",
        env="HalfCheetah-v5",
        seed=4,
        policy={"hidden": [8]},
        environment={"max_episode_steps": 7},
        budget={"env_steps": 10},
        evaluation={"episodes": 2},
        sigma=0.5,
    ) as trainer:
        spec = trainer.spec
    assert spec.seed == 4
    algorithm, policy = (spec.as_json()[part]["settings"] for part in ("algorithm", "policy"))
    assert algorithm["sigma"] == 0.5
    assert algorithm["population_size"] == 32  # of envs/HalfCheetah-v5.toml
    assert policy["hidden"] == [8]
    assert policy["normalize_observations"] is True
    assert spec.environment.max_episode_steps == 7
    assert (spec.budget.env_steps, spec.evaluation.episodes) == (10, 2)


@pytest.mark.parametrize("sigma", [[0.1] * 8, (0.1,) * 8, list(range(1, 9)), tuple(range(1, 9))])
def test_a_list_or_a_tuple_is_one_value(sigma: Any) -> None:
    with esbench.make_trainer("snes", env="CartPole-v1", policy="linear", sigma=sigma) as trainer:
        assert trainer.spec.as_json()["algorithm"]["settings"]["sigma"] == list(sigma)
    with pytest.raises(UsageError, match=r"sigma = \[0\.1\]: expected .* 8"):
        esbench.make_trainer("snes", env="CartPole-v1", policy="linear", sigma=(0.1,))


@pytest.mark.parametrize("policy", ["linear", {"template": "linear"}, Net])
def test_policies_by_name_table_and_class(policy: object) -> None:
    with esbench.make_trainer("openai_es", env="CartPole-v1", policy=policy) as trainer:  # type: ignore[arg-type]
        assert isinstance(trainer, SearchTrainer)
        assert trainer.template.num_params == (8 if policy is not Net else 4 * 3 + 3 + 3 * 2 + 2)
