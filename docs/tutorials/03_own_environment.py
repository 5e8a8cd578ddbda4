"""
Your own environment
====================

Any Gymnasium environment works, also one that a notebook defines.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

# %%
# A point is to move to the origin. All random numbers come from ``self.np_random``, which
# ``super().reset(seed=seed)`` seeds.


class Point(gymnasium.Env):
    """Two coordinates are observed; the action moves them by up to 0.2 each."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        """Start at a random place."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        return self.position.astype(np.float32), {}

    def step(self, action):
        """Move; the reward is minus the distance to the origin."""
        self.position = self.position + 0.2 * np.asarray(action)
        reward = -float(np.abs(self.position).sum())
        return self.position.astype(np.float32), reward, False, False, {}


gymnasium.register("Point-v0", Point, max_episode_steps=20)

# %%
# ``check_environment`` plays it as training does, and says in one sentence what is wrong, if
# anything is.

esbench.check_environment("Point-v0")

# %%
# There is no file with settings for it, so the policy is the default one (64-64 tanh units with
# normalized observations). A smaller network and larger noise suit so small a task. Other processes
# do not know what a notebook defines, so this one plays the episodes: ``workers=0``.

trainer = esbench.make_trainer(
    "openai_es",
    env="Point-v0",
    workers=0,
    policy={"template": "mlp", "hidden": [8]},
    budget={"env_steps": 40_000},
    population_size=32,
    sigma=0.2,
    learning_rate=0.1,
)

# %%
# A callback sees every generation. Returning ``esbench.Stop("why")`` ends training;
# ``esbench.TargetReturn`` is a callback that does so at a return.


def report(record):
    """Print every tenth generation."""
    if record.generation % 10 == 1:
        print(f"{record.generation:3}  {record.center_return:7.2f}")


stop = trainer.train(callbacks=[report, esbench.TargetReturn(-2.5, window=5)])
print(stop.reason if stop else "the budget is spent")
print(f"score {trainer.evaluate(episodes=50).mean:.2f}")

# %%

fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot([r.env_steps for r in trainer.history], [r.center_return for r in trainer.history])
ax.set(xlabel="environment steps", ylabel="return of the center", title="Point-v0")
trainer.close()

# %%
# To use the environment on the command line, and with workers on all cores, put the class and its
# registration into a file ``point.py``. The name ``point:Point-v0`` says: import ``point``, which
# is a module on the path or a file in the current folder, then make ``Point-v0``::
#
#     esbench run --env point:Point-v0 --algorithm openai_es --env-steps 40000
#
# To make it a benchmark with tuned settings and scores to compare with, add a file to ``envs/``:
# see :doc:`/how-to/add-environment`.
