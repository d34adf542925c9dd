"""ONNX Runtime on the CPU: what it makes of a network, and sessions that run it."""
