"""
Compare two algorithms
======================

Is SNES better than OpenAI-ES? Train both with several seeds, look at the table, and test the
difference.
"""

import tempfile

import matplotlib.pyplot as plt
from console import run

import esbench

folder = tempfile.mkdtemp()

# %%
# Two algorithms, four seeds each. ``run`` shows a command and its output, as a terminal does.

run(
    "esbench run --env CartPole-v1 --algorithm openai_es --algorithm snes --seeds 0-3 "
    "--env-steps 15000 --set policy.hidden=[8] --set algorithms.snes.sigma=0.5 "
    "--set evaluation.episodes=20 --workers 1 --out out --quiet",
    folder,
)

# %%
# It prints the table of scores and the files of the figures. ``*`` marks the best of an
# environment, and ``=`` what is not significantly different from it. ``esbench table out`` prints
# the table again, ``--format markdown``, ``csv``, ``latex`` or ``json`` included.
#
# The next command prints the difference with its interval, the probability that a run of the one
# beats a run of the other, a p-value and an effect size.

run("esbench compare snes openai_es --in out", folder)

# %%
# In a script or a notebook, ``run``, ``table``, ``compare`` and ``plot`` are functions with the
# options of the commands. They return data frames, and ``plot`` a figure.

table = esbench.table(f"{folder}/out")
print(table[["algorithm", "score", "low", "high", "standing", "seeds"]].to_string(index=False))
test = esbench.compare("snes", "openai_es", folder=f"{folder}/out")
print(test.attrs["outcome"], f"(p = {test['p_value'][0]:.2f})")

# %%
# The results are data frames: ``load_scores`` has one row per trial, ``load_results`` one row per
# trial and generation.

scores = esbench.load_scores(f"{folder}/out")
print(scores[["algorithm", "seed", "score"]].to_string(index=False))

# %%
# Always look at the seeds themselves: a mean hides a seed that failed.

curves = esbench.load_results(f"{folder}/out")
fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
for color, (name, runs) in zip(("C0", "C1"), curves.groupby("algorithm"), strict=True):
    for _, one in runs.groupby("seed"):
        axes[0].plot(one["env_steps"], one["center_return"], color=color, alpha=0.5)
    final = scores[scores["algorithm"] == name]
    axes[1].scatter([name] * len(final), final["score"], color=color)
axes[0].set(xlabel="environment steps", ylabel="return of the center", title="every run")
axes[1].set(title="score per seed")

# %%
# Four seeds can show only a large difference. Use ten seeds or more to support a claim.
# See :doc:`/explanation/statistics` for what the numbers mean.
