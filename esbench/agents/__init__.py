"""Agents: learners that step through an environment by themselves, such as PPO."""
