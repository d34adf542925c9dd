"""Predict: the cells of a network come in, a prior of each goes out, measured or predicted."""
