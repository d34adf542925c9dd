"""The command line: a file for each command, or for two that belong together."""
