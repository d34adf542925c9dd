"""The records of a database as they are read, and what those of one thing say together."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta

from hybridlat.errors import StoreError, TargetError
from hybridlat.schema import measurement
from hybridlat.schema.measurement import KINDS, Breakdown, Kind, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import database as db
from hybridlat.store.database import KIND_CODES, Database, key_of

T = TypeVar("T")
_MOST_RECENT = 20_000  # rows looked through for the newest runs
_OF_TARGET = """
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name = :target"""
_LOOK_UP = """
SELECT target.name, signature, latency_us, spread_share, measured_at, failure
FROM measurement JOIN target ON target.id = measurement.target_id
WHERE target.name IN :targets AND kind = :kind AND signature IN :keys"""
_RECENT = f"""
SELECT measured_at, measurement.id {_OF_TARGET} AND latency_us IS NOT NULL
ORDER BY substr(measured_at, 1, 16) DESC, CASE WHEN kind = :kind THEN 0 ELSE 1 END,
    measured_at DESC, measurement.id LIMIT :most"""
_BREAKDOWNS = """
SELECT breakdown.id FROM breakdown JOIN target ON target.id = target_id
WHERE target.name = :target ORDER BY breakdown.id"""
_REVISION = f"""
SELECT count(*), coalesce(max(measured_at), ''), coalesce(sum(latency_us), 0.0),
    (SELECT count(*) FROM breakdown WHERE target_id IN
    (SELECT id FROM target WHERE name = :target)) {_OF_TARGET}"""
BODIES = "SELECT id, body FROM payload WHERE id IN :keys"
BREAKDOWN_BODIES = "SELECT id, body FROM breakdown WHERE id IN :keys"
TEXTS = "SELECT hash, text FROM signature WHERE hash IN :keys"
_TARGETS = """
SELECT name FROM target
WHERE EXISTS (SELECT 1 FROM measurement WHERE target_id = target.id)
OR EXISTS (SELECT 1 FROM breakdown WHERE target_id = target.id)"""
_GOOD = "count(DISTINCT CASE WHEN kind = {} AND latency_us IS NOT NULL THEN signature END)"
_STATS = f"""
SELECT target.name, {", ".join(_GOOD.format(KIND_CODES[kind]) for kind in KINDS)},
    count(measurement.id), count(measurement.id) - count(latency_us),
    coalesce(min(nullif(measured_at, '')), ''), coalesce(max(measured_at), '')
FROM target LEFT JOIN measurement ON target.id = measurement.target_id GROUP BY target.name"""

LatencyUs: TypeAlias = Annotated[float, Meta(ge=measurement.SHORTEST_US, le=measurement.LONGEST_US)]
SpreadShare: TypeAlias = Annotated[float, Meta(ge=0, le=measurement.MOST_SPREAD)]
#: latency_us, spread_share, measured_at and failure of one record.
LatencyRow = tuple[LatencyUs | None, SpreadShare, str, str | None]


def row_of(record: Measurement) -> LatencyRow:
    """The row of one record."""
    return record.latency_us, record.spread_share, record.measured_at, record.failure


def entry_of(item: Measurement | Breakdown, id_: str) -> dict[str, object]:
    """The row for look-ups of what has the id ``id_``, but for its target."""
    if isinstance(item, Breakdown):
        return {"id": key_of(id_), "network": db.plain(item.network[:255])}
    return {
        "id": key_of(id_),
        "kind": KIND_CODES[item.kind],
        "signature": key_of(item.signature),
        "latency_us": item.latency_us,
        "spread_share": item.spread_share,
        "measured_at": item.measured_at[:40],
        "failure": None if item.failure is None else db.plain(item.failure),
    }


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """What the records of one thing say together.

    ``latency_us`` is the median of its ``records`` good records, ``spread_share`` its relative
    standard error: what records say of themselves, or differ by where that is more. Where all are
    failures ``latency_us`` is None and ``failure`` the newest reason.
    """

    latency_us: float | None
    spread_share: float
    records: int
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class TargetStats:
    """What a store holds of one target, measured from ``first`` to ``last``."""

    target: Target
    cells: int
    networks: int
    layers: int
    records: int
    failures: int
    first: str
    last: str


def aggregate(records: Iterable[LatencyRow]) -> LatencyStats:
    """One answer from the records of one thing."""
    rows = list(records)
    good = [(latency, spread) for latency, spread, _, _ in rows if latency is not None]
    good = [row for row in good if row[1] < measurement.BUSY_SPREAD_SHARE] or good
    if not good:
        newest = max(rows, key=lambda record: record[2])
        return LatencyStats(None, 0.0, 0, newest[3] or "no reason was recorded")
    latencies = [latency for latency, _ in good]
    middle = statistics.median(latencies)
    spread = statistics.median([spread for _, spread in good])
    if len(good) > 1:
        spread = max(spread, statistics.stdev(latencies) / middle / len(good) ** 0.5)
    return LatencyStats(middle, spread, len(good))


class Records:
    """What is read from a database; StoreError where it cannot be used or is damaged."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latencies(
        self, target: Target, hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        """What is known of each hash; a hash without a record is left out."""
        return self.latencies_by_target([target], hashes, kind)[target]

    def latencies_by_target(
        self, targets: Sequence[Target], hashes: Iterable[str], kind: Kind = "cell"
    ) -> dict[Target, dict[str, LatencyStats]]:
        named = {str(target): target for target in targets}
        hash_of = {key_of(h): h for h in hashes}
        rows_of: dict[Target, dict[str, list[LatencyRow]]] = {target: {} for target in targets}
        for part in db.batches(hash_of if targets else (), db.PAGE):
            values = {"targets": list(named), "kind": KIND_CODES[kind], "keys": part}
            for row in self._database.read(
                tuple[str, bytes, LatencyUs | None, SpreadShare, str, str | None], _LOOK_UP, values
            ):
                name, signature = row[:2]
                if name in named and signature in hash_of:  # else the index is damaged
                    rows_of[named[name]].setdefault(hash_of[signature], []).append(row[2:])
        return {t: {h: aggregate(rows) for h, rows in own.items()} for t, own in rows_of.items()}

    def measurements(
        self, target: Target | None = None, kind: Kind | None = None, signature: str | None = None
    ) -> Iterator[Measurement]:
        """The records, by target, kind, signature and content."""
        query, values = f"SELECT measurement.id {_OF_TARGET}", dict[str, object]()
        if kind is not None:
            query, values["kind"] = f"{query} AND kind = :kind", KIND_CODES[kind]
        if signature is not None:
            query, values["signature"] = f"{query} AND signature = :signature", key_of(signature)
        query = f"{query} ORDER BY kind, signature, measurement.id"
        for one in self.targets() if target is None else [target]:
            keys = self._database.keys(query, {"target": str(one), **values})
            yield from self._decoded(Measurement.from_json, BODIES, keys)

    def recent(self, target: Target, runs: int = 60, each: int = 12) -> list[Measurement]:
        """Good records of the newest ``runs`` minutes with any, ``each`` of one, networks first."""
        values = {"target": str(target), "kind": KIND_CODES["network"], "most": _MOST_RECENT}
        rows = self._database.read(tuple[str, bytes], _RECENT, values)
        minutes = groupby(rows, key=lambda row: row[0][:16])
        keys = sorted(key for _, minute in islice(minutes, runs) for _, key in islice(minute, each))
        return list(self._decoded(Measurement.from_json, BODIES, keys))

    def breakdowns(self, target: Target | None = None) -> Iterator[Breakdown]:
        for one in self.targets() if target is None else [target]:
            keys = self._database.keys(_BREAKDOWNS, {"target": str(one)})
            yield from self._decoded(Breakdown.from_json, BREAKDOWN_BODIES, keys)

    def signature_texts(self, hashes: Iterable[str]) -> dict[str, str]:
        texts = self._database.paged(tuple[bytes, str], TEXTS, [key_of(h) for h in hashes])
        return {key.hex(): text for key, text in texts}

    def signatures(self, target: Target, kind: Kind) -> list[str]:
        """The hashes that there are records of this kind of."""
        values = {"target": str(target), "kind": KIND_CODES[kind]}
        sql = f"SELECT DISTINCT signature {_OF_TARGET} AND kind = :kind"
        return [key.hex() for key in self._database.keys(sql, values)]

    def count(self, target: Target, kind: Kind) -> int:
        """How many records of a kind there are of a target."""
        sql, values = f"SELECT count(*) {_OF_TARGET} AND kind = :kind", {"target": str(target)}
        rows = self._database.read(tuple[int], sql, values | {"kind": KIND_CODES[kind]})
        return rows[0][0] if rows else 0

    def revision(self, target: Target) -> tuple[int, str, float, int]:
        """What differs once a target's records, or how its networks fall into cells, have changed.

        How many records there are, the newest's time, the sum of latencies, breakdowns.
        """
        values = {"target": str(target)}
        rows = self._database.read(tuple[int, str, float, int], _REVISION, values)
        count, newest, sum_us, breakdowns = rows[0] if rows else (0, "", 0.0, 0)
        return count, newest, round(sum_us, 3), breakdowns  # servers add in any order

    def targets(self) -> list[Target]:
        """Targets with records or breakdowns, sorted here: databases sort text as they like."""
        try:
            names = sorted(name for (name,) in self._database.read(tuple[str], _TARGETS))
            return [Target.parse(name) for name in names]
        except TargetError as error:
            raise StoreError(f"the store is damaged: {error}") from error

    def stats(self) -> list[TargetStats]:
        rows = self._database.read(tuple[str, int, int, int, int, int, str, str], _STATS)
        counts = {row[0]: row[1:] for row in rows}
        return [TargetStats(t, *counts[str(t)]) for t in self.targets() if str(t) in counts]

    def _decoded(self, read: Callable[[object], T], sql: str, keys: list[bytes]) -> Iterator[T]:
        for _, body in self._database.paged(tuple[bytes, bytes], sql, keys):
            try:
                yield read(db.unpacked(body))
            except ValueError as error:
                raise StoreError(
                    f"a record of the store {self._database.place.shown} is damaged: {error} "
                    "(`hybridlat store check` lists all)"
                ) from error
