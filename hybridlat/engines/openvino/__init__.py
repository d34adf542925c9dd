"""OpenVINO: asked for its runtime model; cells are timed behind their predecessors."""
