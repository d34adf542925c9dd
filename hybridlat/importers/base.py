"""What an importer gives back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hybridlat.core.measurement import Breakdown, Measurement


@dataclass
class Imported:
    """Records made from a data set, ready for a store.

    ``signatures`` maps hash to text of every measured cell; ``skipped`` counts the rows that were
    left out, by reason. A reason with a count is never silent: whoever imports prints them.
    """

    signatures: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    breakdowns: list[Breakdown] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
