"""Compose: what is believed of cells comes in, the network's latency and interval go out."""
