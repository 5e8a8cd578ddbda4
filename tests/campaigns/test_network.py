"""The network of the campaign ``ray_network.py``; needs root. Run by ``tox -e ray``."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from network import Network, missing

PROBE = """
import socket, sys
with socket.socket() as probe:
    probe.settimeout(float(sys.argv[2]))
    print(probe.connect_ex((sys.argv[1], 9)))
"""


def test_hosts_reach_each_other_unless_one_is_cut_off_and_leave_nothing() -> None:
    if "ESBENCH_TEST_RAY" not in os.environ:
        pytest.skip("it makes network namespaces on this machine: run it with tox -e ray")
    if problem := missing():
        pytest.skip(problem)

    def answer(source: int, target: int, seconds: float = 60) -> int:
        command = [sys.executable, "-c", PROBE, network.addresses[target], str(seconds)]
        return int(subprocess.check_output(network.command(source, *command)))

    with Network(3) as network:
        sleeping = subprocess.Popen(network.command(1, "sleep", "600"))
        assert answer(0, 1) == answer(2, 0) == errno.ECONNREFUSED
        network.change(cut=[2], loss=0.2)
        assert answer(0, 2, seconds=0.2) != errno.ECONNREFUSED
        assert answer(0, 1) == errno.ECONNREFUSED
        network.change(cut=[])
        assert answer(2, 1) == errno.ECONNREFUSED
    assert sleeping.wait() < 0
    assert not [name for name in network.names if Path("/run/netns", name).exists()]
