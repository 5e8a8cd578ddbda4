"""Trackers: TensorBoard, Weights & Biases, MLflow, and the base of a user's own."""
