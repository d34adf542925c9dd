"""Partition: a file comes in, goes out as the cells that its target's engine makes of it."""
