"""Latency and throughput of one network over batches, from a list of estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from hybridlat.report.units import interval_text, latency_text
from hybridlat.schema.estimate import Estimate


@dataclass(frozen=True)
class BatchCurve:
    """Estimates of one network on one target, by rising batch; each batch once."""

    estimates: tuple[Estimate, ...]


def curves_of(estimates: Sequence[Estimate]) -> list[BatchCurve]:
    """A curve for every network and target that was asked at two batches or more."""
    by_network: dict[tuple[str, str], dict[int, Estimate]] = {}
    for estimate in estimates:
        by_network.setdefault((estimate.network, estimate.target), {})[estimate.batch] = estimate
    return [
        BatchCurve(tuple(by_batch[batch] for batch in sorted(by_batch)))
        for by_batch in by_network.values()
        if len(by_batch) > 1
    ]


def throughput_text(per_s: float | None) -> str:
    """``123 a second``; a dash where there is none."""
    if per_s is None:
        return "–"
    return f"{per_s:,.{0 if per_s >= 100 else 1 if per_s >= 10 else 2}f} a second"


def curve_data(curve: BatchCurve) -> dict[str, Any]:
    """What the curve is drawn from."""
    return {
        "network": curve.estimates[0].network,
        "points": [
            {
                "batch": e.batch,
                "latency_us": e.latency_us,
                "interval_us": e.interval_us,
                "latency": latency_text(e.latency_us),
                "throughput": throughput_text(e.throughput_per_s),
            }
            for e in curve.estimates
        ],
    }


def curve_section(curve: BatchCurve, number: int) -> str:
    """The curve's part of the page: the frame of its drawing, and a table with its figures."""
    first = curve.estimates[0]
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("batch", "latency", "interval", "for each input", "throughput")
    )
    rows = "\n".join(
        f"<tr><td>{e.batch}</td><td>{latency_text(e.latency_us)}</td>"
        f"<td>{interval_text(e.interval_us)}</td>"
        f"<td>{latency_text(e.latency_us / e.batch if e.latency_us else None)}</td>"
        f"<td>{throughput_text(e.throughput_per_s)}</td></tr>"
        for e in curve.estimates
    )
    return (
        f"<section>\n<h1>{escape(first.network)} over batches</h1>\n"
        f'<p class="hint">on {escape(first.target)}</p>\n'
        f'<figure data-curve="{number}" hidden><div class="plot"></div></figure>\n'
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n</section>"
    )
