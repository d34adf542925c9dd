"""Networks side by side, as Python sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hybridlat.report import compare, views
from hybridlat.schema.estimate import Estimate


@dataclass(frozen=True)
class Comparison:
    """Networks side by side; the first is what the others are compared with.

    ``str`` is the table of ``hybridlat compare``; ``estimates`` are in the order of the networks.
    ``hybridlat.to_frame`` and ``to_html`` take them.
    """

    estimates: tuple[Estimate, ...]

    @property
    def speed_up(self) -> tuple[float | None, ...]:
        """How many times faster each network is than the first; None without a latency."""
        return tuple(compare.speed_up(self.estimates[0], one) for one in self.estimates)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``hybridlat compare --json``."""
        return compare.comparison(self.estimates)

    def __str__(self) -> str:
        return views.printed(lambda console: compare.print_comparison(console, self.estimates))

    def _repr_html_(self) -> str:
        return views.comparison_in_notebook(self.estimates)
