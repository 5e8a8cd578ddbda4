"""A package of somebody else's adds an algorithm, a policy and a backend."""

from collections.abc import Callable

from command_line import Run

PLUGIN = """
from esbench import register_algorithm, register_backend, register_policy
from esbench.algorithms.random_search import RandomSearch
from esbench.environments.backends.gymnasium_loop import GymnasiumBackend
from esbench.policies.perceptrons import Linear


@register_algorithm("stand_still")
class StandStill(RandomSearch):
    "Searches as another algorithm."


@register_policy("straight")
class Straight(Linear):
    "One weight for each pair of observation and output."


@register_backend("tiny")
class Tiny(GymnasiumBackend):
    "Steps its environments, if it is asked for."

    @classmethod
    def serves(cls, environment_id, kwargs):
        return False
"""

ENTRY_POINTS = """
[esbench.algorithms]
stand_still = tiny_plugin
[esbench.policies]
straight = tiny_plugin
[esbench.backends]
tiny = tiny_plugin
"""


def test_plugins_are_listed_and_run_in_the_workers_too(
    esbench: Run, install: Callable[..., None]
) -> None:
    install({"tiny_plugin": PLUGIN}, ENTRY_POINTS)
    for kind, name in (
        ("algorithms", "stand_still"),
        ("policies", "straight"),
        ("backends", "tiny"),
    ):
        assert name in esbench("list", kind)[1]
    code, out, err = esbench(
        "run", "--env", "CartPole-v1", "--algorithm", "stand_still", "--algorithm", "openai_es",
        "--seeds", "0", "--env-steps", "3000", "--workers", "1",
        "--set", "policy.template=straight", "--set", "evaluation.episodes=2",
        "--set", 'environment."CartPole-v1".backend=tiny',
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "done  CartPole-v1 stand_still seed 0" in out
    assert "done  CartPole-v1 openai_es seed 0" in out
