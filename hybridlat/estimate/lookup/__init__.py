"""Look-up: signatures of cells and networks come in, what is on record of a target goes out."""
