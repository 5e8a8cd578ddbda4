"""
Your own policy
===============

Any ``torch.nn.Module`` can be the policy. This one lies in a file ``network.py``:

.. literalinclude:: /tutorials/modules/network.py
   :language: python

The class is built with the numbers of observations and outputs and further arguments of your own.
It must be importable, because the worker processes import it too.

Run this page as a notebook: its end has a link. In a script, the training code belongs below
``if __name__ == "__main__":``, because worker processes import the script.
"""

import matplotlib.pyplot as plt
from network import Network

import esbench

# %%
# ``policy`` takes the class, or a table with its import name and settings. ``arguments`` are
# passed to the class; here a hidden layer of eight units.

trainer = esbench.make_trainer(
    "openai_es",
    env="CartPole-v1",
    workers=1,
    policy={"template": "network:Network", "arguments": {"width": 8}},
    budget={"env_steps": 15_000},
    population_size=16,
)
print(trainer.template.num_params, "parameters")
stop = trainer.train()

# %%
# With ``policy=Network`` the class has its default arguments: sixteen units.

with esbench.make_trainer("openai_es", env="CartPole-v1", policy=Network) as other:
    print(other.template.num_params, "parameters")

# %%

steps = [record.env_steps for record in trainer.history]
members = [record.population_return_mean for record in trainer.history]
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(steps, [record.center_return for record in trainer.history], label="center")
ax.plot(steps, members, label="mean of the members")
ax.set(xlabel="environment steps", ylabel="return", title="CartPole-v1")
ax.legend()
trainer.close()

# %%
# A module computes one slot at a time. The templates that come with esbench compute all slots of
# a worker at once, and are much faster: use :doc:`/reference/policies/mlp` where it serves.
# :doc:`/how-to/add-policy` has more, virtual batch normalization included.
