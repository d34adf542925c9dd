"""Estimates as Python shows them: a line, a terminal's table, a notebook, a data frame, a page.

The page is self-contained: answers, graphs of cells, curves, comparisons; it loads nothing.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import cache
from importlib.metadata import version
from itertools import compress
from typing import Any

from hybridlat.errors import HybridlatError, InputError, MissingExtra
from hybridlat.report import terminal, units
from hybridlat.report.cell_texts import abbreviated, chain, kernel_sizes, row_of, where_text
from hybridlat.report.compare import Comparison, differences_table, letter_of
from hybridlat.report.html_section import asset, in_notebook, network_section
from hybridlat.report.prediction_table import Answer, compared_note, order_note, record_of, table_of
from hybridlat.report.sweep import Sweep
from hybridlat.report.table import Table, escape
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.files import write_text
from hybridlat.schema.shown import part_text, visible


def line(estimate: Estimate) -> str:
    """``Estimate(a.onnx on l4/tensorrt/fp16, batch 1: 547 µs, 369–810 µs (90 %), rough, …)``."""
    facts = [units.latency_text(estimate.latency_us) if estimate.latency_us else "no latency"]
    if estimate.interval_us is not None:
        sure = units.confidence_text(estimate.confidence)
        facts.append(f"{units.interval_text(estimate.interval_us).replace(' – ', '–')} ({sure})")
    if estimate.grade is not None:
        facts.append(estimate.grade)
    if estimate.grade != "measured":
        facts.append(f"{part_text(estimate.measured_share)} measured")
    facts.append(units.count_text(len(estimate.cells), "cell"))
    of = f"{estimate.network} on {estimate.target}, batch {estimate.batch}"
    return visible(f"Estimate({of}: {', '.join(facts)})")


def text(estimate: Estimate) -> str:
    """What ``hybridlat predict`` prints, without colours."""
    return terminal.printed(lambda console: terminal.print_estimate(console, estimate))


def notebook(estimate: Estimate) -> str:
    """A piece of a page for a notebook, light or dark: the answer and the slowest cells."""
    head = terminal.printed(lambda console: console.print(terminal.headline(estimate)))
    notes = [terminal.less_options(note.plain) for note in terminal.notes(estimate)]
    shown = [terminal.cells_table(*terminal.shown_rows(estimate, False), terminal.WIDTH)]
    return in_notebook(head.splitlines(), shown if estimate.cells else [], notes)


def text_of_many(estimates: Sequence[Answer]) -> str:
    """One table, as a terminal shows it."""
    lines = [terminal.printed(table_of(estimates).print), compared_note(estimates)]
    return "\n".join(filter(None, lines))


def notebook_of_many(estimates: Sequence[Answer]) -> str:
    """One table for a notebook."""
    table = table_of(estimates)
    return in_notebook([*filter(None, [str(table.caption), compared_note(estimates)])], [table])


def to_html(estimates: Any, path: str | os.PathLike[str] | None = None) -> str | None:
    """One page about all estimates: its text, or None where it was written to ``path``.

    Several batches of one network become a curve, several networks or targets are compared. The
    graph of cells and the roofline need ``predict(..., describe=True)``. ``estimates`` are as
    those of ``to_frame``, without errors; InputError for none.
    """
    each = _listed(estimates, "to_html", Estimate)
    if not each:
        raise InputError("to_html takes one estimate at least: there is none")
    if path is None:
        return page(each)
    write_text(path, page(each))
    return None


def to_frame(estimates: Any) -> Any:
    """A pandas data frame with one row for each estimate, in the columns of ``predict --csv``.

    Takes one, any iterable of them, a Comparison or a Sweep, whose rows have its values and steps
    as well. Of an error among them the row holds ``error`` alone.
    Raises InputError for anything else, MissingExtra where pandas is not installed.
    """
    if isinstance(getattr(estimates, "estimates", None), Mapping):
        return _frame(estimates.to_json()["points"])
    each = _listed(estimates, "to_frame", Estimate, HybridlatError)
    return _frame([record_of(e) if isinstance(e, Estimate) else {"error": str(e)} for e in each])


def _listed(estimates: Any, call: str, *kinds: type) -> tuple[Any, ...]:
    """One estimate, or those that something holds; InputError where one is of no such kind."""
    held: Any = getattr(estimates, "estimates", estimates)
    held = held.values() if isinstance(held, Mapping) else held
    is_one = isinstance(held, Estimate | str) or not isinstance(held, Iterable)
    for one in (each := (held,) if is_one else tuple(held)):
        if not isinstance(one, kinds):
            what = "an estimate, several, a Comparison or a Sweep"
            raise InputError(f"{call} takes {what}, and {one!r:.80} is no estimate")
    return each


def frame_of_cells(estimate: Estimate) -> Any:
    """One row for each cell, in the order of ``estimate.cells``, as the JSON has it."""
    rows = []
    for cell, body in zip(estimate.cells, estimate.to_json()["cells"], strict=True):
        low_us, high_us = body.pop("interval_us") or (None, None)
        first = {"ops": " → ".join(body.pop("ops")), "uses": body.pop("count")}
        first |= {"latency_us": cell.latency_us, "low_us": low_us, "high_us": high_us}
        rows.append(first | {"total_us": cell.total_us, **body, "reason": cell.reason})
    return _frame(rows)


def _frame(rows: Sequence[dict[str, object]]) -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "train", "to_frame") from None
    return pandas.DataFrame(rows)


_SCRIPTS = ("format.js", "layout.js", "graph.js", "plots.js", "main.js")
_DIFFERENCES = 20  # cells that are shown
_STEERING = re.compile("[<\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LABEL = 40  # letters of a chain of kernels; its whole is beside it
_BARS = 'class="comparison"'


def page(
    estimates: Sequence[Estimate],
    *,
    command: str = "",
    sweep: Sweep | None = None,
    choice: Table | None = None,
    comparison: Comparison | None = None,
) -> str:
    """The whole HTML document for one or several estimates; ``command`` made it, says its foot.

    Several batches of a network are drawn as a curve, as a ``sweep`` is; others are compared. Of
    targets to choose from it has the table of the ``choice`` alone.
    """
    names = list(dict.fromkeys(estimate.network for estimate in estimates))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    named, parts = headings(estimates), list[str]()
    if len(named) > 1 and choice is None:
        links = "".join(f'<li><a href="#n{i}">{escape(n)}</a></li>' for i, n in enumerate(named))
        parts.append(f'<nav aria-label="Networks on this page"><ol>{links}</ol></nav>')
    if sweep is not None:
        parts.append(_curve(sweep.over, sweep.estimates, range(len(estimates)), sweep.table()))
    elif choice is not None:
        budget = estimates[0].max_latency_us
        against = "" if budget is None else f" against {units.latency_text(budget)}"
        heading = f"{names[0]} on {units.count_text(len(estimates), 'target')}{against}"
        hint = "The first is the first to choose: by verdict, power and memory."
        parts.append(_drawn(heading, [hint, order_note(estimates)], _BARS, choice.page()))
    elif len({(e.network, e.target) for e in estimates}) > 1:
        parts.append(_comparison(comparison or Comparison(tuple(estimates))))
    for curve in curves_of(estimates) if sweep is None else ():
        batches: dict[float, Estimate] = {estimates[i].batch: estimates[i] for i in curve}
        parts.append(_curve("batch", batches, curve, table_of([*batches.values()])))
    each = list(enumerate(estimates))
    parts += [network_section(one, i, named[i]) for i, one in each if choice is None]
    networks = [{"letter": letter_of(i), "heading": named[i], **_network(one)} for i, one in each]
    made = f"hybridlat {version('hybridlat')} · {date.today().isoformat()}"
    return asset("page.html").substitute(
        title=escape(title),
        style=asset("page.css").template,
        body="\n".join(parts),
        foot=f"{made} · <code>{escape(command)}</code>" if command else made,
        data=_script_json({"networks": networks}),
        libraries=_libraries(),
        scripts="".join(asset(name).template for name in _SCRIPTS),
    )


@cache
def _libraries() -> str:
    """The libraries as they were published, each after its licence."""
    scripts = []
    for name in ("d3", "dagre"):
        code = asset(f"vendor/{name}.min.js").template
        lines = [line for line in code.splitlines() if not line.startswith("//# sourceMappingURL")]
        licence = asset(f"vendor/{name}.LICENSE").template.strip()
        scripts.append(f"<script>\n/* {name}\n{licence}\n*/\n" + "\n".join(lines) + "\n</script>\n")
    return "".join(scripts)


def headings(estimates: Sequence[Estimate]) -> list[str]:
    """The networks' names, with what the estimates differ by: batches, targets."""
    words = [(e.network, f"batch {e.batch}", e.target) for e in estimates]
    _, *others = (len(set(column)) > 1 for column in zip(*words, strict=True))
    return [" · ".join(compress(each, [True, *others])) for each in words]


def _comparison(comparison: Comparison) -> str:
    estimates, table = comparison.estimates, comparison.networks_table()
    cells = differences_table(estimates, _DIFFERENCES)
    apart = f"<h2>Cells that make the difference</h2>\n{cells.page()}" if cells.rows else ""
    hints = [str(table.caption or ""), compared_note(estimates)]
    return _drawn(f"{len(estimates)} estimates side by side", hints, _BARS, table.page() + apart)


def _drawn(heading: str, hints: Sequence[str], figure: str, below: str) -> str:
    """A section with a figure, of these attributes, that the page's scripts draw."""
    shown = "".join(f'<p class="hint">{escape(hint)}</p>\n' for hint in filter(None, hints))
    drawing = f'<figure {figure} hidden><div class="plot"></div></figure>'
    return f"<section>\n<h1>{escape(heading)}</h1>\n{shown}{drawing}\n{below}</section>"


def curves_of(estimates: Sequence[Estimate]) -> list[list[int]]:
    """Of each network and target at several batches the positions of its estimates, by batch."""
    by_network = defaultdict[tuple[str, str], dict[int, int]](dict)
    for i, one in enumerate(estimates):
        by_network[one.network, one.target][one.batch] = i
    return [[by[n] for n in sorted(by)] for by in by_network.values() if len(by) > 1]


def _curve(
    over: str, estimates: Mapping[float, Estimate], positions: Sequence[int], below: Table
) -> str:
    """Estimates by what they are drawn ``over``; their ``positions`` are those on the page."""
    points, values = (" ".join(map(str, numbers)) for numbers in (positions, estimates))
    first, one = next(iter(estimates.items()))
    name = one.network.removesuffix(f" at {over} {first:g}")
    plural = "es" if over == "batch" else "s"
    figure = f'data-curve="{points}" data-over="{over}" data-values="{values}"'
    return _drawn(f"{name} over {over}{plural}", [f"on {one.target}"], figure, below.page())


def _script_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _network(estimate: Estimate) -> dict[str, Any]:
    structure, body = estimate.structure, estimate.to_json()
    network = {name: body[name] for name in ("network", "batch", "latency_us", "interval_us")}
    network["latency"] = units.answer_text(estimate)[0]
    network["throughput"] = units.fps_text(estimate.throughput_per_s)
    network["cells"] = [_cell(estimate, i, cell) for i, cell in enumerate(body["cells"])]
    network["places"] = [asdict(place) for place in structure.places] if structure else []
    network["roofs"] = asdict(structure.roofs) if structure and structure.roofs else None
    return network


def _cell(estimate: Estimate, position: int, body: dict[str, Any]) -> dict[str, Any]:
    cell, row = estimate.cells[position], row_of(estimate, position)
    latency = units.latency_text(cell.latency_us)
    if cell.latency_us is not None and cell.latency_us < units.RESOLUTION_US:
        latency = f"< {units.RESOLUTION_US:g} µs"
    made_of = () if estimate.structure is None else estimate.structure.cells[position].kernels
    return body | {
        "nodes": None,  # they stand in the places
        "label": chain(row.ops, _LABEL),
        "operators": " ".join(sorted({*row.ops})),
        "ops": chain(row.ops),
        "latency": latency,
        "reach": "" if row.half_width_share is None else row.reach(),
        "half_width_share": row.half_width_share,
        "share_text": units.percent_text(cell.share if cell.latency_us is not None else None),
        "where": where_text(row.paths),
        "what": row.what,
        "kernels": [
            {"op": abbreviated(k.op), "what": kernel_sizes(k), "reads": k.reads} for k in made_of
        ],
    }
