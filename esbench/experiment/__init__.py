"""Training: the trainer of a trial, the score of its policy, and what callbacks are given."""
