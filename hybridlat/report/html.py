"""One self-contained page: answers, graphs of cells, curves and comparisons; no outside requests.

Everything that the page says stands in it as text and tables; the script adds drawings. Its
libraries are part of the file (``assets/vendor``), and a content policy forbids all requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from hybridlat.report.batch_curve import curve_data, curve_section, curves_of
from hybridlat.report.html_compare import comparison_section
from hybridlat.report.html_section import network_section
from hybridlat.report.page_data import headings, page_data, script_json
from hybridlat.schema.estimate import Estimate

_ASSETS = Path(__file__).parent / "assets"
_LIBRARIES = ("d3", "dagre")
_SCRIPTS = ("format.js", "layout.js", "graph.js", "plots.js", "main.js")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(estimates: Sequence[Estimate], tolerance: float | None = None) -> str:
    """The whole HTML document for one or several estimates; ``tolerance`` as asked for (0..1).

    Estimates of one network on one target at several batches are drawn as a curve of latency and
    throughput, estimates of several networks or targets are compared.
    """
    names = list(dict.fromkeys(estimate.network for estimate in estimates))
    title = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    curves = curves_of(estimates)
    named = headings(estimates)
    parts = [_contents(named)] if len(named) > 1 else []
    if len({(e.network, e.target) for e in estimates}) > 1:
        parts.append(comparison_section(estimates))
    parts += [curve_section(curve, number) for number, curve in enumerate(curves)]
    parts += [
        network_section(estimate, number, named[number], tolerance)
        for number, estimate in enumerate(estimates)
    ]
    data = {"networks": page_data(estimates), "curves": [curve_data(curve) for curve in curves]}
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)} · latency</title>\n"
        f"<style>\n{_asset('page.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f'{_libraries()}<script>\n(() => {{\n"use strict";\n'
        f"{''.join(map(_asset, _SCRIPTS))}}})();\n</script>\n</body>\n</html>\n"
    )


def _contents(named: Sequence[str]) -> str:
    """Links to the sections of the networks."""
    links = "".join(f'<li><a href="#n{i}">{escape(name)}</a></li>' for i, name in enumerate(named))
    return f'<nav aria-label="Networks on this page"><ol>{links}</ol></nav>'


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def _libraries() -> str:
    """The libraries as they were published, each after its licence."""
    scripts = []
    for name in _LIBRARIES:
        code = _asset(f"vendor/{name}.min.js")
        lines = [line for line in code.splitlines() if not line.startswith("//# sourceMappingURL")]
        licence = _asset(f"vendor/{name}.LICENSE").strip()
        scripts.append(f"<script>\n/* {name}\n{licence}\n*/\n" + "\n".join(lines) + "\n</script>\n")
    return "".join(scripts)
