"""TensorRT: a table of fusion rules, and a worker process that builds and times engines."""
