"""Paddle Inference with TensorRT."""
