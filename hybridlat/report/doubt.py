"""Why an estimate is not to be trusted, in the same words wherever it is shown."""

from __future__ import annotations

from hybridlat.report.units import count_text, half_width_share, percent_text, plus_minus_text
from hybridlat.schema.estimate import Estimate


def why_untrusted(estimate: Estimate, tolerance: float | None = None) -> str:
    """One sentence without its full stop; empty for an estimate that keeps its tolerance.

    ``tolerance`` (0..1) is what was asked for, the estimate's own unless given. An interval can be
    narrow enough and the estimate doubtful all the same: a cell unlike all that the model was
    trained on has an interval that means little.
    """
    missing = sum(cell.source == "unsupported" for cell in estimate.cells)
    if missing or estimate.latency_us is None:
        return f"{count_text(missing, 'cell')} without a latency on {estimate.target}"
    if estimate.contradicted:
        return "the whole network and its cells were measured, and cannot both be right"
    if estimate.busy:
        return "the machine was busy while measuring"
    if estimate.within_tolerance:
        return ""
    if tolerance is None:
        tolerance = estimate.tolerance
    width = half_width_share(estimate.latency_us, estimate.interval_us)
    strange = [cell for cell in estimate.cells if cell.source == "predicted" and not cell.trusted]
    too_wide = width is None or tolerance is None or width > tolerance
    if strange and (tolerance is None or not too_wide):
        are = "is" if len(strange) == 1 else "are"
        return (
            f"{count_text(len(strange), 'cell')} {are} predicted outside what the model was "
            f"trained on ({strange[0].reason})"
        )
    if tolerance is None:
        return "the interval is wider than the tolerance"
    return (
        f"the interval {plus_minus_text(width)} is wider than the tolerance "
        f"{percent_text(tolerance)}"
    )
