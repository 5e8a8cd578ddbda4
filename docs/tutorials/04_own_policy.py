"""
Your own policy
===============

Any ``torch.nn.Module`` can be the policy, also one that a notebook defines.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import matplotlib.pyplot as plt
import torch

# %%
# The class is built with the numbers of observations and outputs, and with further arguments of
# your own.


class Network(torch.nn.Module):
    """One hidden layer, and a shortcut past it."""

    def __init__(self, num_inputs, num_outputs, width=16):
        super().__init__()
        self.hidden = torch.nn.Linear(num_inputs, width)
        self.output = torch.nn.Linear(width, num_outputs)
        self.shortcut = torch.nn.Linear(num_inputs, num_outputs, bias=False)

    def forward(self, observations):
        """Map observations [1, num_inputs] to outputs [1, num_outputs]."""
        hidden = torch.relu(self.hidden(observations))
        return self.output(hidden) + self.shortcut(observations)


# %%
# ``policy`` takes the class, or a table with the class and settings. ``arguments`` are passed to
# the class; here a hidden layer of eight units. Other processes do not know what a notebook
# defines, so this one plays the episodes: ``workers=0``.

trainer = esbench.make_trainer(
    "openai_es",
    env="CartPole-v1",
    workers=0,
    policy={"template": Network, "arguments": {"width": 8}},
    budget={"env_steps": 15_000},
    population_size=16,
)
print(trainer.template.num_params, "parameters")
stop = trainer.train()

# %%
# With ``policy=Network`` the class has its default arguments: sixteen units.

with esbench.make_trainer("openai_es", env="CartPole-v1", policy=Network, workers=0) as other:
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
# A class in a file ``network.py`` has the name ``network:Network``, on the command line
# ``--set policy.template=network:Network``, and workers on all cores use it.
#
# A module computes one slot at a time. The templates that come with esbench compute all slots of
# a worker at once, and are much faster: use :doc:`/reference/policies/mlp` where it serves.
# :doc:`/how-to/add-policy` has more, virtual batch normalization included.
