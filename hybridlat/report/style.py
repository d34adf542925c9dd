"""The style sheet of the HTML report, for light and dark screens and for paper."""

STYLE = """\
:root {
  --paper: #ffffff; --ink: #1d2330; --soft: #667085; --line: #e3e6ec;
  --measured: #2f7d5b; --measured-2: #46987a; --predicted: #b7791f; --predicted-2: #cf9438;
  --unsupported: #c0362c; --on-cell: #ffffff; --warn-paper: #fdf5e3; --bad-paper: #fdecea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171d; --ink: #e8eaee; --soft: #98a1b0; --line: #2b313c;
    --measured: #58b08a; --measured-2: #3f9672; --predicted: #dba550; --predicted-2: #bf8a36;
    --unsupported: #f0776c; --on-cell: #0e1116; --warn-paper: #2b2415; --bad-paper: #341b19;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
section + section { margin-top: 56px; padding-top: 32px; border-top: 1px solid var(--line); }
h1 { margin: 0; font-size: 20px; font-weight: 600; overflow-wrap: anywhere; }
.answer { margin: 4px 0 14px; display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 16px; }
.latency { font-size: 44px; font-weight: 650; letter-spacing: -0.02em; }
.interval { color: var(--soft); font-size: 17px; }
td.source.unsupported, .doubt { color: var(--unsupported); font-weight: 600; }
dl { display: flex; flex-wrap: wrap; gap: 8px 30px; margin: 0 0 20px; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; overflow-wrap: anywhere; }
.notes { list-style: none; margin: 0 0 18px; padding: 0; }
.notes li { padding: 6px 12px; margin-bottom: 4px; border-radius: 6px; }
.notes .warn { background: var(--warn-paper); }
.notes .bad { background: var(--bad-paper); }
figure { margin: 0 0 22px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; text-anchor: middle; }
.cell text { fill: var(--on-cell); font-size: 11px; pointer-events: none; }
.cell.measured rect { fill: var(--measured); }
.cell.measured.p1 rect { fill: var(--measured-2); }
.cell.predicted rect { fill: var(--predicted); }
.cell.predicted.p1 rect { fill: var(--predicted-2); }
.cell:hover rect { opacity: 0.8; }
.axis path { stroke: var(--line); fill: none; }
.axis text { fill: var(--soft); }
.axis text.first { text-anchor: start; }
.whisker path { stroke: var(--ink); stroke-width: 1.5; fill: none; }
.whisker circle { fill: var(--ink); }
figcaption { color: var(--soft); font-size: 13px; }
.key { margin-left: 12px; white-space: nowrap; }
.key::before {
  content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px; background: var(--measured);
}
.key.predicted::before { background: var(--predicted); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--soft); font-weight: 500; font-size: 13px; }
td { text-align: right; border-top: 1px solid var(--line); vertical-align: top; }
th, td { padding: 5px 14px 5px 0; white-space: nowrap; }
th:last-child, td.ops { text-align: left; width: 100%; white-space: normal; }
th:nth-last-child(2), td.source { text-align: left; }
td.bar { width: 120px; min-width: 90px; padding-top: 11px; text-align: left; }
td.bar i { display: block; height: 10px; border-radius: 2px; background: var(--measured); }
td.bar i.predicted { background: var(--predicted); }
td.source.measured { color: var(--measured); }
td.source.predicted { color: var(--predicted); }
summary { cursor: pointer; overflow-wrap: anywhere; }
details p { margin: 4px 0; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
@media print { main { max-width: none; padding: 0; } section { break-inside: avoid; } }
"""
