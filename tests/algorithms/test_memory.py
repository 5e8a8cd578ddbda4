"""Memory of a large search: a few vectors, however many members."""

from __future__ import annotations

import json
import sys

import pytest
from command_line import finished

PARAMS = 100_000
# These two hold P x P matrices; they refuse this number of parameters in one sentence.
FULL_MATRIX = {"xnes", "cma_es"}
# Its members are the library's own matrix [N, P].
STORED = {"sep_cma_es"}
FIVE_CENTERS = {"ns_es", "nsr_es", "nsra_es"}

SCRIPT = """
import gc, json, os, re, sys
from pathlib import Path

import numpy as np

import torch

import esbench

PARAMS = int(sys.argv[1])
status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")

def kilobytes(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", status.read_text())[1])

def vectors(name, size):
    search(name, 100, size)  # modules that the first step loads do not count
    gc.collect()
    clear.write_text("5")  # the peak is counted from here
    before = kilobytes("VmRSS")
    search(name, PARAMS, size)
    return 1024 * (kilobytes("VmHWM") - before) / (8 * PARAMS)

def search(name, num_params, size):
    algorithm = esbench.make_algorithm(name, num_params=num_params, population_size=size)
    returns, behaviors = np.arange(float(size)), np.arange(2.0 * size).reshape(size, 2)
    for _ in range(2):
        population = algorithm.ask()
        while algorithm.plan.probe:
            n = len(population)
            algorithm.tell(population, returns[:n], behaviors[:n])
            population = algorithm.ask()
        algorithm.tell(population, returns, behaviors)
    assert np.isfinite(algorithm.center).all()

search("openai_es", 100, 10)  # loads most of it, once for all

for name in sys.argv[2:]:
    for size in (10, 20):
        if os.fork() == 0:  # a process of its own: memory that is freed is not always given back
            print(json.dumps([name, size, vectors(name, size)]), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0, (name, size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_many_parameters_need_a_few_vectors_and_not_a_population() -> None:
    import esbench

    builtin = set(esbench.list_algorithms()) - {"evotorch", "evosax"}
    names = sorted(builtin - FULL_MATRIX - STORED)
    code, out, err = finished("-c", SCRIPT, str(PARAMS), *names)
    assert code == 0, err
    measured = {(name, size): value for name, size, value in map(json.loads, out.split("\n")[:-1])}
    assert {name for name, _ in measured} == set(names)
    for name in names:
        few, many = measured[name, 10], measured[name, 20]
        # The optimizer's moments included; novelty search keeps five centers, each with its own.
        assert few < (40 if name in FIVE_CENTERS else 30), (name, few)
        assert many < few + 4, (name, few, many)  # 10 more members would be 10 more vectors
