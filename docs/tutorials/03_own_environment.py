"""
Your own environment
====================

Any Gymnasium environment works. This one lies in a file ``point.py``:

.. literalinclude:: /tutorials/modules/point.py
   :language: python

The file registers the environment when it is imported. The name ``point:Point-v0`` says: import
``point`` (a module on the path, or a file in the current folder), then make ``Point-v0``. The
worker processes do the same.

Run this page as a notebook: its end has a link. In a script, the training code belongs below
``if __name__ == "__main__":``, because worker processes import the script.
"""

import matplotlib.pyplot as plt

import esbench

# %%
# There is no file with settings for it, so the policy is the default one (64-64 tanh units with
# normalized observations). A smaller network and larger noise suit so small a task.

trainer = esbench.make_trainer(
    "openai_es",
    env="point:Point-v0",
    workers=1,
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
ax.set(xlabel="environment steps", ylabel="return of the center", title="point:Point-v0")
trainer.close()

# %%
# On the command line::
#
#     esbench run --env point:Point-v0 --algorithm openai_es --env-steps 40000
#
# To make it a benchmark with tuned settings and scores to compare with, add a file to ``envs/``:
# see :doc:`/how-to/add-environment`.
