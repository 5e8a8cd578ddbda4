"""
Compare two algorithms
======================

Is SNES better than OpenAI-ES? Train both with several seeds, look at the table, and test the
difference.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import tempfile

import matplotlib.pyplot as plt

out = tempfile.mkdtemp()

# %%
# Two algorithms, four seeds each. The function has the options of the command ``esbench run``. It
# returns a data frame with one row per trial.

scores = esbench.run(
    env="CartPole-v1",
    algorithm=["openai_es", "snes"],
    seeds="0-3",
    env_steps=15_000,
    overrides=[
        "policy.hidden=[8]",
        "algorithms.snes.sigma=0.5",
        "evaluation.episodes=20",
    ],
    workers=0,
    out=out,
)
scores[["algorithm", "seed", "score", "generations"]]

# %%
# The table has one row per environment and algorithm. ``standing`` is ``best`` for the best of an
# environment, and ``tied`` for what is not significantly different from it.

table = esbench.table(out)
table[["algorithm", "score", "low", "high", "standing", "seeds"]]

# %%
# The difference, with its interval, the probability that a run of the one beats a run of the other
# (``improvement``), and a p-value:

test = esbench.compare("snes", "openai_es", folder=out)
print(test.attrs["outcome"])
test[["difference", "difference_low", "difference_high", "improvement", "p_value"]]

# %%
# ``load_results`` has one row per trial and generation. Always look at the seeds themselves: a mean
# hides a seed that failed.

curves = esbench.load_results(out)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for color, (name, runs) in zip(("C0", "C1"), curves.groupby("algorithm"), strict=True):
    for _, one in runs.groupby("seed"):
        axes[0].plot(one["env_steps"], one["center_return"], color=color, alpha=0.5)
    final = scores[scores["algorithm"] == name]
    axes[1].scatter([name] * len(final), final["score"], color=color, label=name)
axes[0].set(xlabel="environment steps", ylabel="return of the center", title="every run")
axes[1].set(ylabel="score", title="score per seed", xlim=(-0.5, 1.5))
fig.legend(loc="outside lower center", ncols=2)

# %%
# On the command line, the same is::
#
#     esbench run --env CartPole-v1 --algorithm openai_es --algorithm snes --seeds 0-3 \
#         --env-steps 15000 --set policy.hidden=[8] --set algorithms.snes.sigma=0.5 \
#         --set evaluation.episodes=20 --out out
#     esbench table out
#     esbench compare snes openai_es --in out
#
# Four seeds can show only a large difference. Use ten seeds or more to support a claim.
# See :doc:`/explanation/statistics` for what the numbers mean.
