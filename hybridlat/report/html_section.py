"""One network on the page: the answer, its cells in time and as a graph, a table of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from string import Template

from hybridlat.report import units
from hybridlat.report.cell_texts import Row, chain, names_text, rows_of, where_text
from hybridlat.report.table import Html, Table, escape, titled
from hybridlat.schema.estimate import Estimate

_CHAIN = 60  # letters of a cell's kernels until it is opened
_LETTERS, _LEAST = 150, 7  # that the whole line of time has room for; fewer say nothing
_LIMITS = ("compute", "memory", "launch", "")  # the last: nothing explains the time


@cache
def asset(name: str) -> Template:
    """A file that is part of the page, ``$name`` standing for what is filled in."""
    return Template((Path(__file__).parent / "assets" / name).read_text(encoding="utf-8"))


def in_notebook(head: Sequence[str], tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """A piece of a page for a notebook, light or dark; the first line is bold."""
    bold = "".join(f"<b>{escape(line)}</b><br>" for line in head[:1])
    lines, others = ("<br>".join(map(escape, texts)) for texts in (head[1:], notes))
    pages = ""
    for table in tables:
        columns = [replace(column, wraps=not column.right) for column in table.columns]
        pages += replace(table, columns=columns).page()
    return asset("notebook.html").substitute(head=bold + lines, tables=pages, notes=others)


def network_section(estimate: Estimate, number: int, heading: str) -> str:
    """The section of the ``number``-th estimate."""
    structure, names = estimate.structure, escape(names_text(estimate.removed))
    not_run = f"<summary>Not run: {units.not_run_text(estimate)}</summary><p>{names}</p>"
    parts = [
        f'<section id="n{number}" data-network="{number}" aria-label="{escape(heading)}">',
        _header(estimate, heading),
        _notes(estimate),
        _timeline(estimate),
        asset("graph.html").template if structure and structure.places else "",
        _roofline(estimate),
        _table(estimate),
        f'<details class="removed">{not_run}</details>' if estimate.removed else "",
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _header(estimate: Estimate, heading: str) -> str:
    answer, ends = units.answer_text(estimate)
    spans = {"latency": answer}
    if estimate.interval_us is not None:
        width = units.reach_text(estimate.latency_us, estimate.interval_us)
        parts = [width] if width.startswith("±") else []
        parts += [ends] if estimate.finite_high_us is not None else []
        parts.append(f"{units.confidence_text(estimate.confidence)} sure")
        spans["interval"] = " · ".join(parts)
    if estimate.grade:
        spans[f"grade {estimate.grade}"] = estimate.grade
    if not estimate.trusted:
        spans["doubt"] = "not to be trusted"
    facts = {
        "target": estimate.target,
        "batch": str(estimate.batch),
        "throughput": units.fps_text(estimate.throughput_per_s),
        "budget": units.budget_text(estimate),
        "memory": units.memory_text(estimate),
        "rests on": estimate.rests_on,
        "answered as": estimate.answered_as if estimate.answered_as != estimate.target else "",
        "model": estimate.model,
        "measured just now": units.measured_now_text(estimate),
        "sum of cells": units.latency_text(estimate.sum_of_cells_us),
        "in a run": units.beside_text(estimate),
        "answered in": units.latency_text(estimate.elapsed_s * 1e6),
    }
    shown = [(escape(name), escape(value)) for name, value in facts.items() if value]
    check = f"{escape(estimate.check)}</code> ({escape(estimate.check_field)})"
    shown += [("check it", f"<code>{check}")] if estimate.check else []
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown)
    line = "".join(f'<span class="{kind}">{text}</span>' for kind, text in spans.items())
    title = f'<h1>{escape(heading)}</h1>\n<p class="answer">{line}</p>\n'
    return f'{title}<dl class="facts">{items}</dl>'


def _notes(estimate: Estimate) -> str:
    """One box: what the answer is worth, what one can do about it, the rest folded."""
    remarks = units.remarks(estimate)
    if not remarks and estimate.trusted and estimate.grade in ("measured", "good"):
        return ""
    parts = [f"<p><b>{escape(units.first_upper(units.verdict_text(estimate)))}.</b></p>"]
    for remark in (one for one in remarks if one.kind != "warn"):
        text = escape(remark.text.strip())
        is_command = remark.kind == "command"
        parts.append(f"<pre><code>{text}</code></pre>" if is_command else f"<p>{text}</p>")
    if others := [f"<li>{escape(one.text)}</li>" for one in remarks if one.kind == "warn"]:
        count = units.count_text(len(others), "note")
        parts.append(f"<details><summary>{count}</summary><ul>{''.join(others)}</ul></details>")
    kind = "" if estimate.trusted else " bad"
    return f'<div class="notes{kind}" role="note">{"".join(parts)}</div>'


def _roofline(estimate: Estimate) -> str:
    roofs = None if estimate.structure is None else estimate.structure.roofs
    if roofs is None:
        return ""
    source = f" Roofs: {escape(roofs.source)}." if roofs.source else ""
    shown = {row.limit.partition(" ")[0] for row in rows_of(estimate, fold=False)}
    limits = "".join(
        f'<span class="key-word {name or "none"}">{name or "not known"}</span>'
        for name in filter(shown.__contains__, _LIMITS)
    )
    return asset("roofline.html").substitute(source=source, limits=limits)


def _table(estimate: Estimate) -> str:
    rows = rows_of(estimate, fold=False)
    if not rows:
        return ""
    top = max(row.share for row in rows) or 1.0
    scale = units.scale_for(row.latency_us for row in rows)
    number_of = {cell.signature: i for i, cell in enumerate(estimate.cells)}
    lines: list[list[str | Html]] = []
    for row in rows:
        bar = f'<i class="{row.source}" style="width:{100 * row.share / top:.1f}%"></i>'
        button = '<button type="button" class="show" title="show in the graph">'
        figures = [units.percent_text(row.share), f"×{row.count}"]
        figures += [units.each_text(scale, row.latency_us), row.reach()]
        source = Html(row.source, f"source word tight {row.source}")
        words = row.limit, f"{button}{escape(row.where())}</button>", escape(row.what)
        tight = [Html(markup, "word tight") for markup in words]
        lines.append([Html(bar, "meter"), *figures, source, *tight, Html(_opened(row), "word ops")])
    columns = [
        *titled("", "share", "uses", f"each, {scale.name}", "interval", right=True),
        *titled("source", "limit", "where", "what", "cell", wraps=True),
    ]
    plain, one_source = estimate.structure is None, len({row.source for row in rows}) == 1
    left_out = {"limit": not any(row.limit for row in rows), "where": plain, "what": plain}
    table = Table(columns, lines).without(left_out | {"source": one_source})  # the grade says it
    attributes = [f' data-cell="{number_of[row.cells[0].signature]}"' for row in rows]
    return f"<h2>Cells, slowest first</h2>\n{table.page(attributes)}"


def _opened(row: Row) -> str:
    cell = row.cells[0]
    names = ", ".join(name for name in cell.nodes if name)
    reason = f"<p>{escape(units.first_upper(cell.reason))}.</p>" if cell.reason else ""
    whole, short = chain(row.ops), chain(row.ops, _CHAIN)
    kernels = f"<p>{escape(whole)}</p>" if short != whole else ""
    texts = f"{kernels}<p>{escape(names)}</p>{reason}<p><code>{escape(cell.signature)}</code></p>"
    return f"<details><summary>{escape(short)}</summary>{texts}</details>"


def _timeline(estimate: Estimate) -> str:
    """All cells in the order in which the network first uses them, each as wide as its share."""
    boxes, sources = [], set()
    for number, cell in enumerate(estimate.cells):
        if not cell.latency_us or not cell.share:
            continue
        room = int(_LETTERS * cell.share)
        kernels, label = chain(cell.ops), chain(cell.ops, room)
        if estimate.structure is not None:
            paths = estimate.structure.paths(number)
            kernels, label = f"{where_text(paths)}\n{kernels}", where_text(paths, room) or label
        each, share = units.latency_text(cell.latency_us), units.percent_text(cell.share)
        tip = escape(f"{kernels}\n×{cell.uses}, {each} each, {share}, {cell.source}")
        start = f'<span class="cell {cell.source}" data-cell="{number}" title="{tip}"'
        shown = escape(label) if room >= _LEAST else ""
        boxes.append(f'{start} style="flex:{cell.share:.6f}">{shown}</span>')
        sources.add(cell.source)
    if not boxes:
        return ""
    keys = "".join(f'<span class="key-word {name}">{name}</span>' for name in sorted(sources))
    strip = f'<div class="strip">{"".join(boxes)}</div>'
    words = "Cells in the order of their first use, all uses of a cell together."
    caption = f"<figcaption>{words} {keys}</figcaption>"
    return f'<figure class="timeline">{strip}\n{caption}\n</figure>'
