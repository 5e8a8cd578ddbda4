"""HTML pages in one file each: of a report, of a history and of a leaderboard."""
