"""TensorRT: the kernels that it makes of a network, and its backend."""
