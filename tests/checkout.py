"""Folders and files of the checkout that tests read."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LEADERBOARD: Final = ROOT / "results" / "leaderboard"
