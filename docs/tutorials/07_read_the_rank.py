"""
Read the rank of the unperturbed policy
=======================================

In every generation the center plays as many episodes as a member. Its rank says what the
perturbations do: the share of the population that beats the center is near one half on a slope,
near 0 when almost no perturbation helps, and near 1 when almost every one does.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import matplotlib.pyplot as plt


def train(env, **settings):
    """Train OpenAI-ES for at most 40 generations and return its records."""
    policy = settings.pop("policy", None)
    with esbench.make_trainer(
        "openai_es",
        env=env,
        workers=0,
        policy=policy,
        environment={"max_episode_steps": 50},
        budget={"generations": 40, "env_steps": 50_000},
        population_size=40,
        weight_decay=0.0,
        **settings,
    ) as trainer:
        trainer.train()
        return trainer.history


# %%
# Three runs, one for each case:
#
# * **Slope.** Rosenbrock's function, a bent valley, with small noise. Nearly half of the
#   perturbations help, and the return rises steadily.
# * **Cliff.** The same function with noise wider than the valley. Almost every member is worse
#   than the center. Their ranking still shows the way at first; then the center loses it again.
# * **Pit.** CartPole with a linear policy. It starts at zero and always pushes to one side, so
#   that in the first generation almost any perturbation is better.

runs = {
    "slope: sigma = 0.02": train("esbench/Rosenbrock-v0", sigma=0.02, learning_rate=0.1),
    "cliff: sigma = 1": train("esbench/Rosenbrock-v0", sigma=1.0, learning_rate=0.1),
    "pit: start at zero": train(
        "CartPole-v1", policy={"template": "linear"}, sigma=0.1, learning_rate=0.01
    ),
}

# %%

fig, axes = plt.subplots(2, 3, figsize=(9, 4.6), layout="constrained", sharex="col")
for (title, history), (above, below) in zip(runs.items(), axes.T, strict=True):
    generations = [record.generation for record in history]
    above.plot(generations, [record.center_return for record in history], color="C0")
    above.set(title=title, yscale="linear" if "pit" in title else "symlog")
    below.plot(generations, [record.center_rank_fraction for record in history], color="C3")
    below.axhline(0.5, color="gray", linewidth=0.8, linestyle=":")
    below.set(ylim=(-0.05, 1.05), xlabel="generation")
axes[0, 1].sharey(axes[0, 0])
axes[0, 0].set_ylabel("return of the center")
axes[1, 0].set_ylabel("share that beats the center")

# %%
# The numbers are in every record, and in ``metrics.jsonl`` of a stored trial:

for title, history in runs.items():
    first, last = history[0].center_rank_fraction, history[-1].center_rank_fraction
    print(f"{title:20} first {first:.2f}  last {last:.2f}")

# %%
# ``esbench diagnose`` reads the rank together with the length of the updates and the ties, and
# says what to change: see :doc:`/explanation/rank` and :doc:`/explanation/diagnosis`.
