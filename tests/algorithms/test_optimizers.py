import json
import warnings
from pathlib import Path

import numpy as np
import own_search
import pytest
import torch
from command_line import finished

from esbench.algorithms.openai_es import OpenAIESSettings
from esbench.algorithms.optimizers import (
    RULES,
    Ascent,
    TorchOptimizer,
    make_optimizer,
    torch_optimizers,
)
from esbench.core.arrays import with_arrays, without_arrays
from esbench.core.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated
    from evotorch.optimizers import ClipUp as EvotorchClipUp

P = 5
GRADIENTS = np.random.default_rng(0).standard_normal((100, P)) * np.logspace(-3, 2, 100)[:, None]

OWN = {
    "own_search:Derived": own_search.Derived,
    "own_search:Plain": own_search.Plain,
    "torch.optim:AdamW": torch.optim.AdamW,
}


def climb(optimizer, center, gradients, decay=1.0):
    """Return the center after every step, [steps, P]."""
    centers = []
    for step, gradient in enumerate(gradients):
        center = optimizer.step(center, gradient, decay**step)
        centers.append(center)
    return np.array(centers)


def evotorch_climb(center, gradients, decay=1.0, **settings):
    """Return the centers of evotorch's ClipUp after each gradient, [steps, P].

    None of them may be zero: it divides by their length.
    """
    optimizer = EvotorchClipUp(solution_length=P, dtype=torch.float64, stepsize=0.15, **settings)
    (group,) = optimizer.param_groups
    lr, max_speed = group["lr"], group["max_speed"]
    centers = []
    for step, gradient in enumerate(gradients):
        group["lr"], group["max_speed"] = lr * decay**step, max_speed * decay**step
        center = center + optimizer.ascent(torch.from_numpy(gradient)).numpy()
        centers.append(center)
    return np.array(centers)


@pytest.mark.parametrize("decay", [1.0, 0.95])
@pytest.mark.parametrize(
    "settings", [{}, {"max_speed": 0.12}, {"momentum": 0.5, "max_speed": 10.0}, {"momentum": 0.0}]
)
def test_a_hundred_steps_of_clipup_are_evotorchs(settings, decay):
    expected = evotorch_climb(np.ones(P), GRADIENTS, decay, **settings)
    centers = climb(make_optimizer("clipup", P, 0.15, settings), np.ones(P), GRADIENTS, decay)
    np.testing.assert_allclose(centers, expected, rtol=1e-12, atol=1e-14)
    if decay < 1.0:
        speeds = np.linalg.norm(np.diff(centers, axis=0), axis=1)
        assert speeds[-1] < 0.05 * speeds[0]


def torch_climb(optimizer, parameter, gradients):
    """Return the centers of one of torch's optimizers after each gradient, [steps, P]."""
    centers = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(-gradient)
        optimizer.step()
        centers.append(parameter.detach().numpy().copy())
    return np.array(centers)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adam", {}),
        ("Adam", {"betas": [0.8, 0.99], "eps": 1e-4}),
        ("adam", {"betas": [0.0, 0.99]}),
        ("adam", {"amsgrad": True}),
        ("adam", {"amsgrad": True, "weight_decay": 0.3}),
        ("sgd", {}),
        ("sgd", {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("sgd", {"momentum": 0.5, "dampening": 0.3, "weight_decay": 0.2}),
        ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.2}),
    ],
)
def test_adam_and_sgd_are_torchs_but_for_rounding(name, settings):
    cls, start = torch_optimizers()[name.lower()], np.full(P, 0.5)
    torchs = TorchOptimizer(cls, P, {"lr": 0.03, **settings}, is_own=False)
    ours, later = (make_optimizer(name, P, 0.03, settings) for _ in range(2))
    expected = climb(torchs, start, GRADIENTS[:20])
    later.load_state_dict(torchs.state_dict())
    expected = np.concatenate([expected, climb(torchs, expected[-1], GRADIENTS[20:])])
    centers = climb(ours, start, GRADIENTS)
    np.testing.assert_allclose(centers, expected, rtol=1e-12, atol=1e-14)
    centers = climb(later, expected[19], GRADIENTS[20:])
    np.testing.assert_allclose(centers, expected[20:], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "cls", "settings"),
    [
        ("adamw", torch.optim.AdamW, {"weight_decay": 0.02}),
        *((name, cls, {}) for name, cls in torch_optimizers().items() if name not in RULES),
    ],
)
def test_torch_optimizers_are_the_plain_ones_by_hand(name, cls, settings):
    parameter = torch.nn.Parameter(torch.full((P,), 0.5, dtype=torch.float64))
    expected = torch_climb(cls([parameter], lr=0.03, **settings), parameter, GRADIENTS[:50])
    optimizer = make_optimizer(name, P, 0.03, settings)
    np.testing.assert_array_equal(climb(optimizer, np.full(P, 0.5), GRADIENTS[:50]), expected)


@pytest.mark.parametrize("name", OWN)
def test_an_own_optimizer_steps_as_its_class_also_from_a_stored_state(name):
    parameter = torch.nn.Parameter(torch.full((P,), 0.5, dtype=torch.float64))
    alone = OWN[name]([parameter], lr=0.03)
    ours, center = make_optimizer(name, P, 0.03, {}), np.full(P, 0.5)
    for number, gradient in enumerate(GRADIENTS[:40]):
        if number == 20:
            arrays = {}
            text = json.dumps(without_arrays(ours.state_dict(), arrays))
            ours = make_optimizer(name, P, 0.03, {})
            ours.load_state_dict(with_arrays(json.loads(text), arrays))
        scale = 0.99**number
        center = ours.step(center, gradient, scale)
        alone.param_groups[0]["lr"] = scale * 0.03
        parameter.grad = torch.from_numpy(-gradient)
        with torch.no_grad():
            alone.step()
        np.testing.assert_array_equal(center, parameter.detach().numpy())


TRAINING = """
import os
from pathlib import Path
import esbench

if __name__ == "__main__":
    with esbench.make_trainer("openai_es", env="CartPole-v1", workers=1) as trainer:
        trainer.train(env_steps=1)
        for pid in (os.getpid(), *trainer._pool.process_ids):
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text(), pid
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_no_process_loads_torch_to_train_a_policy_of_ours(tmp_path):
    (tmp_path / "script.py").write_text(TRAINING)
    assert finished(str(tmp_path / "script.py")) == (0, "", "")


@pytest.mark.parametrize("name", ["adam", "sgd", "clipup"])
def test_a_divergence_gives_no_warning(name):  # which pytest would make an error
    with pytest.raises(UsageError, match="not finite"):
        make_optimizer(name, P, 1e308, {})
    settings = OpenAIESSettings(optimizer=name, weight_decay=0.1)
    infinite = np.full(P, np.inf)
    assert not np.isfinite(Ascent(settings, P).step(infinite, infinite, 0)).any()


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("sgd", {"nesterov": True}, "nesterov"),
        ("adam", {"betas": [2.0, 0.9]}, "betas"),
        ("clipup", {"momentum": 1.5}, "momentum = 1.5: expected less than 1"),
        ("adamw", {"fused": True, "foreach": True}, "fused"),
        ("rprop", {"step_sizes": 0.1}, "step_sizes"),  # looked at only in a step
        ("adm", {}, "'adm'; did you mean 'adam'"),
        ("sgd", {"momentm": 0.5}, "sgd.*momentm.*'momentum'"),
        ("adamw", {"lr": 0.5}, "adamw.*lr.*algorithm's learning_rate"),
        ("own_search:StepOnly", {}, "param_groups"),
        ("own_search:Forgets", {}, "state_dict"),
        ("own_search:Fails", {}, "broken on purpose"),
        ("torch.optim:LBFGS", {}, "closure"),
        ("adamw", {"maximize": True}, "maximize"),  # it reverses the climb
    ],
)
def test_an_unknown_name_or_a_bad_value_is_named(name, settings, words):
    with pytest.raises(UsageError, match=words):
        make_optimizer(name, P, 0.1, settings)
