"""
Your first learning curve
=========================

Train a policy for CartPole with OpenAI-ES, draw its learning curve, and score the result.
"""

import esbench  # before NumPy, so that the bits are those of every processor

import matplotlib.pyplot as plt

# %%
# A trainer is one trial: an algorithm, an environment, a policy and a seed. ``CartPole-v1`` has a
# file with a policy and tuned settings, so nothing else is required. Here the budget is smaller
# than the file's, to keep this page quick. With ``workers=0``, this process plays the episodes; by
# default, worker processes on all cores do. The results are the same, bit for bit.

trainer = esbench.make_trainer(
    "openai_es", env="CartPole-v1", seed=0, workers=0, budget={"env_steps": 60_000}
)
trainer.train()
print(trainer)

# %%
# Every generation leaves a record. The *center* is the policy that the population is drawn
# around, without a perturbation; it is what training improves.

for record in trainer.history[::4]:
    print(
        f"generation {record.generation:2}  steps {record.env_steps:6,}  "
        f"center {record.center_return:6.1f}  members {record.population_return_mean:6.1f}"
    )

# %%
# The return of the center, and the range of the members around it:

steps = [record.env_steps for record in trainer.history]
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.fill_between(
    steps,
    [record.population_return_min for record in trainer.history],
    [record.population_return_max for record in trainer.history],
    alpha=0.2,
    label="members, worst to best",
)
center = [record.center_return for record in trainer.history]
ax.plot(steps, center, marker=".", label="center")
ax.set(xlabel="environment steps", ylabel="return", title="CartPole-v1, OpenAI-ES, seed 0")
ax.legend(loc="upper left")

# %%
# One episode per generation says little about the final policy. Its score is the mean return over
# held-out episodes, whose seeds training cannot draw.

score = trainer.evaluate(episodes=100)
print(f"score {score.mean:.1f} over {score.returns.size} episodes")
trainer.close()

# %%
# With ``out="out"``, ``make_trainer`` stores the trial in a folder, and it can be resumed, scored,
# rendered and verified later (see :doc:`/how-to/scripts`). So does the command line::
#
#     esbench run --env CartPole-v1 --algorithm openai_es --seeds 0 --env-steps 60000 --out out
#
# In a script with workers, the training code belongs below ``if __name__ == "__main__":``, because
# worker processes import the script.
#
# One seed proves nothing: the next tutorial trains several.
