"""Gate: what is believed of a network comes in, what to measure next goes out."""
