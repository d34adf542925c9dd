"""Measuring: the protocols, the measuring process, plans for boards, and ssh."""
