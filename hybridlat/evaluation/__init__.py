"""Evaluates predictions on held-out networks: records in, rows of figures and MLflow runs out."""
