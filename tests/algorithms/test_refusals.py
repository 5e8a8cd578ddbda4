"""Settings that algorithms refuse, with a message that names the value or the nearest name."""

from typing import Any

import pytest
from searches import P, maker

from esbench.algorithms.nes import MOST_PARAMS
from esbench.core.errors import UsageError

GROWS = {"num_interactions": 100, "population_size": 8}
MANY = {"center_init": 0.0}
TWO = [0.1, 0.2]
LAST = [0.1] * (P - 1) + [0.4]

CASES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "openai_es": [
        ({"population_size": 7}, "population_size = 7: expected an even number"),
        ({"sigma": TWO}, rf"sigma = \[0.1, 0.2\]: expected .* a list of {P}"),
        ({"sigma": 0.1, "radius": 1.0}, "exactly one of them"),
        ({"shaping": "centred"}, "did you mean 'centered'"),
        ({"optimizer": "adm"}, "did you mean 'adam'"),
        ({**GROWS, "population_size_max": 6}, "population_size_max = 6"),
        ({"antithetic": False, "population_size": 1}, "population_size = 1: .*at least 2"),
        ({"center_init": [1.0, 2.0]}, "center_init"),
        ({"sigma": 0.1, "sigma_min": 0.5}, r"sigma_min = 0\.5: .*sigma \(0\.1\)"),
        (
            {"sigma": None, "radius": 0.1, "sigma_min": 0.05},
            r"sigma_min = 0\.05.*radius = 0\.1.*0\.0377964",
        ),
    ],
    "csa_es": [({**GROWS, "population_size": None, "population_size_max": 2}, r"\(9\)")],
    "eggroll": [
        ({"sigma": [0.1] * P}, "sigma = .*: expected a number"),
        ({"shapes": ((5, 4),)}, f"expected {P} numbers"),
    ],
    "ars": [
        ({"population_size": 8, "num_pairs": 8}, "population_size = 8 and num_pairs = 8"),
        ({"population_size": 16, "num_best": 9}, r"num_best = 9: .*\(8\)"),
        ({"num_best": 4, "version": "V1"}, "num_best = 4 with version = 'V1'.*V1-t"),
        ({"population_size": 64, "num_pairs": 6_000_000}, "num_pairs = 6000000: .*5000000"),
    ],
    "pgpe": [
        ({"sigma_min": 0.2, "sigma_max": 0.1}, "sigma_min = 0.2: .*sigma_max"),
        ({"sigma_min": LAST, "sigma_max": [0.3] * P}, r"sigma_min = .*0\.4.*sigma_max .*0\.3"),
    ],
    "pepg": [
        ({"population_size": 7}, "population_size = 7: expected an even number"),
        ({"antithetic": False}, "unknown key antithetic"),
    ],
    "snes": [
        ({"population_size": 7, "antithetic": True}, "population_size = 7: expected an even"),
        ({"population_size_max": 16}, "population_size_max = 16: .*num_interactions"),
    ],
    "xnes": [
        ({**MANY, "num_params": MOST_PARAMS + 1}, "2001 .*at most 2000.*snes"),
        ({"optimizer_settings": {"weight_decay": 0.1}}, "weight_decay"),
    ],
    "cem": [
        ({"population_size": 7}, "elite_ratio = 0.25 of population_size = 7 is 1: .*at least 2"),
        ({**MANY, "population_size": None, "num_params": 1}, "at least 2 elites"),
    ],
    "genetic": [
        ({"population_size": 1}, "population_size = 1"),
    ],
    "ns_es": [({"novelty_weight": 0.5}, "unknown key novelty_weight")],
    "nsra_es": [
        (
            {"novelty_weight": 0.5, "novelty_weight_max": 0.2},
            r"novelty_weight = 0\.5: expected at most novelty_weight_max \(0\.2\)",
        ),
    ],
    "random_search": [({"distribution": "unifrom"}, "did you mean 'uniform'")],
    "cma_es": [
        ({**MANY, "num_params": 1_001}, "1,001 .*at most 1,000.*=linear"),
        ({**MANY, "num_params": 1_000, "population_size": 251}, "= 251 .*at most 250"),
        ({"population_size": 1}, "population_size = 1"),
        ({"sigma": [0.1] * P}, "sigma = .*: expected a number"),
        ({"sigma": 0.1, "radius": 0.1}, "exactly one of them"),
    ],
    "sep_cma_es": [
        ({**MANY, "num_params": 10, "population_size": 80}, "= 80 .*at most 79, .*cma_es"),
        ({**MANY, "num_params": 1}, "1 parameter.*at least 2.* cma_es"),
    ],
}


@pytest.mark.parametrize(
    ("name", "given", "words"), [(name, *case) for name, cases in CASES.items() for case in cases]
)
def test_a_bad_setting_is_named(name: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        maker(name)(**given)
    assert "\n" not in str(caught.value)  # one sentence
