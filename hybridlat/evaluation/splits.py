"""Who is held out, decided by names alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

FOLDS = 5


def fold_of(name: str, folds: int = FOLDS) -> int:
    """The fold of a network, from the hash of its name: adding others never moves it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % folds


def even_folds(names: Iterable[str], folds: int = FOLDS) -> dict[str, int]:
    """Folds of the same size, dealt out in the order of the names' hashes."""
    ordered = sorted(set(names), key=lambda name: (hashlib.sha256(name.encode()).digest(), name))
    return {name: index % folds for index, name in enumerate(ordered)}


def random_split(count: int, train: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """``train`` positions drawn at random, and the rest."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[:train]), np.sort(order[train:])
