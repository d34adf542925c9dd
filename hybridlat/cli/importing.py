"""``hybridlat import``: plans that were measured, packs, and what others measured."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import click

from hybridlat.cli.options import INPUT, WHERE, command, option
from hybridlat.cli.output import ProgressShown, Run, aside
from hybridlat.cli.param_types import Place
from hybridlat.engines import device_sheets
from hybridlat.errors import InputError
from hybridlat.estimate.belief import surprises
from hybridlat.measuring import tables
from hybridlat.measuring.measurer import import_results
from hybridlat.report.units import count_text, latency_text
from hybridlat.schema.names import refuse_chip, target_named
from hybridlat.schema.target import Target
from hybridlat.store import Store, exchange, importers
from hybridlat.store.importers import ImportedRecords, table, trtexec_log
from hybridlat.store.importers.sheets import ColumnMap, read_column_map
from hybridlat.store.importers.trtexec_options import CONTRADICTION
from hybridlat.store.packs import INFO_FILE

_SHOWN, _FAR = 5, "{:,} more are as far off (--json)"  # values named for each reason
_COMPARED = 1000  # records with estimates, which take some 40 ms each
_TWICE = 2.0  # what records of one network differ by where one of them is wrong
PLAN, PACKS = "plan", "packs"
# Which contents an option is for.
_OF = {"nets": importers.TABLES, "columns": ("networks",), "target": importers.TABLES}
_NAMES = {PLAN: "plans", PACKS: "packs", "networks": "tables", "trtexec": "logs of trtexec"}
_Imported: TypeAlias = tuple[dict[str, Any], list[str]]  # the JSON document, and what is said
_PATH = Place(path_type=Path)
_FROM = (
    "What PATH is, if its look does not say: networks (a table of whole networks), trtexec (its "
    "logs), or what an importer of another package reads."
)
_COLUMNS = "A table's columns, as TOML."
_TARGET = "Target of what a table or log does not state."
_NETS = "ONNX files of a table's or log's networks."


@command(
    click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=_PATH),
    option("--from", "data_set", group=INPUT, metavar="NAME", help=_FROM),
    option("--nets", group=INPUT, metavar="DIR", type=_PATH, help=_NETS),
    option("--columns", group=INPUT, metavar="FILE", type=_PATH, help=_COLUMNS),
    option("--target", group=WHERE, metavar="TARGET", help=_TARGET),
    "store json",
    name="import",
)
def import_(run: Run) -> None:
    """Import plans that were measured, packs, tables or trtexec logs.

    What lies at PATH decides how it is read. What the store has already is not added twice. See
    docs/guides/importing.md for tables.

    \b
    hybridlat import a-plan
    hybridlat store import a-pack --store team.db
    hybridlat import latencies.csv --nets DIR --target t4/tensorrt/fp16
    """
    paths, data_set = run.paths, run.data_set
    kinds = {data_set or _kind_of(path): path for path in paths}
    if len(kinds) > 1:
        mixed = " and ".join(f"{_NAMES[kind]} ({path})" for kind, path in kinds.items())
        raise InputError(f"these are {mixed}: import each kind by a command of its own")
    (kind,) = kinds
    for name, contents_of in _OF.items():
        if getattr(run, name) is not None and kind not in contents_of:
            contents = " and ".join(_NAMES[one] for one in contents_of)
            raise click.UsageError(f"--{name} is for {contents}, not for {_NAMES.get(kind, kind)}")
    default = None if run.target is None else target_named(run.target)
    if default is not None:
        refuse_chip(run.target.partition("/")[0].strip(), device_sheets.names())
    with Store(run.store) as opened, ProgressShown("lowering networks:").at("importing") as shown:
        if kind == PLAN:
            document, asides = _import_plans(opened, paths), list[str]()
        elif kind in importers.TABLES:
            if kind == "trtexec":
                read = trtexec_log.read_logs(paths, default, tables.board_of)
            else:
                column_map = ColumnMap() if run.columns is None else read_column_map(run.columns)
                read = table.read_networks(paths, column_map, default)
            document, asides = _import_rows(opened, read, run.nets, default, shown)
        else:
            document, asides = _import_records(opened, data_set, paths)
    is_nothing = kind in importers.TABLES and not document["read"]
    run.show(document, *([] if is_nothing else _lines(kind, document)))
    for sentence in () if run.as_json else asides:
        aside(sentence)
    for left in document.get("left_out", ()):
        if left["reason"] == CONTRADICTION:
            where, value = left["rows"][0]
            raise InputError(f"{where}: {CONTRADICTION}: {value}; {left['fix']}")
    if is_nothing:
        rows = count_text(document["rows"], "row")
        raise InputError(f"none of {rows} could be imported: see what was left out")


def _lines(kind: str, document: Mapping[str, Any]) -> list[str]:
    if kind == PLAN:
        failures = document["failures"]
        failed = f", {failures} of them failures" if failures else ""
        counts = f"{document['new']} of {document['records']} records are new"
        return [f"{counts}{failed}: {', '.join(document['targets'])}"]
    new = count_text(document["measurements"], "new record")
    if kind in importers.TABLES:
        new = f"{document['measurements']:,} of {document['read']:,} records are new"
    others = (count_text(document[f"{noun}s"], noun) for noun in ("signature", "breakdown"))
    return [f"{new}, with {' and '.join(others)}", *map("  {}".format, document["targets"])]


def _kind_of(path: Path) -> str:
    if not path.exists():
        raise InputError(f"{path} cannot be imported: there is no such file or folder")
    if _plans_at(path):
        return PLAN
    if (path / INFO_FILE).exists() or any(path.glob(f"*/{INFO_FILE}")):
        return PACKS
    if (path / "plan.txt").exists():
        raise InputError(f"{path} is a plan without its manifest.json: copy all of it again")
    endings = {file.suffix.lower() for file in (path.rglob("*") if path.is_dir() else [path])}
    if ".log" in endings and endings.intersection(table.ENDINGS):
        raise InputError(f"{path} holds tables and logs of trtexec: say which with --from")
    for kind, known in (("networks", table.ENDINGS), ("trtexec", trtexec_log.ENDINGS)):
        if endings.intersection(known):
            return kind
    if ".jsonl" in endings:
        raise InputError(f"{path} is a part of a plan: import the plan's folder, with that in it")
    raise InputError(
        f"{path} cannot be imported: it is no plan's folder, no pack, no table "
        f"({', '.join(table.ENDINGS)}) and no log of trtexec ({', '.join(trtexec_log.ENDINGS)}); "
        "save sheets and JSON as CSV, what a notebook prints as a log, and unpack an archive"
    )


def _plans_at(path: Path) -> list[Path]:
    """The plan at a path, or the plans in a folder that holds nothing else."""
    inside = sorted(path.glob("[!.]*")) if not (path / "manifest.json").exists() else [path]
    return inside if all((one / "manifest.json").exists() for one in inside) else []


def _import_plans(opened: Store, folders: Sequence[Path]) -> dict[str, Any]:
    paths = [plan for folder in folders for plan in _plans_at(folder)]
    results = [import_results(path, opened) for path in paths]
    for path, (plan, _) in zip(paths, results, strict=True):
        if not plan:
            fix = "copy it again, or run run.sh or worker.py in it"
            raise InputError(f"{path} holds no whole line of a result: {fix}")
    records = [record for plan, _ in results for record in plan]
    failures = sum(record.failure is not None for record in records)
    targets, new = sorted({str(r.target) for r in records}), sum(count for _, count in results)
    return {"targets": targets, "records": len(records), "new": new, "failures": failures}


def _import_records(opened: Store, data_set: str | None, paths: Sequence[Path]) -> _Imported:
    counts, skipped = Counter[str](), Counter[str]()
    targets, far = set[str](), list[str]()
    for path in paths:
        if data_set is None:
            for pack in exchange.packs_at(path):
                if pack.counts()["network"]:
                    items = list(pack.breakdowns())
                    texts = pack.signature_texts({h for item in items for h, _ in item.cells})
                    networks = list(pack.measurements(kind="network"))
                    far += _far(opened, ImportedRecords(texts, networks, items))
                targets.add(str(pack.target))
            counts.update(asdict(opened.import_(path)))
            continue
        imported = importers.read(data_set, path)
        far += _far(opened, imported)
        counts.update(asdict(opened.add_all(imported)))
        skipped.update(imported.skipped)
        targets |= {str(record.target) for record in imported.measurements}
    asides = [f"{count_text(n, 'row')} left out: {reason}" for reason, n in skipped.items()]
    document = {**counts, "skipped": skipped, "targets": sorted(targets), "surprising": far}
    return document, [*asides, *_first(far, _FAR)]


def _far(opened: Store, new: ImportedRecords) -> list[str]:
    """What of new records is far from what is believed without them, or contradicts others."""
    far, total = list[str](), min(len(new.measurements), _COMPARED)
    with ProgressShown("comparing with estimates:") as shown:
        for done, text in enumerate(itertools.islice(surprises(opened, new), total), 1):
            far += [text] if text else []
            shown.count(done, total)
    if total < len(new.measurements):
        far.append(f"only the first {total:,} of {len(new.measurements):,} records were compared")
    return [*far, *_contradictions(new)]


def _contradictions(new: ImportedRecords) -> list[str]:
    """A sentence for each network whose new records, of one kind, are twice as long as others."""
    alike: dict[tuple[object, ...], list[float]] = {}
    for record in new.measurements:
        if record.kind == "network" and record.latency_us is not None and not record.suspect:
            name = f"{record.labels.get('network', 'a network')} on {record.target}"
            how = record.labels.get("layout"), record.launch, record.copies
            alike.setdefault((name, record.signature, *how), []).append(record.latency_us)
    return [
        f"{name}: {latency_text(min(us))} and {latency_text(max(us))} contradict each other"
        for (name, *_), us in alike.items()
        if max(us) > _TWICE * min(us)
    ]


def _first(sentences: Sequence[str], more: str) -> list[str]:
    left = len(sentences) - _SHOWN
    return [*sentences[:_SHOWN], more.format(left)] if left > 0 else [*sentences]


def _import_rows(
    opened: Store, read: table.Rows, nets: Path | None, default: Target | None, shown: ProgressShown
) -> _Imported:
    files = None if nets is None else tables.NetworkFiles(nets)
    new, left_out = tables.take(read.rows, files, shown.count)
    shown.close()
    far = _far(opened, new)
    counts = asdict(replace(opened.add_all(new), read=len(new.measurements)))
    targets = {record.target for record in new.measurements}
    notes = [*read.notes, *tables.notes(sorted(targets))]
    others = [str(t) for t in sorted(targets) if default not in (t, replace(t, runtime=t.engine))]
    if default is not None and others:
        kept = f"rows that state another target than {default} are kept as they state it: "
        notes.append(kept + ", ".join(others))
    reasons: dict[tuple[str, str], list[table.Refusal]] = {}
    for refusal in (*read.refused, *left_out):
        reasons.setdefault((refusal.reason, refusal.fix), []).append(refusal)
    left = [
        {"reason": reason, "fix": fix, "rows": [[r.where, r.value] for r in rows]}
        for (reason, fix), rows in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]
    document: dict[str, Any] = {"rows": len(read.rows) + len(read.refused), **counts}
    document |= {"targets": sorted(map(str, targets)), "notes": notes}
    document |= {"left_out": left, "surprising": far}
    return document, [*map(_sentence, left), *_first(far, _FAR), *notes]


def _sentence(left: Mapping[str, Any]) -> str:
    places: dict[tuple[str, str], list[str]] = {}
    for where, value in left["rows"]:
        places.setdefault((where.partition(", ")[0], value or "(empty)"), []).append(where)
    named = [
        f"{where[0]}: {value}" + (f" (×{len(where)})" if len(where) > 1 else "")
        for (_, value), where in places.items()
    ]
    count, shown = count_text(len(left["rows"]), "row"), "; ".join(_first(named, "and {:,} more"))
    return f"{count} left out: {left['reason']} ({left['fix']}): {shown}"
