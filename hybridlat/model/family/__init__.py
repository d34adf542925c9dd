"""Kernel latencies learned from whole networks' latencies, over several targets at once."""
