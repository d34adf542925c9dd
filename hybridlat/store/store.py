"""The store: append-only measurements in a SQLite file, or on a PostgreSQL server.

The same record added twice is stored once. Each call of an ``add`` is one short transaction: all
that a process loses if it is killed. A SQLite file that does not exist yet reads as an empty store
and is made by the first write. Rows are inserted in the order of their keys, so that writers of the
same rows wait for each other in one order.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

from hybridlat.errors import StoreError
from hybridlat.schema.files import is_writable
from hybridlat.schema.measurement import KINDS, Breakdown, Measurement, id_of
from hybridlat.schema.target import Target
from hybridlat.store import exchange, integrity
from hybridlat.store.cache import Cache, drop_of
from hybridlat.store.connection import Connection
from hybridlat.store.database import KIND_CODES, Database, batches, key_of
from hybridlat.store.exchange import BATCH
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.place import StorePlace, default_url
from hybridlat.store.records import Records, entry_of

_TARGET_ID = "SELECT id FROM target WHERE name = :name"
_TARGET = "INSERT INTO target (name) VALUES (:name) ON CONFLICT DO NOTHING"
_SIGNATURE = "INSERT INTO signature (hash, text) VALUES (:hash, :text) ON CONFLICT DO NOTHING"
_PAYLOAD = "INSERT INTO payload (id, body) VALUES (:id, :body) ON CONFLICT DO NOTHING"
_MEASUREMENT = """
INSERT INTO measurement (target_id, kind, signature, id, latency_us, spread_share, measured_at,
    failure)
VALUES (:target_id, :kind, :signature, :id, :latency_us, :spread_share, :measured_at, :failure)
ON CONFLICT DO NOTHING"""
_BREAKDOWN = """
INSERT INTO breakdown (id, target_id, network, body) VALUES (:id, :target_id, :network, :body)
ON CONFLICT DO NOTHING"""
_RECORDS = """
SELECT measurement.target_id, signature, kind, measurement.id, measured_at
FROM measurement JOIN target ON target.id = measurement.target_id WHERE target.name = :target"""
_DELETE_ENTRY = """
DELETE FROM measurement
WHERE target_id = :target AND kind = :kind AND signature = :signature AND id = :id"""
_DELETE_BODY = "DELETE FROM payload WHERE id = :id"
_DELETE_BREAKDOWNS = """
DELETE FROM breakdown WHERE target_id IN (SELECT id FROM target WHERE name = :target)"""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """How many items were new to the store; ``read`` counts the records of the source."""

    signatures: int = 0
    measurements: int = 0
    breakdowns: int = 0
    read: int = 0


@dataclass(frozen=True, slots=True)
class Removal:
    """How many records and cached entries were removed, or would be."""

    cells: int = 0
    networks: int = 0
    layers: int = 0
    cached: int = 0

    @property
    def records(self) -> int:
        return self.cells + self.networks + self.layers


class Store(Records, Cache, AbstractContextManager["Store"]):
    """Measurements, breakdowns, signature texts and a cache at ``url``, by default ``default_url``.

    That is a path, ``sqlite:///PATH`` or ``postgresql://USER@HOST/NAME``. StoreError for another,
    and from every method where the database cannot be used.
    """

    def __init__(self, url: str | Path | None = None) -> None:
        self.place = StorePlace(default_url() if url is None else url)
        self.url = self.place.url
        super().__init__(Database(self.place))

    def add_signatures(self, texts: Mapping[str, str]) -> int:
        """Keep the texts that hashes stand for; how many were new. Those there stay as they are."""
        rows = [{"hash": key_of(h), "text": text} for h, text in sorted(texts.items())]
        return self._database.keep(lambda c: c.change(_SIGNATURE, rows)) if rows else 0

    def add(self, measurements: Iterable[Measurement]) -> int:
        """Append records in one transaction; how many were new. StoreError for an unsound one."""
        return self._append(measurements, _PAYLOAD, _MEASUREMENT)

    def add_breakdowns(self, breakdowns: Iterable[Breakdown]) -> int:
        return self._append(breakdowns, _BREAKDOWN)

    def _append(self, items: Iterable[Measurement | Breakdown], *statements: str) -> int:
        """Run the statements with the entry of each item; how many rows the first one added."""
        rows: dict[str, tuple[Target, dict[str, object]]] = {}
        for item in items:
            try:
                type(item).from_json(item.to_json())  # what could not be read back
                text = item.text
            except (TypeError, ValueError) as error:
                what = type(item).__name__.lower()
                raise StoreError(f"the store takes no {what} in which {error}") from None
            id_ = id_of(text)
            rows[id_] = item.target, entry_of(item, id_) | {"body": zlib.compress(text.encode())}

        def work(connection: Connection) -> int:
            numbers = _target_ids(connection, {target for target, _ in rows.values()})
            ordered = [rows[id_] for id_ in sorted(rows)]
            each = [entry | {"target_id": numbers[target]} for target, entry in ordered]
            new = [connection.change(statement, each) for statement in statements]
            return new[0]

        return self._database.write(work) if rows else 0

    def add_all(self, imported: ImportedRecords) -> ImportCounts:
        """Add signatures, records and breakdowns, many in a transaction; how many were new."""
        records, breakdowns = imported.measurements, imported.breakdowns
        for problem in (doubt for record in records for doubt in integrity.doubts(record)):
            raise StoreError(f"the store takes no record in which {problem}")
        new_texts = self.add_signatures(imported.signatures)
        new = sum(map(self.add, batches(records, BATCH)))
        new_breakdowns = sum(map(self.add_breakdowns, batches(breakdowns, BATCH)))
        return ImportCounts(new_texts, new, new_breakdowns, len(records) + len(breakdowns))

    def forget(
        self,
        target: Target | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        dry_run: bool = False,
    ) -> Removal:
        """Remove records of a target, or of all, measured from ``since`` to before ``until``.

        A record without a date goes only where neither is given. With ``dry_run`` none goes, and
        the answer says what would.
        """
        if not self.place.exists:
            return Removal()
        targets = self.targets() if target is None else [target]

        def work(connection: Connection) -> Removal:
            counts: Counter[int] = Counter()
            cached = 0
            for name in map(str, targets):
                rows = connection.rows(_RECORDS, {"target": name})
                chosen = [
                    {"target": number, "kind": kind, "signature": signature, "id": id_}
                    for number, signature, kind, id_, measured_at in rows
                    if _is_between(measured_at, since, until)
                ]
                counts.update(row["kind"] for row in chosen)
                if not dry_run:
                    connection.change(_DELETE_ENTRY, chosen)
                    connection.change(_DELETE_BODY, chosen)
                    if len(chosen) == len(rows) and (chosen or since is until is None):
                        connection.change(_DELETE_BREAKDOWNS, [{"target": name}])
                if chosen:
                    cached += drop_of(connection, name, dry_run)
            cells, networks, layers = (counts[KIND_CODES[kind]] for kind in KINDS)
            return Removal(cells, networks, layers, cached)

        return self._database.write(work)

    def check(self) -> list[IntegrityProblem]:
        return integrity.check_database(self._database)

    def export(
        self,
        folder: str | Path,
        target: Target | None = None,
        *,
        source: str = "",
        licence: str = "",
        anonymous: bool = False,
    ) -> list[Path]:
        """Write one pack per target (or of ``target``) below ``folder``; the packs' folders.

        ``anonymous`` leaves out what names a person or a machine.
        """
        held = self.targets()
        if target is not None and target not in held:
            known = ", ".join(map(str, held)) or "none at all"
            raise StoreError(f"the store has no records of {target}: it has {known}")
        return [
            exchange.write_pack(self, one, Path(folder) / one.folder, source, licence, anonymous)
            for one in (held if target is None else [target])
        ]

    def import_(self, path: str | Path) -> ImportCounts:
        """Add all records of a pack, or of a folder of packs, once each."""
        parts = [astuple(self.add_all(part)) for part in exchange.read(Path(path))]
        return ImportCounts(*map(sum, zip(*parts, strict=True)))

    def close(self) -> None:
        """Give the connection back; the store opens itself again when used."""
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_read_only(self) -> bool:
        """Whether it cannot be written, so that what is measured would be lost."""
        if self.place.file is None or self.place.exists:
            return self._database.run(lambda c: c.is_read_only)
        return not is_writable(self.place.file.parent)

    def require_writable(self) -> None:
        """StoreError where nothing would be kept; what measures asks before."""
        self._database.write(lambda _: None)

    @property
    def stamp(self) -> object:
        """Equal as long as no process writes; None on a server, where only a query tells."""
        return self._database.run(lambda c: c.stamp) if self.place.exists else "absent"


def _target_ids(connection: Connection, targets: Iterable[Target]) -> dict[Target, int]:
    """The number of each target; a new target gets one."""
    numbers = {}
    for target in sorted(targets, key=str):
        name = {"name": str(target)}
        rows = connection.rows(_TARGET_ID, name)
        if not rows:
            connection.change(_TARGET, [name])
            rows = connection.rows(_TARGET_ID, name)
        numbers[target] = rows[0][0]
    return numbers


def _is_between(measured_at: str, since: datetime | None, until: datetime | None) -> bool:
    try:
        at = datetime.fromisoformat(measured_at)
    except ValueError:
        return since is None and until is None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (since is None or since <= at) and (until is None or at < until)
