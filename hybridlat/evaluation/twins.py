"""Networks that are much the same as another one, and folds that keep them together.

Where latencies of whole networks are all there is, a network held out by its name stays known in
training. Its twins are there: the same architecture under another name, or deeper and wider
variants that run the same kernels.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hybridlat.evaluation.cross_fitting import FOLDS
from hybridlat.model.family.embedding import DESCRIPTORS, LAYOUT
from hybridlat.model.family.observations import Observation
from hybridlat.model.family.physics import HOST

TWIN_SHARE = 0.9
"""Of a network's time in kernels that another one runs too, beyond which the two are twins."""
_OF_DEVICE = (
    "roofline", "intensity", "fill_64", "fill_128", "outputs_per_unit", "to_last_cache", "balance",
    "units",
)  # fmt: skip
_GEOMETRY = [*(i for i, name in enumerate(DESCRIPTORS) if name not in _OF_DEVICE), LAYOUT]
_OTHER_WEIGHTS = re.compile(r"^(tf|legacy|dm)_")
Twins = Sequence[tuple[str, str]]


def plain_name(architecture: str) -> str:
    """An architecture's name without the prefixes that tell ports of it apart."""
    return _OTHER_WEIGHTS.sub("", architecture)


class SharedKernels:
    """Which kernels (by geometry, batch included) each row runs, on whatever device."""

    def __init__(self, rows: Sequence[Observation]) -> None:
        from scipy import sparse

        number, distinct = dict[bytes, int](), dict[int, Observation]()
        for row in rows:
            distinct.setdefault(id(row.kernels), row)
        self.networks = [row.architecture for row in distinct.values()]
        columns, shares, starts = [], [], [0]
        for kernels in (row.kernels for row in distinct.values()):
            own = kernels.classes < HOST  # what all networks have says nothing
            texts = np.column_stack([kernels.descriptors[own][:, _GEOMETRY], kernels.classes[own]])
            base_us = (kernels.counts * kernels.base_us)[own]
            columns += [number.setdefault(text.tobytes(), len(number)) for text in texts]
            shares += (base_us / base_us.sum()).tolist()
            starts.append(len(columns))
        self._shares = sparse.csr_array((shares, columns, starts), (len(distinct), len(number)))
        place = {key: position for position, key in enumerate(distinct)}
        self._place = np.array([place[id(row.kernels)] for row in rows], np.intp)

    def twins(self) -> Twins:
        """Pairs of networks of which one has a counterpart of over 90 % of its time in the other.

        Those come first that are most alike both ways.
        """
        held = (self._shares @ (self._shares > 0).astype(np.float64).T).tocsr()
        left, right = (held > TWIN_SHARE).nonzero()
        alike: dict[tuple[str, str], float] = defaultdict(float)
        for i, j, share in zip(left, right, held.minimum(held.T)[left, right], strict=True):
            first, second = sorted((self.networks[i], self.networks[j]))
            if first != second:
                alike[first, second] = max(alike[first, second], float(share))
        return sorted(alike, key=lambda pair: (-alike[pair], pair))

    def held(self, known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The part (0..1) of each row's time in kernels that rows at ``known`` run too."""
        chosen = np.unique(self._place[known])
        seen = np.asarray((self._shares[chosen] > 0).sum(axis=0)).ravel() > 0
        return np.asarray(self._shares @ seen.astype(np.float64))[self._place]


def united(start: Mapping[str, str], twins: Iterable[tuple[str, str]], most: int) -> dict[str, str]:
    """The group of each name, its first in the alphabet: twins belong together, and their twins.

    ``start`` has the groups that belong together anyway. What would make a group of more than
    ``most`` names stays apart: chains of twins join networks that are not alike.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for name, group in start.items():
        members[group].append(name)
    of = dict(start)
    for pair in twins:
        into, gone = sorted(of[name] for name in pair)
        if into != gone and len(members[into]) + len(members[gone]) <= most:
            of.update(dict.fromkeys(members[gone], into))
            members[into] += members.pop(gone)
    return {name: min(members[group]) for name, group in of.items()}


def dealt(groups: Mapping[str, str], seed: object = 0) -> dict[str, int]:
    """The fold of each name, its group's: large groups first, each to the fold of its first choice.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018): a full fold
    passes a group on to its next choice, so that one more name moves few of the others.
    """
    sizes, filled = Counter(groups.values()), [0] * FOLDS
    room = math.ceil(len(groups) / FOLDS)
    fold_of: dict[str, int] = {}
    for group in sorted(sizes, key=lambda one: (-sizes[one], _digest(seed, one))):
        choices = sorted(range(FOLDS), key=lambda fold: _digest(seed, f"{fold} {group}"))
        free = [fold for fold in choices if filled[fold] + sizes[group] <= room]
        fold_of[group] = free[0] if free else min(choices, key=filled.__getitem__)
        filled[fold_of[group]] += sizes[group]
    return {name: fold_of[group] for name, group in groups.items()}


def _digest(seed: object, text: str) -> bytes:
    return hashlib.sha256(f"{seed} {text}".encode()).digest()
