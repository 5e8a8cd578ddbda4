"""SNES, xNES and CEM make evotorch's updates; PGPE, which needs more care, is in test_pgpe.py."""

import numpy as np
import pytest
from evotorch_oracle import CEM, SNES, XNES, Oracle
from searches import SIZE, START, P, maker, quadratic, tilted

SIGMA = np.linspace(0.1, 0.4, P)
# The other library's name of a setting.
THEIRS = {
    "learning_rate": "center_learning_rate",
    "sigma_learning_rate": "stdev_learning_rate",
    "sigma_min": "stdev_min",
    "sigma_max": "stdev_max",
    "sigma_max_change": "stdev_max_change",
    "shaping": "ranking_method",
    "optimizer": "optimizer",
    "optimizer_settings": "optimizer_config",
    "elite_ratio": "parenthood_ratio",
}
# The class, the deviations, the function, our settings and the tolerance of a hundred updates.
SEARCHES = {
    "snes": (SNES, SIGMA, quadratic, {}, 1e-7),
    "xnes": (XNES, SIGMA, tilted, {}, 1e-7),
    # Without extra variance, which evotorch does not have.
    "cem": (CEM, 5 * SIGMA, quadratic, {"elite_ratio": 0.25, "extra_sigma_ratio": 0.0}, 1e-6),
}


def both(name, ours):
    """Return our search, evotorch's, and the function."""
    cls, sigma, function, settings, tolerance = SEARCHES[name]
    given = settings | ours
    theirs = {THEIRS[key]: value for key, value in given.items() if key in THEIRS}
    if "sigma_learning_rate" in given:
        theirs["scale_learning_rate"] = False
    oracle = Oracle(cls, START, sigma, size=SIZE, **theirs)
    return maker(name)(sigma=sigma, **given), oracle, function, tolerance


# What evotorch has too. The linear and raw utilities of its SNES have a sum other than 0.
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("snes", {}),
        ("snes", {"sigma_learning_rate": 0.1}),
        ("snes", {"learning_rate": 0.5}),
        ("snes", {"shaping": "centered"}),
        ("snes", {"shaping": "normalized"}),
        ("snes", {"sigma_min": 0.05, "sigma_max": 0.3}),
        ("snes", {"sigma_max_change": 0.02}),
        ("snes", {"optimizer": "clipup", "learning_rate": 0.1}),
        ("snes", {"optimizer": "adam", "learning_rate": 0.1}),
        (
            "snes",
            {"optimizer": "sgd", "learning_rate": 1.0, "optimizer_settings": {"momentum": 0.5}},
        ),
        ("xnes", {}),
        ("xnes", {"sigma_learning_rate": 0.1}),
        ("xnes", {"learning_rate": 0.5}),
        ("cem", {}),
        # With few elites the deviations would collapse within 30 updates, until members tie.
        ("cem", {"elite_ratio": 0.1, "sigma_min": 1e-3}),
        ("cem", {"elite_ratio": 0.5, "sigma_min": 1e-3}),
        ("cem", {"elite_ratio": 0.99}),
        ("cem", {"sigma_min": 0.2, "sigma_max": 0.7}),
        ("cem", {"sigma_max_change": 0.1}),
    ],
)
def test_a_hundred_updates_are_evotorchs(name, ours):
    algorithm, oracle, function, tolerance = both(name, ours)
    before = oracle.sigma.copy()
    assert oracle.follow(algorithm, function, 1) < 1e-13
    assert oracle.follow(algorithm, function, 99) < tolerance
    assert np.abs(algorithm.center - START).max() > 0.01
    assert np.abs(oracle.sigma - before).max() > 0.001
    if name == "xnes":  # more than a deviation for each parameter
        adapted = algorithm.state_dict()["factor"]
        assert np.abs(adapted - np.diag(np.diag(adapted))).max() > 0.05 * np.abs(adapted).max()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_population_that_has_grown_is_evotorchs(name):
    algorithm, oracle, function, _ = both(name, {})
    assert oracle.follow(algorithm, function, 10, growth=3) < 1e-7


@pytest.mark.parametrize("shaping", ["centered", "linear"])
def test_other_shapings_of_xnes_are_evotorchs_at_a_rate_that_fits_their_magnitude(shaping):
    """evotorch's SNES divides such utilities by the sum of their magnitudes; its XNES does not."""
    magnitude = np.abs(np.linspace(-0.5, 0.5, SIZE)).sum()
    rates = {f"{name}_learning_rate": 1 / magnitude for name in ("center", "stdev")}
    oracle = Oracle(XNES, START, SIGMA, size=SIZE, ranking_method=shaping, **rates)
    assert oracle.follow(maker("xnes")(sigma=SIGMA, shaping=shaping), tilted, 100) < 1e-7
