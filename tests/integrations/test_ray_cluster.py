"""What is refused before a Ray cluster is used; none is started here."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
from command_line import finished

from esbench import UsageError
from esbench.integrations import ray_cluster
from esbench.integrations.ray_cluster import software


def changed(key: str, name: str, value: Any) -> dict[str, Any]:
    """The fields of an origin, one of them changed."""
    origin = software().origin
    return {"origin": origin.model_copy(update={key: {**getattr(origin, key), name: value}})}


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"esbench": "0.0.7"}, "esbench .* here, 0.0.7 there"),
        (changed("versions", "python", "3.0.7"), "python .* here, 3.0.7 there"),
        (changed("versions", "numpy", "0.0.7"), "numpy .* here, 0.0.7 there"),
        (changed("versions", "torch", None), "torch .* here, missing there"),
        (changed("hardware", "arithmetic", {"processor": "no"}), "processor .* here, no there"),
        (changed("hardware", "platform", "Linux-1-with-glibc9"), "C library .* here, glibc9 there"),
    ],
)
def test_software_that_gives_other_bits_differs(change: dict[str, Any], facts: str) -> None:
    theirs = software()._replace(**change)
    assert re.search(facts, software().difference(theirs))


def test_the_same_software_does_not_differ() -> None:
    assert software().difference(software()) == ""
    more_cores = software()._replace(**changed("hardware", "cores", 4096))
    assert software().difference(more_cores) == ""


def test_a_server_that_is_no_ray_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=address):
            ray_cluster.require_server(address)


def test_without_ray_the_extra_is_named(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    grid = ("--env", "CartPole-v1", "--algorithm", "openai_es", "--seeds", "0")
    assert "[ray]" in refused("run", *grid, "--engine", "ray")


def test_local_training_imports_no_ray() -> None:
    script = (
        "import sys, esbench\n"
        "if __name__ == '__main__':\n"
        "    with esbench.make_trainer('openai_es', env='CartPole-v1', workers=1) as trainer:\n"
        "        trainer.train(env_steps=1)\n"
        "    assert 'ray' not in sys.modules\n"
    )
    code, _, err = finished("-c", script)
    assert code == 0, err
