"""Records to metrics to estimates to verdicts; pure functions."""
