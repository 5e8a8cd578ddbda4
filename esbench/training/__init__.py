"""Training: the trainer, one trial, and the trials of a grid."""
