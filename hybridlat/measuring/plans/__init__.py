"""Plans: what to measure on a board that has nothing but TensorRT, and its results read back.

``write`` makes a folder; ``sh run.sh`` or ``python3 worker.py run`` in it measures;
``read_results`` checks what came back and turns it into records.
"""

from __future__ import annotations

from hybridlat.measuring.plans.build import (
    Draft,
    ItemKey,
    Lower,
    PlanRequest,
    Wanted,
    draft_for,
    write,
)
from hybridlat.measuring.plans.results import read_breakdowns, read_results

__all__ = [
    "Draft", "ItemKey", "Lower", "PlanRequest", "Wanted", "draft_for", "read_breakdowns",
    "read_results", "write",
]  # fmt: skip
