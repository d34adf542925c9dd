"""Predictions judged on held-out networks, and kept as MLflow runs."""
