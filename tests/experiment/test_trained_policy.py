"""A loaded policy in a plain Gymnasium loop, as a torch module and as an exported program."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from command_line import Run
from exported import READERS
from threadpoolctl import threadpool_info, threadpool_limits
from trainers import plain_episode
from watchers import run

import esbench
from esbench.core.errors import TrainingError, UsageError
from esbench.engine.worker_pool import WorkerPool
from esbench.experiment.exported_policy import export_policy
from esbench.experiment.trained_policy import TrainedPolicy
from esbench.experiment.trials import Trial
from esbench.integrations import library
from esbench.policies.kernels.device import TOLERANCE

Make = Callable[..., Trial]
PICTURES = "doubles:Pictures-v0"
CONV = {"template": "small_conv", "layers": [[3, 4, 2], [5, 2, 1]], "hidden": [4]}
MLP = {"template": "mlp", "hidden": [4], "normalize_observations": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("CartPole-v1", {"template": "linear", "bias": True}),
    "mlp": ("doubles:Walk-v0", MLP),
    "discrete": ("FrozenLake-v1", {"template": "mlp", "hidden": [], "bias": False}),
    "vector": ("esbench/Sphere-v0", {"template": "vector"}),
    "conv": (PICTURES, CONV),
    "virtual batch": (
        PICTURES,
        {**CONV, "virtual_batch_norm": True, "reference_size": 6, "normalize_observations": True},
    ),
    "keypoints": (
        "doubles:Moves-v0",
        {
            "template": "keypoints",
            "keypoints": [{}, {"height": 3, "x": 0.7}],
            "crop": [1, 0, 0, 2],
            "ordered_outputs": True,
        },
    ),
    "recurrent": (PICTURES, {"template": "conv_lstm", "layers": [[3, 4, 2]], "units": 4}),
    "own": ("CartPole-v1", {"template": "test_api:Net"}),
    "own images": (PICTURES, {"template": f"{__name__}:Convolution"}),
}

IN_ONNX = {"mlp", "virtual batch", "keypoints", "recurrent"}  # it takes seconds


@pytest.fixture(params=CASES)
def trial(request: pytest.FixtureRequest, make_trial: Make, pool: WorkerPool) -> Trial:
    name, policy = CASES[request.param]
    made = make_trial(name, policy=policy, budget={"env_steps": 200})
    run(pool, made)
    return made


def played(policy: TrainedPolicy, name: str, seed: int) -> tuple[float, list[Any], list[Any]]:
    """The return, observations and outputs of an episode with Gymnasium alone."""
    total, seen = plain_episode(policy, gymnasium.make(name), seed)
    policy.reset()
    return total, seen, [policy.outputs(observation) for observation in seen]


def unrolled(compute: Any, rows: torch.Tensor, recurrent: bool) -> np.ndarray:
    """The outputs of one episode: all rows at once, or one after the other with the state."""
    if not recurrent:
        return compute(rows).detach().numpy()
    state, outputs = (torch.zeros(1, 4), torch.zeros(1, 4)), []
    for row in rows:
        output, state = compute(row[None], state)
        outputs.append(output.detach())
    return torch.cat(outputs).numpy()


def test_it_has_the_recorded_returns_and_torch_has_its_outputs(
    trial: Trial, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    policy = esbench.load_policy(trial.folder.path)
    copies = [policy, copy.deepcopy(policy)]
    turns = [copies[number % 2] for number in range(len(policy.held_out_seeds))]
    name, seeds = trial.spec.environment.id, policy.held_out_seeds
    episodes = [played(turn, name, seed) for turn, seed in zip(turns, seeds, strict=True)]
    assert [total for total, _, _ in episodes] == trial.folder.result()["returns"]
    programs = []
    in_onnx = request.node.callspec.params["trial"] in IN_ONNX
    for suffix, read in READERS.items():
        if suffix == ".onnx" and not in_onnx:
            continue
        about = export_policy(policy, tmp_path / f"policy{suffix}")
        programs.append(read(tmp_path / f"policy{suffix}"))
        assert about["inputs"][0] == "N"
    for _, seen, outputs in episodes:
        flat = [gymnasium.spaces.flatten(policy.observation_space, each) for each in seen]
        rows = torch.as_tensor(np.array(flat)).reshape(-1, *about["inputs"][1:])
        assert isinstance(policy, TrainedPolicy)
        for compute in policy.module(), *programs:
            found = unrolled(compute, rows, recurrent=about["state"] is not None)
            assert np.abs(found - outputs).max() <= TOLERANCE * max(1.0, np.abs(outputs).max())
        if about["state"] is None and policy.module().shape != (2, 12, 12):
            assert policy.module()(rows[:0]).shape == (0, len(outputs[0]))


def test_it_computes_with_one_thread(
    make_trial: Make, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several, BLAS rounds otherwise on some processors."""
    trial = make_trial("doubles:Walk-v0")
    run(pool, trial)
    policy = esbench.load_policy(trial.folder.path)
    assert isinstance(policy, TrainedPolicy)
    computed, threads = policy._batch.forward, set[int]()

    def forward(*given: Any) -> Any:
        threads.update(each["num_threads"] for each in threadpool_info())
        return computed(*given)

    monkeypatch.setattr(policy._batch, "forward", forward)
    with threadpool_limits(2):
        policy.outputs(policy.observation_space.sample())
    assert threads == {1}


def test_it_takes_the_observations_that_training_takes(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial("doubles:Loose-v0")
    run(pool, trial)
    policy = esbench.load_policy(trial.folder.path)
    env = policy.make_environment()
    totals = [plain_episode(policy, env, seed)[0] for seed in policy.held_out_seeds]
    assert totals == trial.folder.result()["returns"]
    for wrong in ({"goal": np.zeros(2)}, {}, None):
        with pytest.raises(UsageError, match="expected one of Dict"):
            policy.act(wrong)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("policy.foo", r"policy\.foo.*\.pt2 .*\.onnx .*\.pt "),
        ("policy", r"policy: .*\.pt2 .*\.onnx .*\.pt "),
        ("policy.onnx", r"'onnx', which is not installed.*install.*\[onnx\]"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_trial_is_read(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _: None)  # as if no extra were installed
    with pytest.raises(UsageError, match=said) as refused:
        esbench.export("nosuch", out=tmp_path / name)
    assert "\n" not in str(refused.value)
    assert not [*tmp_path.iterdir()]


def test_an_exported_policy_needs_no_esbench(
    make_trial: Make, pool: WorkerPool, esbench: Run, tmp_path: Path
) -> None:
    wrapper = {"wrapper": "gymnasium.wrappers:ClipReward", "max_reward": 1.0}
    trial = make_trial("CartPole-v1", environment={"CartPole-v1": {"wrappers": [wrapper]}})
    run(pool, trial)
    code, printed, _ = esbench("export", str(trial.folder.path))
    assert code == 0
    assert "observations [N, 4] float32 to outputs [N, 2]" in printed
    reader = f"""
import json, sys, torch
files = {{"esbench.json": ""}}
program = torch.export.load({str(trial.folder.path / "policy.pt2")!r}, extra_files=files)
assert program.module()(torch.zeros(3, 4)).shape == (3, 2)
about = json.loads(files["esbench.json"])
assert about["action_space"] == "Discrete(2)"
assert about["wrappers"] == [{{"wrapper": "gymnasium.wrappers:ClipReward", "max_reward": 1.0}}]
assert "esbench" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", reader], check=True, cwd=tmp_path)


class Convolution(torch.nn.Module):
    """One convolution and one linear layer."""

    def __init__(self, shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(shape[0], 2, 3, 2), torch.nn.Flatten())
        features = self.features(torch.zeros(1, *shape)).shape[1]
        self.output = torch.nn.Linear(features, num_outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(self.features(images))


class Counts(torch.nn.Linear):
    """Its outputs depend on the number of steps, which is a buffer."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(observations) * self.steps


class Tallies(Counts):
    """Counts its steps, and its outputs do not depend on them."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations) / self.steps


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_an_exported_buffer_is_that_of_the_policy(
    make_trial: Make, pool: WorkerPool, tmp_path: Path, suffix: str
) -> None:
    trial = make_trial("CartPole-v1", policy={"template": f"{__name__}:Tallies"})
    run(pool, trial)
    path = tmp_path / f"policy{suffix}"
    export_policy(esbench.load_policy(trial.folder.path), path)
    program: Any = READERS[suffix](path)
    assert [float(each) for name, each in program.named_buffers() if "steps" in name] == [0.0]


def test_a_module_that_keeps_state_is_not_exported(
    make_trial: Make, pool: WorkerPool, tmp_path: Path
) -> None:
    trial = make_trial("CartPole-v1", policy={"template": f"{__name__}:Counts"})
    run(pool, trial)
    policy = esbench.load_policy(trial.folder.path)
    for suffix in READERS:
        with pytest.raises(UsageError, match=rf"exported to {suffix} \(its outputs differ"):
            export_policy(policy, tmp_path / f"policy{suffix}")
    assert not [*tmp_path.glob("policy*")]


def test_what_cannot_be_used_is_one_sentence(make_trial: Make, pool: WorkerPool) -> None:
    trial = make_trial("CartPole-v1")
    run(pool, trial)
    policy = esbench.load_policy(trial.folder.path)
    for wrong in (np.zeros((1, 4)), "a", [0.0, "a", 0.0, 0.0], [[0.0], 1.0], None):
        with pytest.raises(UsageError, match="expected one of Box"):
            policy.act(wrong)
    assert isinstance(policy, TrainedPolicy)
    policy.parameters[:] = np.nan
    policy.reset()
    with pytest.raises(TrainingError, match="not finite"):
        policy.act(np.zeros(4))
