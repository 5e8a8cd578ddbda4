"""A leaderboard that anyone can check: one small file per cell, with digests to train again."""
