"""``hybridlat store``: look after the measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hybridlat.commands import options
from hybridlat.commands.printing import aside, console, print_json
from hybridlat.errors import StoreError

DAMAGED = 2


@click.group()
def store() -> None:
    """Look after the measurements: what there is, exchange, and check."""


@store.command()
@options.store
@options.as_json
def stats(store: str | None, as_json: bool) -> None:
    """What the store holds of each target."""
    from hybridlat.store import Store

    with Store(store) as opened:
        rows = opened.stats()
        url = shown_url(opened.url)
    if as_json:
        targets = [{**asdict(row), "target": str(row.target)} for row in rows]
        print_json({"store": url, "targets": targets})
        return
    from rich.table import Table
    from rich.text import Text

    out = console()
    if rows:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("target", overflow="fold")
        for title in ("cells", "networks", "layers", "records", "failures", "MB"):
            table.add_column(title, justify="right", no_wrap=True)
        table.add_column("last")
        for row in rows:
            counts = (row.cells, row.networks, row.layers, row.records, row.failures)
            megabytes = f"{row.bytes / 1e6:,.1f}"
            table.add_row(str(row.target), *map("{:,}".format, counts), megabytes, row.last[:10])
        out.print(table)
    else:
        out.print(Text("The store is empty: predict or measure a network, or import records."))
    out.print(Text(url, "dim"))


@store.command()
@click.argument("folder", type=click.Path(file_okay=False))
@options.target
@click.option("--parquet", is_flag=True, help="Parquet instead of JSON Lines (needs pyarrow).")
@click.option("--source", default="", help="Where the records come from, in words.")
@click.option("--licence", default="", help="Under what terms they may be used.")
@options.store
@options.as_json
def export(
    folder: str,
    target: str | None,
    parquet: bool,
    source: str,
    licence: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Write each target's records as a pack below FOLDER."""
    from hybridlat.core.target import Target
    from hybridlat.store import Store

    chosen = None if target is None else Target.parse(target)
    with Store(store) as opened:
        packs = opened.export(
            folder,
            chosen,
            format="parquet" if parquet else "jsonl",
            source=source,
            licence=licence,
        )
    if not packs:
        raise StoreError("the store holds nothing to export: see hybridlat store stats")
    if as_json:
        print_json([str(pack) for pack in packs])
    else:
        for pack in packs:
            click.echo(pack)


@store.command(name="import")
@click.argument("path", type=click.Path())
@click.option(
    "--from",
    "data_set",
    metavar="NAME",
    help="PATH is public data laid out as NAME has it; a wrong NAME lists all.",
)
@options.store
@options.as_json
def import_(path: str, data_set: str | None, store: str | None, as_json: bool) -> None:
    """Add the records of a pack, of a JSON Lines or Parquet file, or of public data."""
    from hybridlat.store import Store

    skipped: dict[str, int] = {}
    with Store(store) as opened:
        if data_set is None:
            counts = asdict(opened.import_(path))
        else:
            from hybridlat import importers

            found = importers.load(data_set).read(Path(path))
            skipped = dict(found.skipped)
            counts = {
                "read": len(found.measurements),
                "signatures": opened.add_signatures(found.signatures),
                "measurements": opened.add(found.measurements),
                "breakdowns": opened.add_breakdowns(found.breakdowns),
            }
    if as_json:
        print_json({**counts, "skipped": skipped})
        return
    click.echo(
        f"{counts['measurements']:,} of {counts['read']:,} records are new, "
        f"with {counts['signatures']:,} signatures and {counts['breakdowns']:,} breakdowns"
    )
    for reason, number in skipped.items():
        aside(f"{number:,} rows left out: {reason}")


@store.command()
@click.argument("packs", nargs=-1, type=click.Path())
@options.store
@options.as_json
@click.pass_context
def check(ctx: click.Context, packs: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Check every hash, format and range of the store, or of the given PACKS."""
    from hybridlat.store import Store

    if packs:
        from hybridlat.store.check import check_pack

        findings = [finding for pack in packs for finding in check_pack(pack)]
    else:
        with Store(store) as opened:
            findings = opened.check()
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.echo(str(finding))
        if not findings:
            click.echo("All is as it should be.")
    ctx.exit(DAMAGED if findings else 0)


def shown_url(url: str) -> str:
    """The store's address without a password."""
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}{at}{tail}" if at and user else url
