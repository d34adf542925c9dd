"""``hybridlat store import``: packs, and what others measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from hybridlat.cli import options
from hybridlat.cli.output import ProgressShown, aside, print_json
from hybridlat.errors import InputError
from hybridlat.measuring import tables
from hybridlat.report.units import count_text
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store, importers
from hybridlat.store.importers.columns import ColumnMap, read_column_map
from hybridlat.store.importers.table import Refusal, Rows, read_networks
from hybridlat.store.importers.trtexec_log import read_logs

_SHOWN = 5  # values named for each reason


@click.command(name="import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...",
                type=click.Path(path_type=Path))  # fmt: skip
@click.option("--from", "data_set", metavar="NAME",
              help="PATH is a table of whole networks (networks), logs of trtexec (trtexec), or "
                   "what an importer of another package reads.")  # fmt: skip
@click.option("--nets", metavar="DIR", type=click.Path(path_type=Path),
              help="ONNX files of a table's networks.")  # fmt: skip
@click.option("--columns", metavar="FILE", type=click.Path(path_type=Path),
              help="A table's columns, as TOML.")  # fmt: skip
@click.option("--target", metavar="TARGET", help="Target of what a table or log does not state.")
@options.store
@options.as_json
def import_(
    paths: tuple[Path, ...],
    data_set: str | None,
    nets: Path | None,
    columns: Path | None,
    target: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Add the records of packs, tables or logs.

    What the store has already is not added twice. See docs/guides/importing.md for tables.

    \b
    hybridlat store import a-pack
    hybridlat store import latencies.csv --from networks --nets DIR --target t4/tensorrt/fp16
    """
    given = {"nets": nets, "columns": columns, "target": target}
    of_tables = [name for name, value in given.items() if value is not None]
    if of_tables and data_set not in importers.TABLES:
        raise click.UsageError(
            f"--{of_tables[0]} is for tables: use it with --from {' or '.join(importers.TABLES)}"
        )
    if columns is not None and data_set == "trtexec":
        raise click.UsageError("--columns is for tables: --target gives what a log does not state")
    with Store(store) as opened:
        if data_set in importers.TABLES:
            default = None if target is None else Target.parse(target)
            if data_set == "trtexec":
                read = read_logs(paths, default)
            else:
                column_map = ColumnMap() if columns is None else read_column_map(columns)
                read = read_networks(paths, column_map, default)
            document, asides = _import_rows(opened, read, nets)
        else:
            document, asides = _import_records(opened, data_set, paths)
    if as_json:
        print_json(document)
    else:
        click.echo(
            f"{document['measurements']:,} of {document['read']:,} records are new, with "
            f"{count_text(document['signatures'], 'signature')} and "
            f"{count_text(document['breakdowns'], 'breakdown')}"
        )
        for name in document["targets"]:
            click.echo(f"  {name}")
        for sentence in asides:
            aside(sentence)
    if data_set in importers.TABLES and not document["read"]:
        raise InputError(
            f"none of {document['rows']:,} rows could be imported: see what was left out"
        )


def _import_records(
    opened: Store, data_set: str | None, paths: Sequence[Path]
) -> tuple[dict[str, Any], list[str]]:
    """Import packs, or what a plug-in reads; the JSON document, and what is said."""
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    targets: set[str] = set()
    for path in paths:
        if data_set is None:
            counts.update(asdict(opened.import_(path)))
            continue
        imported = importers.read(data_set, path)
        counts.update(asdict(opened.add_all(imported)))
        skipped.update(imported.skipped)
        targets |= {str(record.target) for record in imported.measurements}
    asides = [f"{number:,} rows left out: {reason}" for reason, number in skipped.items()]
    return {**counts, "skipped": skipped, "targets": sorted(targets)}, asides


def _import_rows(opened: Store, read: Rows, nets: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Import whole networks of tables or logs; the JSON document, and what is said."""
    counts = Counter(read=0, measurements=0, signatures=0, breakdowns=0)
    refused = list(read.refused)
    targets: set[Target] = set()
    files = None if nets is None else tables.NetworkFiles(nets)
    began, done = time.monotonic(), 0
    with ProgressShown() as shown:
        for imported, left_out in tables.take(read.rows, files):
            new = replace(opened.add_all(imported), read=len(imported.measurements))
            counts.update(asdict(new))
            targets |= {record.target for record in imported.measurements}
            refused += left_out
            done += new.read + len(left_out)
            left_s = (time.monotonic() - began) * (len(read.rows) / done - 1)
            shown(Progress(done, len(read.rows), "lowering", left_s))
    notes = tables.notes(sorted(targets))
    reasons: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refused:
        reasons.setdefault((refusal.reason, refusal.fix), []).append(refusal)
    left = [
        {"reason": reason, "fix": fix, "rows": [[r.where, r.value] for r in rows]}
        for (reason, fix), rows in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]
    document = {
        "rows": len(read.rows) + len(read.refused),
        **counts,
        "targets": sorted(map(str, targets)),
        "notes": notes,
        "left_out": left,
    }
    return document, [*map(_sentence, left), *notes]


def _sentence(left: Mapping[str, Any]) -> str:
    """Rows with the same value are named once."""
    places: dict[str, list[str]] = {}
    for where, value in left["rows"]:
        places.setdefault(value or "(empty)", []).append(where)
    named = [
        f"{where[0]}: {value}" + (f" (×{len(where)})" if len(where) > 1 else "")
        for value, where in places.items()
    ]
    if len(named) > _SHOWN:
        named[_SHOWN:] = [f"and {len(named) - _SHOWN:,} more"]
    count = count_text(len(left["rows"]), "row")
    return f"{count} left out: {left['reason']} ({left['fix']}): {'; '.join(named)}"
