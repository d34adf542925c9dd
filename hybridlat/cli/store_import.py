"""``hybridlat store import``: packs, files of records, and what others measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hybridlat.cli import options
from hybridlat.cli.output import ProgressShown, aside, print_json
from hybridlat.errors import InputError
from hybridlat.measuring import tables
from hybridlat.measuring.network_files import NetworkFiles
from hybridlat.report.units import count_text
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store, importers
from hybridlat.store.importers.table import grouped

_SHOWN = 5  # values named for each reason


def _complete_data_set(
    _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in importers.names() if name.startswith(typed)]


@click.command(name="import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--from", "data_set", metavar="NAME", shell_complete=_complete_data_set,
              help="PATH is a table of whole networks (networks), logs of trtexec (trtexec), or "
                   "what an importer of another package reads.")  # fmt: skip
@click.option("--nets", metavar="DIR", type=click.Path(), help="ONNX files of a table's networks.")
@click.option("--columns", metavar="FILE", type=click.Path(), help="A table's columns, as TOML.")
@click.option("--target", metavar="TARGET", help="Target of what a table or log does not state.")
@options.store
@options.as_json
def import_(
    paths: tuple[str, ...],
    data_set: str | None,
    store: str | None,
    as_json: bool,
    **table: str | None,
) -> None:
    """Add the records of packs, JSON Lines or Parquet files, tables or logs.

    What the store has already is not added twice. See docs/guides/importing.md for tables.

    \b
    hybridlat store import a-pack
    hybridlat store import latencies.csv --from networks --nets DIR --target t4/tensorrt/fp16
    """
    given = [name for name, value in table.items() if value is not None]
    if given and data_set not in importers.TABLES:
        raise click.UsageError(
            f"--{given[0]} is for tables: use it with --from {' or '.join(importers.TABLES)}"
        )
    files = [Path(path) for path in paths]
    with Store(store) as opened, ProgressShown() as shown:
        if data_set in importers.TABLES:
            document, asides = _import_tables(opened, data_set, files, table, shown)
        else:
            document, asides = _import_records(opened, data_set, files, shown)
    if as_json:
        print_json(document)
    else:
        click.echo(
            f"{document['measurements']:,} of {document['read']:,} records are new, with "
            f"{count_text(document['signatures'], 'signature')} and "
            f"{count_text(document['breakdowns'], 'breakdown')}"
        )
        for target in document["targets"]:
            click.echo(f"  {target}")
        for sentence in asides:
            aside(sentence)
    if data_set in importers.TABLES and not document["read"]:
        raise InputError(
            f"none of {document['rows']:,} rows could be imported: see what was left out"
        )


def _import_records(
    opened: Store, data_set: str | None, files: Sequence[Path], shown: ProgressShown
) -> tuple[dict[str, Any], list[str]]:
    """Import packs and files, or what a plug-in reads; the JSON document, and what is said."""
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    targets: set[str] = set()
    for file in files:
        if data_set is None:
            counts.update(asdict(opened.import_(file)))
            continue
        imported = importers.load(data_set).read(file, _watch(shown, "reading"))
        counts.update(asdict(opened.add_all(imported, _watch(shown, "keeping"))))
        skipped.update(imported.skipped)
        targets |= {str(record.target) for record in imported.measurements}
    asides = [f"{number:,} rows left out: {reason}" for reason, number in skipped.items()]
    return {**counts, "skipped": skipped, "targets": sorted(targets)}, asides


def _import_tables(
    opened: Store,
    form: str,
    files: Sequence[Path],
    given: Mapping[str, str | None],
    shown: ProgressShown,
) -> tuple[dict[str, Any], list[str]]:
    """Import whole networks of tables or logs; the JSON document, and what is said.

    ``given`` has nets, columns and target.
    """
    columns, nets, target = given["columns"], given["nets"], given["target"]
    read = tables.read_rows(
        form,
        files,
        None if columns is None else Path(columns),
        None if target is None else Target.parse(target),
    )
    networks = None if nets is None else NetworkFiles(Path(nets))
    counts = Counter(read=0, measurements=0, signatures=0, breakdowns=0)
    refused = list(read.refused)
    targets: set[Target] = set()
    for taken in tables.take(read.rows, networks, opened, _watch(shown, "lowering")):
        new = replace(opened.add_all(taken.imported), read=len(taken.imported.measurements))
        counts.update(asdict(new))
        targets |= {record.target for record in taken.imported.measurements}
        refused += taken.refused
    notes = tables.notes(sorted(targets))
    left_out = [
        {"reason": reason, "fix": fix, "rows": [[r.where, r.value] for r in rows]}
        for (reason, fix), rows in grouped(refused).items()
    ]
    document = {
        "rows": len(read.rows) + len(read.refused),
        **counts,
        "targets": sorted(map(str, targets)),
        "notes": notes,
        "left_out": left_out,
    }
    return document, [*map(_sentence, left_out), *notes]


def _watch(shown: ProgressShown, label: str) -> importers.Watch:
    """Shows "so many of so many" as progress with the time left."""
    began = time.monotonic()

    def watch(done: int, total: int) -> None:
        left = (time.monotonic() - began) * (total - done) / done if done else None
        shown(Progress(done, total, label, left))

    return watch


def _sentence(item: Mapping[str, Any]) -> str:
    """Rows with the same value are named once."""
    places: dict[str, list[str]] = {}
    for where, value in item["rows"]:
        places.setdefault(value, []).append(where)
    shown = list(places.items())[:_SHOWN]
    some = "; ".join(
        f"{where[0]}{_others(len(where) - 1)}: {value or '(empty)'}" for value, where in shown
    )
    left = len(item["rows"]) - sum(len(where) for _, where in shown)
    return (
        f"{count_text(len(item['rows']), 'row')} left out: {item['reason']} ({item['fix']}): "
        f"{some}{f'; and {left:,} more' if left else ''}"
    )


def _others(count: int) -> str:
    return f" and {count_text(count, 'other')}" if count else ""
