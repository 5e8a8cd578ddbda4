import sys

import numpy as np
import pytest
import torch
from torch import nn

from esbench.errors import UsageError
from esbench.policies.module import ModulePolicy
from esbench.settings import parse


class TwoLayers(nn.Module):
    """Its output layer is defined, and so ordered, before its hidden one."""

    def __init__(self, num_inputs, num_outputs, hidden=8, gain=1.0):
        super().__init__()
        self.out = nn.Linear(hidden, num_outputs)
        self.hidden = nn.Linear(num_inputs, hidden)
        self.gain = gain

    def forward(self, observations):
        return self.gain * self.out(torch.tanh(self.hidden(observations)))


class WithDropout(TwoLayers):
    def forward(self, observations):
        return nn.functional.dropout(super().forward(observations), 0.5, self.training)


class Recurrent(nn.Module):
    """Remembers in an attribute and counts in a buffer, as people's networks do."""

    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.cell = nn.Linear(num_inputs + num_outputs, num_outputs)
        self.register_buffer("steps", torch.zeros(1))
        self.state = torch.zeros(1, num_outputs)

    def forward(self, observations):
        self.steps += 1
        self.state = torch.tanh(self.cell(torch.cat([observations, self.state], 1)))
        return self.state + self.steps


class AnyOptions(nn.Module):
    def __init__(self, num_inputs, num_outputs, **options):
        super().__init__()
        self.layer = nn.Linear(num_inputs, num_outputs, **options)

    def forward(self, observations):
        return self.layer(observations)


class Outer:
    class Inner(TwoLayers):
        pass


class NoParameters(nn.Module):
    def __init__(self, num_inputs, num_outputs):
        super().__init__()
        self.num_outputs = num_outputs

    def forward(self, observations):
        return observations[:, : self.num_outputs]


class NoModule:
    def __init__(self, num_inputs, num_outputs):
        pass


def make(factory="TwoLayers", inputs=4, outputs=3, **arguments):
    name = factory if ":" in factory else f"{__name__}:{factory}"
    table = {"factory": name, "arguments": arguments}
    return ModulePolicy(parse(ModulePolicy.Settings, table, "test"), inputs, outputs)


def members(policy, count):
    return np.random.default_rng(0).standard_normal((count, policy.num_params))


def observations(count, inputs=4):
    return np.random.default_rng(1).standard_normal((count, inputs)).astype(np.float32)


def own_outputs(module, parameters, row):
    """Return the outputs of the module itself for one observation, [outputs]."""
    start = 0
    for parameter in module.parameters():
        values = parameters[start : start + parameter.numel()].astype(np.float32)
        parameter.data = torch.from_numpy(values).reshape(parameter.shape)
        start += parameter.numel()
    assert start == len(parameters)
    with torch.no_grad():
        return module(torch.from_numpy(row[None])).numpy()[0]


@pytest.mark.parametrize("width", [1, 2, 7])
def test_outputs_are_the_modules_own(width):
    policy = make(hidden=5, gain=2.0)
    parameters, rows = members(policy, width), observations(width)
    batch = policy.batch(width)
    for slot, member in enumerate(parameters):
        batch.load(slot, member)
    outputs = batch.forward(rows)
    assert outputs.dtype == np.float32
    assert outputs.shape == (width, 3)
    own = TwoLayers(4, 3, hidden=5, gain=2.0)
    for slot, member in enumerate(parameters):
        assert outputs[slot].tobytes() == own_outputs(own, member, rows[slot]).tobytes()
    for k in range(1, width + 1):
        assert batch.forward(rows[:k]).tobytes() == outputs[:k].tobytes()


def test_parameters_lie_in_the_order_of_the_module():
    policy = make(hidden=5)
    assert policy.num_params == 5 * 3 + 3 + 4 * 5 + 5
    parameters = np.zeros(policy.num_params)
    parameters[15:18] = [7.0, 8.0, 9.0]  # after out.weight comes out.bias
    batch = policy.batch(1)
    batch.load(0, parameters)
    np.testing.assert_array_equal(batch.forward(observations(1)), [[7.0, 8.0, 9.0]])


def test_initial_parameters_are_the_modules_own_and_reproducible():
    policy = make()
    one, again, other = (
        policy.initial_parameters(np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.dtype == np.float64
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.default_rng(0).integers(2**63)))
        own = TwoLayers(4, 3)
    expected = [p.detach().numpy().astype(np.float64).ravel() for p in own.parameters()]
    np.testing.assert_array_equal(one, np.concatenate(expected))


def test_the_global_torch_generator_is_left_alone():
    before = torch.get_rng_state()
    policy = make()
    policy.initial_parameters(np.random.default_rng(0))
    policy.batch(3).load(0, np.zeros(policy.num_params))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_module_is_in_evaluation_mode():
    policy = make("WithDropout")
    batch = policy.batch(1)
    batch.load(0, members(policy, 1)[0])
    rows = observations(1)
    assert batch.forward(rows).tobytes() == batch.forward(rows).tobytes()
    assert batch.forward(rows).all()


def test_a_class_inside_a_class_can_be_named():
    assert make("Outer.Inner").num_params == make().num_params


def test_a_module_may_take_any_argument():
    assert make("AnyOptions", bias=False).num_params == 12


@pytest.mark.parametrize(
    ("factory", "arguments", "words"),
    [
        ("TwoLayers", {"hiden": 4}, r":TwoLayers .*'hiden'; .*'hidden'"),
        ("TwoLayers", {"num_inputs": 4}, "'num_inputs'"),
        ("TwoLayers", {"num_outputs": 4}, "'num_outputs'"),
        ("TwoLayer", {}, "'TwoLayer'; did you mean 'TwoLayers'"),
        ("NoParameters", {}, "NoParameters has no parameters"),
        ("NoModule", {}, r"NoModule; expected a torch\.nn\.Module"),
        *((name, {}, name) for name in ("math:pi", "math:sqrt", "math:pi.x")),
        ("collections:OrderedDict", {}, "collections:OrderedDict"),
        ("no_such_package.file:Class", {}, r"cannot import 'no_such_package\.file'"),
        *((name, {}, "cannot import") for name in (":TwoLayers", "..file:Class", ".file:Class")),
    ],
)
def test_what_cannot_be_a_policy_is_refused(factory, arguments, words):
    with pytest.raises(UsageError, match=words):
        make(factory, **arguments)


def test_a_name_without_class_is_refused():
    table = {"factory": __name__}
    settings = parse(ModulePolicy.Settings, table, "test")
    with pytest.raises(UsageError, match=f"policy '{__name__}'"):
        ModulePolicy(settings, 4, 3)


def test_a_file_whose_own_import_fails_says_which(tmp_path, monkeypatch):
    (tmp_path / "policy_with_a_missing_import.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="no_such_dependency"):
        make("policy_with_a_missing_import:Class")
    assert "policy_with_a_missing_import" not in sys.modules


def test_the_factory_is_required():
    with pytest.raises(UsageError, match="factory is missing"):
        parse(ModulePolicy.Settings, {}, "test")
