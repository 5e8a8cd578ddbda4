"""Settings that algorithms refuse, with a message that names the value or the nearest name."""

from typing import Any

import pytest
from searches import P, maker

from esbench.algorithms.nes import MOST_PARAMS
from esbench.core.errors import UsageError

GROWS = {"num_interactions": 100}

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("openai_es", {"population_size": 7}, "population_size = 7: expected an even number"),
    ("openai_es", {"sigma": 0.0}, "sigma = 0"),
    (
        "openai_es",
        {"sigma": [0.1, 0.2]},
        rf"sigma = \[0.1, 0.2\]: expected .* a list of {P}",
    ),
    ("openai_es", {"sigma": 0.1, "radius": 1.0}, "exactly one of them"),
    ("openai_es", {"learning_rate": 0.0}, "learning_rate = 0"),
    ("openai_es", {"weight_decay": -0.1}, "weight_decay = -0.1"),
    ("openai_es", {"shaping": "centred"}, "did you mean 'centered'"),
    ("openai_es", {"optimizer": "adm"}, "did you mean 'adam'"),
    ("openai_es", {"optimizer_settings": {"beta": 1}}, "did you mean 'betas'"),
    ("openai_es", {"sigam": 0.1}, "did you mean 'sigma'"),
    (
        "openai_es",
        {**GROWS, "population_size": 8, "population_size_max": 6},
        "population_size_max = 6",
    ),
    (
        "openai_es",
        {**GROWS, "population_size": 8, "population_size_max": 9},
        "size_max = 9: .*even",
    ),
    ("csa_es", {**GROWS, "population_size": None, "population_size_max": 2}, r"\(9\)"),
    ("snes", {"population_size_max": 16}, "population_size_max = 16: .*num_interactions"),
    ("openai_es", {"antithetic": False, "population_size": 1}, "population_size = 1: .*at least 2"),
    ("openai_es", {"center_init": [1.0, 2.0]}, "center_init"),
    ("openai_es", {"sigma": 0.1, "sigma_min": 0.5}, r"sigma_min = 0\.5: .*\(0\.1\)"),
    (
        "openai_es",
        {"sigma": [0.2] * 6 + [0.05], "sigma_min": 0.1},
        r"sigma_min of parameter 6 = 0\.1: .*\(0\.05\)",
    ),
    (
        "openai_es",
        {"sigma": None, "radius": 0.1, "sigma_min": 0.05},
        r"sigma_min = 0\.05.*radius = 0\.1.*0\.0377964",
    ),
    ("openai_es", {"sigma_decay": 1.5}, "sigma_decay = 1.5"),
    ("openai_es", {"sigma_decay": 0.0}, "sigma_decay = 0"),
    ("openai_es", {"sigma_min": 0.0}, "sigma_min = 0"),
    ("eggroll", {"rank": 0}, "rank = 0"),
    ("eggroll", {"rank": 1.5}, "rank = 1.5"),
    ("eggroll", {"sigma": [0.1] * P}, "sigma = .*: expected a number"),
    ("eggroll", {"shapes": ((5, 4),)}, f"expected {P} numbers"),
    ("ars", {"num_pairs": 0}, "num_pairs = 0"),
    ("ars", {"num_pairs": "8"}, 'num_pairs = "8": expected an integer'),
    ("ars", {"population_size": 8, "num_pairs": 8}, "population_size = 8 and num_pairs = 8"),
    ("ars", {"population_size": 16, "num_best": 9}, r"num_best = 9: .*\(8\)"),
    ("ars", {"population_size": None, "num_pairs": 4, "num_best": 5}, r"num_best = 5: .*\(4\)"),
    ("ars", {"num_best": 0}, "num_best = 0"),
    ("ars", {"num_best": 4, "version": "V1"}, "num_best = 4 with version = 'V1'.*V1-t"),
    ("ars", {"num_best": 4, "version": "V2"}, "num_best = 4 with version = 'V2'.*V2-t"),
    ("ars", {"version": "v2"}, "did you mean 'V2'"),
    ("ars", {**GROWS, "population_size_max": 8}, "population_size_max = 8"),
    ("ars", {"population_size": 64, "num_pairs": 6_000_000}, "num_pairs = 6000000: .*5000000"),
    ("pgpe", {"sigma_learning_rate": -0.1}, "sigma_learning_rate = -0.1"),
    ("pgpe", {"sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min = 0.2: .*sigma_max"),
    (
        "pgpe",
        {"sigma_min": [0.1] * 6 + [0.2], "sigma_max": [0.3] * 6 + [0.15]},
        r"sigma_min of parameter 6 = 0\.2: .*\(0\.15\)",
    ),
    ("pgpe", {"optimizer": "clip_up"}, "did you mean 'clipup'"),
    ("pepg", {"population_size": 7}, "population_size = 7: expected an even number"),
    ("pepg", {"antithetic": False}, "unknown key antithetic"),
    ("snes", {"population_size": 7, "antithetic": True}, "population_size = 7: expected an even"),
    ("snes", {"shaping": "ness"}, "did you mean 'nes'"),
    ("xnes", {"num_params": MOST_PARAMS + 1, "center_init": 0.0}, "2001 .*at most 2000.*snes"),
    ("xnes", {"sigma_min": 0.1}, "unknown key sigma_min"),
    ("xnes", {"optimizer_settings": {"weight_decay": 0.1}}, "weight_decay"),
    ("xnes", {"optimizer": "AdamW"}, "weight_decay"),
    ("xnes", {"sigma_max_change": 0.1}, "unknown key sigma_max_change"),
    ("cem", {"population_size": 7}, "elite_ratio = 0.25 of population_size = 7 is 1: .*at least 2"),
    ("cem", {"population_size": None, "num_params": 1, "center_init": 0.0}, "at least 2 elites"),
    ("cem", {"elite_ratio": 0.0}, "elite_ratio = 0"),
    ("cem", {"elite_ratio": 1.0}, "elite_ratio = 1"),
    ("cem", {"extra_sigma_ratio": -0.1}, "extra_sigma_ratio = -0.1"),
    ("cem", {"extra_sigma_generations": 0}, "extra_sigma_generations = 0"),
    ("cem", {"sigma": [0.1, 0.2]}, rf"sigma = \[0.1, 0.2\]: expected .* a list of {P}"),
    ("cem", {"sigma_learning_rate": 0.1}, "unknown key sigma_learning_rate"),
    ("genetic", {"population_size": 1}, "population_size = 1"),
    ("genetic", {"num_parents": 0}, "num_parents = 0"),
    ("genetic", {"elite_candidates": 1}, "elite_candidates = 1"),
    ("genetic", {"elite_episodes": -1}, "elite_episodes = -1"),
    ("genetic", {"sigma_init": 0.0}, "sigma_init = 0"),
    (
        "genetic",
        {"sigma_init": [0.1, 0.2]},
        rf"sigma_init = \[0.1, 0.2\]: expected .* a list of {P}",
    ),
    ("ns_es", {"k": 0}, "k = 0"),
    ("ns_es", {"meta_population_size": 0}, "meta_population_size = 0"),
    ("ns_es", {"archive_size_max": 0}, "archive_size_max = 0"),
    ("ns_es", {"center_spread": -1.0}, "center_spread = -1"),
    ("ns_es", {"probe_episodes": 0}, "probe_episodes = 0"),
    ("ns_es", {"novelty_weight": 0.5}, "unknown key novelty_weight"),
    ("nsr_es", {"novelty_weight": 1.5}, "novelty_weight = 1.5"),
    ("nsr_es", {"weight_delta": 0.1}, "unknown key weight_delta"),
    ("nsra_es", {"weight_delta": -0.1}, "weight_delta = -0.1"),
    ("nsra_es", {"weight_patience": 0}, "weight_patience = 0"),
    (
        "nsra_es",
        {"novelty_weight": 0.5, "novelty_weight_max": 0.2},
        r"novelty_weight = 0\.5: expected at most novelty_weight_max \(0\.2\)",
    ),
    ("random_search", {"distribution": "unifrom"}, "did you mean 'uniform'"),
    ("cma_es", {"num_params": 1_001, "center_init": 0.0}, "1,001 .*at most 1,000.*=linear"),
    ("cma_es", {"num_params": 10**6, "center_init": 0.0}, "1,000,000 .*at most 1,000"),
    (
        "cma_es",
        {"num_params": 1_000, "center_init": 0.0, "population_size": 251},
        "population_size = 251 .*at most 250",
    ),
    (
        "sep_cma_es",
        {"num_params": 10, "center_init": 0.0, "population_size": 80},
        "population_size = 80 .*at most 79, .*cma_es",
    ),
    ("sep_cma_es", {"num_params": 1, "center_init": 0.0}, "1 parameter.*at least 2.* cma_es"),
    ("cma_es", {"center_init": 1e33}, "cmaes"),
    ("cma_es", {"population_size": 1}, "population_size = 1"),
    ("cma_es", {"sigma": [0.1] * P}, "sigma = .*: expected a number"),
    ("cma_es", {"sigma": 0.0}, "sigma = 0"),
    ("cma_es", {"sigma": 0.1, "radius": 0.1}, "exactly one of them"),
]


@pytest.mark.parametrize(("name", "given", "facts"), CASES)
def test_a_bad_setting_is_named(name: str, given: dict[str, Any], facts: str) -> None:
    with pytest.raises(UsageError, match=facts) as caught:
        maker(name)(**given)
    assert "\n" not in str(caught.value)  # one sentence
