"""Making Gymnasium environments; backends, behaviors, Atari games and test functions."""
