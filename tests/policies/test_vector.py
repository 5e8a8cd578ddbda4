from __future__ import annotations

from typing import Any

import numpy as np
from flat_parameters import loaded, make_policy

from esbench.policies.vector import VectorPolicy


def make(outputs: int = 3, inputs: int = 1, **settings: Any) -> VectorPolicy:
    policy = make_policy("vector", (inputs,), outputs, **settings)
    assert isinstance(policy, VectorPolicy)
    return policy


def test_the_outputs_are_the_parameters_in_float32_whatever_is_observed() -> None:
    parameters = np.random.default_rng(0).standard_normal((4, 3))
    batch = loaded(make(3, inputs=2), parameters)
    for observed in (0.0, 1.0, np.nan):
        outputs = batch.forward(np.full((4, 2), observed, np.float32))
        assert outputs.dtype == np.float32
        np.testing.assert_array_equal(outputs, parameters.astype(np.float32))


def test_it_starts_at_normal_numbers_of_the_given_generator() -> None:
    drawn = np.random.default_rng(0).standard_normal(1000)
    for scale in (0.0, 1.0, 2.5):
        start = make(1000, init_scale=scale).initial_parameters(np.random.default_rng(0))
        np.testing.assert_array_equal(start, scale * drawn)
    default = make(1000).initial_parameters(np.random.default_rng(0))
    np.testing.assert_array_equal(default, drawn)
