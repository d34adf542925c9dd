"""``hybridlat store import --from networks|trtexec``: whole networks that others measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hybridlat.cli.output import aside, print_json
from hybridlat.errors import InputError
from hybridlat.measuring import tables
from hybridlat.measuring.network_files import NetworkFiles
from hybridlat.report.units import count_text
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.importers.table import grouped

_SHOWN = 5  # values named for each reason


def run(
    opened: Store,
    form: str,
    paths: Sequence[str],
    given: Mapping[str, str | None],
    pace: Callable[[int, int], None],
) -> dict[str, Any]:
    """Import; what came of it, as ``--json`` prints it.

    ``given`` has nets, columns and target. Raises InputError where nothing could be imported.
    """
    columns, nets, target = given["columns"], given["nets"], given["target"]
    read = tables.read_rows(
        form,
        [Path(path) for path in paths],
        None if columns is None else Path(columns),
        None if target is None else Target.parse(target),
    )
    files = None if nets is None else NetworkFiles.at(Path(nets))
    counts = Counter(rows=len(read.rows) + len(read.refused), read=0, measurements=0)
    refused = list(read.refused)
    targets = set()
    for taken in tables.take(read.rows, files, opened, pace):
        imported = taken.imported
        counts["signatures"] += opened.add_signatures(imported.signatures)
        counts["measurements"] += opened.add(imported.measurements)
        counts["breakdowns"] += opened.add_breakdowns(imported.breakdowns)
        counts["read"] += len(imported.measurements)
        targets |= {record.target for record in imported.measurements}
        refused += taken.refused
    return {
        **counts,
        "targets": sorted(map(str, targets)),
        "notes": tables.notes(sorted(targets)),
        "left_out": [
            {"reason": reason, "fix": fix, "rows": [[r.where, r.value] for r in rows]}
            for (reason, fix), rows in grouped(refused).items()
        ],
    }


def show(counts: Mapping[str, Any], as_json: bool) -> None:
    """Print what ``run`` gave; InputError where no row became a record."""
    if as_json:
        print_json(counts)
    else:
        click.echo(
            f"{counts['measurements']:,} of {counts['read']:,} records are new, with "
            f"{count_text(counts['signatures'], 'signature')} and "
            f"{count_text(counts['breakdowns'], 'breakdown')}"
        )
        for target in counts["targets"]:
            click.echo(f"  {target}")
        for item in counts["left_out"]:
            aside(_sentence(item))
        for note in counts["notes"]:
            aside(note)
    if not counts["read"]:
        raise InputError(
            f"none of {counts['rows']:,} rows could be imported: see what was left out"
        )


def _sentence(item: Mapping[str, Any]) -> str:
    """Rows with the same value are named once."""
    rows = item["rows"]
    by_value: dict[str, list[str]] = {}
    for where, value in rows:
        by_value.setdefault(value, []).append(where)
    shown = list(by_value.items())[:_SHOWN]
    some = "; ".join(
        f"{places[0]}{_others(len(places) - 1)}: {value or '(empty)'}" for value, places in shown
    )
    left = len(rows) - sum(len(places) for _, places in shown)
    more = f"; and {left:,} more" if left else ""
    return (
        f"{count_text(len(rows), 'row')} left out: {item['reason']} ({item['fix']}): {some}{more}"
    )


def _others(count: int) -> str:
    return f" and {count_text(count, 'other')}" if count else ""
