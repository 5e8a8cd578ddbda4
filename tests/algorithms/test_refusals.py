"""Settings that algorithms refuse, with a message that names the value or the nearest name."""

from typing import Any

import pytest
from searches import P, maker

from esbench.algorithms.nes import MOST_PARAMS
from esbench.core.errors import UsageError

GROWS = {"num_interactions": 100}

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("openai_es", {"population_size": 7}, "population_size = 7: expected an even number"),
    (
        "openai_es",
        {"sigma": [0.1, 0.2]},
        rf"sigma = \[0.1, 0.2\]: expected .* a list of {P}",
    ),
    ("openai_es", {"sigma": 0.1, "radius": 1.0}, "exactly one of them"),
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
    ("eggroll", {"sigma": [0.1] * P}, "sigma = .*: expected a number"),
    ("eggroll", {"shapes": ((5, 4),)}, f"expected {P} numbers"),
    ("ars", {"population_size": 8, "num_pairs": 8}, "population_size = 8 and num_pairs = 8"),
    ("ars", {"population_size": 16, "num_best": 9}, r"num_best = 9: .*\(8\)"),
    ("ars", {"population_size": None, "num_pairs": 4, "num_best": 5}, r"num_best = 5: .*\(4\)"),
    ("ars", {"num_best": 4, "version": "V1"}, "num_best = 4 with version = 'V1'.*V1-t"),
    ("ars", {"num_best": 4, "version": "V2"}, "num_best = 4 with version = 'V2'.*V2-t"),
    ("ars", {**GROWS, "population_size_max": 8}, "population_size_max = 8"),
    ("ars", {"population_size": 64, "num_pairs": 6_000_000}, "num_pairs = 6000000: .*5000000"),
    ("pgpe", {"sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min = 0.2: .*sigma_max"),
    (
        "pgpe",
        {"sigma_min": [0.1] * 6 + [0.2], "sigma_max": [0.3] * 6 + [0.15]},
        r"sigma_min of parameter 6 = 0\.2: .*\(0\.15\)",
    ),
    ("pepg", {"population_size": 7}, "population_size = 7: expected an even number"),
    ("pepg", {"antithetic": False}, "unknown key antithetic"),
    ("snes", {"population_size": 7, "antithetic": True}, "population_size = 7: expected an even"),
    ("xnes", {"num_params": MOST_PARAMS + 1, "center_init": 0.0}, "2001 .*at most 2000.*snes"),
    ("xnes", {"sigma_min": 0.1}, "unknown key sigma_min"),
    ("xnes", {"optimizer_settings": {"weight_decay": 0.1}}, "weight_decay"),
    ("xnes", {"optimizer": "AdamW"}, "weight_decay"),
    ("cem", {"population_size": 7}, "elite_ratio = 0.25 of population_size = 7 is 1: .*at least 2"),
    ("cem", {"population_size": None, "num_params": 1, "center_init": 0.0}, "at least 2 elites"),
    ("cem", {"sigma": [0.1, 0.2]}, rf"sigma = \[0.1, 0.2\]: expected .* a list of {P}"),
    ("genetic", {"population_size": 1}, "population_size = 1"),
    (
        "genetic",
        {"sigma_init": [0.1, 0.2]},
        rf"sigma_init = \[0.1, 0.2\]: expected .* a list of {P}",
    ),
    ("ns_es", {"novelty_weight": 0.5}, "unknown key novelty_weight"),
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
    ("cma_es", {"sigma": 0.1, "radius": 0.1}, "exactly one of them"),
]


@pytest.mark.parametrize(("name", "given", "facts"), CASES)
def test_a_bad_setting_is_named(name: str, given: dict[str, Any], facts: str) -> None:
    with pytest.raises(UsageError, match=facts) as caught:
        maker(name)(**given)
    assert "\n" not in str(caught.value)  # one sentence
