"""Computation graphs as values: networks, operators, signatures, cells."""
