"""Inference engines, one folder each: which kernels they make of a network, and how they run."""
