"""Estimates shown to people and programs: terminal, JSON, HTML and comparisons."""
