"""Atari games as Gymnasium environments of small gray frames, under two named protocols."""
