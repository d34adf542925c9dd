"""ONNX Runtime: asked for its own optimised graph, which is cut and timed in its own layout."""
