"""One file per command of the command line: its options, one call, and printing."""
