"""The latency of kernels and cells: features, the learned predictor, the baselines."""
