"""Models fitted, judged and promoted; new devices onboarded."""
