"""Tables, figures, reports, the gate and the leaderboard."""
