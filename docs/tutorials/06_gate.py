"""
Gate a repository in CI
=======================

Scores of a learning algorithm are noisy, so a change that breaks it easily goes unnoticed. A gate
stores the scores once and compares every change with them.
"""

import os
import random
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

folder = Path(tempfile.mkdtemp())


def run(command):
    """Run a command in the folder, show it with its output, and return its exit code."""
    words = [sys.executable, "-m", *shlex.split(command)]
    plain = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(words, cwd=folder, env=plain, capture_output=True, text=True)
    print(f"$ {command}\n{done.stdout}{done.stderr}".replace(str(folder), "."))
    return done.returncode


# %%
# Make the baseline
# -----------------
#
# Train several seeds and freeze their scores. The grid ``ci`` is made for this; here only its
# CartPole, with a smaller budget. Commit the file.

run("esbench run ci --env CartPole-v1 --env-steps 10000 --workers 0 --quiet --out out")
run("esbench baseline out --out ci.json")

# %%
# Check a change
# --------------
#
# CI trains the same grid with the changed code and compares. Here it compares the folder with
# itself: nothing has changed, so even the digests are equal, and the exit code is 0.

code = run("esbench check out --baseline ci.json")
print("exit code", code)

# %%
# Gate your own agent with pytest
# -------------------------------
#
# The pytest plugin accepts any object with ``train(seed) -> score``. The first run stores the
# scores:

AGENT = """
import random

class Agent:
    def train(self, seed):
        return {mean} + random.Random(seed + {offset}).gauss(0.0, 8.0)

def test_my_agent(esbench_check):
    esbench_check(Agent(), "my_agent", environment="CartPole-v1", seeds=range(8))
"""
test = folder / "test_agent.py"
test.write_text(AGENT.format(mean=480, offset=0))
run("pytest -q --esbench-update test_agent.py")

# %%
# Now suppose that a change breaks the agent: its mean score drops from 480 to 400:

test.write_text(AGENT.format(mean=400, offset=100))
code = run("pytest -q --tb=short test_agent.py")
print("exit code", code)

# %%
# What the gate saw:

stored = [480 + random.Random(seed).gauss(0.0, 8.0) for seed in range(8)]
broken = [400 + random.Random(seed + 100).gauss(0.0, 8.0) for seed in range(8)]
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.scatter(["baseline"] * 8, stored)
ax.scatter(["change"] * 8, broken, color="C3")
ax.set(ylabel="score per seed", xlim=(-0.6, 1.6))

# %%
# :doc:`/how-to/github-action` has the workflow file, and :doc:`/explanation/gate` how often such a
# gate is wrong, and how many seeds it takes.
