"""Atari games as Gymnasium environments of small grey frames, under two named protocols."""
