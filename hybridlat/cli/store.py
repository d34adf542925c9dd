"""``hybridlat store``: look after the measurements."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from hybridlat.cli.importing import import_
from hybridlat.cli.options import command, option, target_option
from hybridlat.cli.output import BAD_INPUT, ProgressShown, Run, aside
from hybridlat.cli.param_types import DURATION, MOMENT, Place, whole
from hybridlat.errors import StoreError
from hybridlat.estimate.lookup.named_target import named_target
from hybridlat.report.table import Column, Table, titled
from hybridlat.report.units import count_text
from hybridlat.schema.shown import visible
from hybridlat.store import Removal, Store
from hybridlat.store.integrity import check_pack
from hybridlat.store.records import TargetStats

_OLDER = "Drop what was kept longer ago than this; 90d unless given."


@click.group()
def store() -> None:
    """Show, exchange, check and forget the measurements that are kept.

    \b
    hybridlat store stats
    hybridlat store export packs
    """


store.add_command(import_)


@command("store json", group=store)
def stats(run: Run) -> None:
    """Show what the store holds of each target.

    \b
    hybridlat store stats --store team.db
    """
    with Store(run.store) as opened:
        rows = opened.stats()
        url = opened.place.address
    targets = [{**asdict(row), "target": str(row.target)} for row in rows]
    run.show({"store": url, "targets": targets}, _held(rows, url))


def _held(rows: Sequence[TargetStats], url: str) -> Iterator[object]:
    from rich.text import Text

    names = ("cells", "networks", "layers", "records", "failures")
    counts, last = titled(*names, right=True), Column("last", wraps=True)
    lines = [
        [str(row.target), *(f"{getattr(row, name):,}" for name in names), row.last[:10]]
        for row in rows
    ]
    if rows:
        yield Table([Column("target"), *counts, last], lines)
    else:
        yield Text("The store is empty: predict or measure a network, or import records.")
    yield Text(visible(url), "dim")


@command(
    click.argument("folder", type=Place(file_okay=False)),
    target_option("Only this target; all of the store unless given."),
    option("--source", default="", help="Where the records come from, in words."),
    option("--licence", default="", help="Under what terms they may be used."),
    option("--anonymous", is_flag=True, help="Leave out what names a person or a machine."),
    "store json",
    group=store,
)
def export(run: Run) -> None:
    """Write the records as packs, a folder for each target.

    \b
    hybridlat store export packs
    hybridlat store export packs --target v100/tensorrt/fp16 --anonymous
    """
    with Store(run.store) as opened:
        chosen = None if run.target is None else named_target(run.target, opened)
        packs = opened.export(run.folder, chosen, **run.among("source licence anonymous"))
    if not packs:
        raise StoreError("the store holds nothing to export: see hybridlat store stats")
    names = [str(pack) for pack in packs]
    run.show(names, *names)


@command(click.argument("packs", nargs=-1, type=Place()), "store json", group=store)
def check(run: Run) -> int:
    """Check the store, or the packs in the folders PACKS, for damage.

    Every hash, format and range is checked. Ends with 2 if anything is wrong, and says what.

    \b
    hybridlat store check
    hybridlat store check a-pack
    """
    with ProgressShown().at("checking every record"):
        if run.packs:
            problems = [problem for pack in run.packs for problem in check_pack(pack)]
            checked = count_text(len(run.packs), "pack")
        else:
            with Store(run.store) as opened:
                if not opened.place.exists:
                    raise StoreError(f"there is no store {opened.place.address} to check")
                problems = opened.check()
                records = sum(row.records for row in opened.stats()) if not problems else 0
                checked = f"{count_text(records, 'record')} in {opened.place.address}"
    sound = f"{checked}: every hash, format and range checked, nothing wrong"
    run.show([asdict(problem) for problem in problems], *([*map(str, problems)] or [sound]))
    return BAD_INPUT if problems else 0


@command(
    target_option("Records of this target; of all unless given."),
    option("--since", type=MOMENT, help="Records measured at this time (UTC) or later."),
    option("--until", type=MOMENT, help="Records measured before this time (UTC)."),
    option("--yes", is_flag=True, help="Remove them without asking."),
    "store json",
    group=store,
)
def forget(run: Run) -> None:
    """Remove the records of a target or a time, as those of a busy hour.

    It says how many, and asks. Whole networks, cells and layers go for good, and what was cached
    of their targets.

    \b
    hybridlat store forget --target v100/tensorrt/fp16
    hybridlat store forget --since 2026-11-21T14:00 --until 2026-11-21T15:00 --yes
    """
    since, until = run.since, run.until
    if run.target is None and since is None and until is None:
        raise click.UsageError("say which records: give --target, --since or --until")
    if run.as_json and not run.yes:
        raise click.UsageError("--json needs --yes: it cannot ask for confirmation")
    with Store(run.store) as opened:
        chosen = None if run.target is None else named_target(run.target, opened)
        planned = opened.forget(chosen, since, until, dry_run=True)
        if not planned.records:
            raise StoreError("the store has no such records: see hybridlat store stats")
        question = f"Remove {_removal_text(planned)} from {opened.place.address} for good?"
        if not run.yes and not _confirmed(question):
            aside("nothing was removed")
            return
        removed = opened.forget(chosen, since, until)
    run.show({**asdict(removed), "records": removed.records}, f"{_removal_text(removed)} removed")


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            raise click.UsageError("nothing was removed: give --yes where no one answers") from None
        raise


def _removal_text(removal: Removal) -> str:
    kinds = ((removal.networks, "network"), (removal.cells, "cell"), (removal.layers, "layer"))
    parts = ", ".join(f"{count:,} of {kind}s" for count, kind in kinds if count)
    return f"{count_text(removal.records, 'record')} ({parts})"


@command(
    option("--older-than", type=DURATION, default="90d", metavar="90d", help=_OLDER),
    option("--max-mb", type=whole(0), metavar="MB", help="Drop the oldest beyond this size."),
    option("--dry-run", is_flag=True, help="Only say what would be dropped."),
    "store json",
    group=store,
)
def gc(run: Run) -> None:
    """Delete cached data; measurements are kept.

    Dropped are damaged and old entries of the cache, and the oldest beyond a size.

    \b
    hybridlat store gc --older-than 30d --dry-run
    """
    most = None if run.max_mb is None else run.max_mb * 1_000_000
    with Store(run.store) as opened:
        swept = opened.cache_sweep(older_than_s=run.older_than, max_bytes=most, dry_run=run.dry_run)
    did = "would be dropped" if run.dry_run else "dropped"
    dropped = f"{swept.dropped:,} cached texts ({swept.dropped_bytes / 1e6:,.1f} MB) {did}"
    kept = f"{swept.kept:,} ({swept.kept_bytes / 1e6:,.1f} MB) kept"
    run.show({**asdict(swept), "dry_run": run.dry_run}, f"{dropped}, {kept}")
