"""The pure core: frozen values and functions of them; no files, clocks, randomness or engines."""
