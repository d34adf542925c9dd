"""PyTorch: what a module runs eagerly, and what ``torch.compile`` makes of it."""
