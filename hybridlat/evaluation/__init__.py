"""How predictions are judged: splits, metrics, regimes, figures and the leaderboard."""
