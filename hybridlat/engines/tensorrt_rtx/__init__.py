"""TensorRT-RTX: its compiler, which runs without a GPU, is asked what it fuses."""
