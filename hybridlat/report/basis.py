"""What an estimate rests on, in the same words wherever it is shown."""

from __future__ import annotations

from hybridlat.report.units import count_text, part_text
from hybridlat.schema.estimate import Estimate


def basis_text(estimate: Estimate) -> str:
    """``82 % of the time measured``, or when the whole network was."""
    if estimate.source == "measured":
        return estimate.reason
    return f"{part_text(estimate.measured_share)} of the time measured"


def measured_now_text(estimate: Estimate) -> str:
    """``3 cells and the network``; empty where nothing was measured to answer."""
    found = [count_text(estimate.measured_now, "cell")] if estimate.measured_now else []
    if estimate.network_measured_now:
        found.append("the network")
    return " and ".join(found)
