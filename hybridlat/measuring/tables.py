"""Others' measurements of whole networks as records: each network lowered as its target does it.

A table or a log says how long a network took; to learn from that, its ONNX file is read at the
batch and size of the row, lowered for the row's target and cut into cells. A network is read once
for each batch and size, and lowered once for each set of rules that its targets have in common.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hybridlat.engines import device_sheets, registry
from hybridlat.errors import (
    InputError,
    MeasurementError,
    NetworkError,
    TargetError,
    UnavailableError,
)
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring import trtexec
from hybridlat.measuring.network_files import NetworkFile, NetworkFiles
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store.importers import networks_table, trtexec_times
from hybridlat.store.importers.base import Imported, Watch
from hybridlat.store.importers.network_rows import (
    Misfit,
    NetworkRow,
    Refusal,
    Rows,
)
from hybridlat.store.importers.table_columns import read_column_map

FORMS = ("networks", "trtexec")
"""What can be read: tables of networks, and logs and exported times of trtexec."""
_FORMAT = 1
_AT_ONCE = 250  # rows that are given out together


class Cache(Protocol):
    """Where partitions are kept for a later import; a ``Store`` is one."""

    def cache_get(self, key: str) -> str | None: ...

    def cache_put(self, key: str, text: str) -> None: ...


@dataclass(frozen=True)
class Partition:
    """A network as one target's rules cut it: its hash, size, and (signature hash, count) pairs."""

    whole: str
    batch: int
    size: str
    cells: tuple[tuple[str, int], ...]

    def to_text(self) -> str:
        """JSON for a cache."""
        return json.dumps([_FORMAT, self.whole, self.batch, self.size, self.cells])

    @classmethod
    def from_text(cls, text: str) -> Partition | None:
        """Read ``to_text``; None for another format."""
        body = json.loads(text)
        if not isinstance(body, list) or body[:1] != [_FORMAT]:
            return None
        _, whole, batch, size, cells = body
        return cls(whole, batch, size, tuple((h, n) for h, n in cells))


@dataclass
class Taken:
    """Some of the records, ready for a store, and the rows that came to nothing."""

    found: Imported = field(default_factory=Imported)
    refused: list[Refusal] = field(default_factory=list)


def read_rows(
    form: str,
    paths: Sequence[Path],
    column_map: Path | None = None,
    default: Target | None = None,
) -> Rows:
    """What tables (``networks``) or trtexec's files (``trtexec``) at ``paths`` say.

    ``column_map`` is a TOML file that says what a table's columns are, ``default`` the target of
    what is not stated. Raises InputError (StoreError) for files that are something else.
    """
    if form == "networks":
        told = None if column_map is None else read_column_map(column_map)
        return networks_table.read_networks(paths, told, default)
    if form != "trtexec":
        raise InputError(f"{form!r} is no form of a table: choose one of {', '.join(FORMS)}")
    if column_map is not None:
        raise InputError("--columns is for tables: what a log does not state is given by --target")
    return _read_trtexec(paths, default)


def _read_trtexec(paths: Sequence[Path], default: Target | None) -> Rows:
    files = networks_table.files_at(paths, trtexec_times.ENDINGS, "logs or times of trtexec")
    logs = {
        file: trtexec_times.read_log(file.read_text(encoding="utf-8", errors="replace"))
        for file in files
        if file.suffix.lower() != ".json"
    }
    times = {file.name: file for file in files if file not in logs}
    runs = {log.times: log for log in logs.values() if log.times in times}
    rows: list[NetworkRow] = []
    refused: list[Refusal] = []
    for file in files:
        try:
            if file not in logs:
                samples = _times(file)
                log = runs.get(file.name)
                rows.append(trtexec_times.row_of_times(file, samples, log, default))
            elif logs[file].times not in times:  # else its run is told better by the times
                rows.append(trtexec_times.row_of_log(file, logs[file], default))
        except Misfit as misfit:
            refused.append(misfit.at(file.name))
    return Rows(tuple(rows), tuple(refused))


def _times(file: Path) -> tuple[float, ...]:
    try:
        return tuple(trtexec.read_times(file))
    except InputError as error:
        raise Misfit(
            "the file holds no times of trtexec", error, "give what --exportTimes wrote"
        ) from None


def take(
    rows: Sequence[NetworkRow],
    files: NetworkFiles | None,
    cache: Cache | None = None,
    watch: Watch | None = None,
) -> Iterator[Taken]:
    """The rows as records, some at a time.

    ``files`` are the ONNX files; without them no row can be lowered. What was given out is taken
    for stored when the next is asked for: only then is ``cache`` told, so that an import that is
    cut off leaves nothing behind that lacks its signatures.
    """
    lowering = _Lowering(files, cache)
    # Rows of one network stand together, so that it is read once and not held for long.
    ordered = sorted(rows, key=lambda r: (r.names, r.batch or 0, r.size or (), str(r.target)))
    for start in range(0, len(ordered), _AT_ONCE):
        done = Taken()
        for place, row in enumerate(ordered[start : start + _AT_ONCE], start):
            if watch is not None:
                watch(place, len(ordered))
            try:
                name, partition, texts = lowering.partition(row)
            except Misfit as misfit:
                done.refused.append(misfit.at(row.where))
            else:
                _keep(done.found, row, name, partition, texts)
        yield done
        lowering.remember()


def _keep(
    found: Imported, row: NetworkRow, name: str, partition: Partition, texts: Mapping[str, str]
) -> None:
    said = {"network": name, "batch": str(partition.batch), "size": partition.size, **row.labels}
    if not row.labels.get("model") and row.names[0] != name:
        said["model"] = row.names[0]
    found.measurements.append(
        Measurement(
            row.target,
            partition.whole,
            "network",
            row.latency_us,
            spread_share=row.spread_share,
            visits=(Visit(row.samples_us),) if row.samples_us else (),
            protocol=row.protocol,
            labels={label: text for label, text in said.items() if text},
        )
    )
    shape = {"batch": str(partition.batch), "size": partition.size}
    labels = {"lowering": registry.lowering_identity(row.target), **shape}
    breakdown = Breakdown(
        row.target, name, partition.whole, partition.cells,
        labels={label: text for label, text in labels.items() if text},
    )  # fmt: skip
    found.describe(breakdown, texts)


class _Lowering:
    """Partitions of files at sizes and targets, each worked out once."""

    def __init__(self, files: NetworkFiles | None, cache: Cache | None) -> None:
        self._files, self._cache = files, cache
        self._identities: dict[Target, str | Misfit] = {}
        self._read: tuple[object, Network | Misfit] = (None, Misfit("", "", ""))
        self._known: dict[str, Partition | Misfit] = {}
        self._fresh: dict[str, Partition] = {}

    def partition(self, row: NetworkRow) -> tuple[str, Partition, Mapping[str, str]]:
        """The file's name, the partition, and texts of cells where they were just made."""
        file = self._file(row)
        identity = self._identity(row.target)
        sizes = f"{row.batch or ''}/{'x'.join(map(str, row.size or ()))}"
        key = f"network-cells/{_FORMAT}/{identity}/{file.digest}/{sizes}"
        texts: Mapping[str, str] = {}
        found = self._known.get(key)
        if found is None:
            found = self._recalled(key)
        if found is None:
            try:
                found, texts = self._lower(file, row)
                self._fresh[key] = found
            except Misfit as misfit:
                found = misfit
        self._known[key] = found
        if isinstance(found, Misfit):
            raise found
        return file.name, found, texts

    def remember(self) -> None:
        """Tell the cache what was worked out since the last time."""
        for key, partition in self._fresh.items():
            if self._cache is not None:
                self._cache.cache_put(key, partition.to_text())
        self._fresh.clear()

    def _recalled(self, key: str) -> Partition | None:
        text = self._cache.cache_get(key) if self._cache is not None else None
        return Partition.from_text(text) if text is not None else None

    def _file(self, row: NetworkRow) -> NetworkFile:
        if self._files is None:
            raise Misfit(
                "the network's ONNX file is needed", row.names[0],
                "give the folder of ONNX files with --nets",
            )  # fmt: skip
        for name in row.names:
            found = self._files.find(name)
            if found is not None:
                return found
        raise Misfit(
            f"there is no ONNX file of the network in {self._files.where}", row.names[0],
            "put NAME.onnx there, or name the file in a column onnx",
        )  # fmt: skip

    def _identity(self, target: Target) -> str:
        found = self._identities.get(target)
        if found is None:
            try:
                found = registry.lowering_identity(target)
            except TargetError as error:
                found = Misfit("it is not known how the engine fuses", target.engine, str(error))
            except UnavailableError as error:
                found = Misfit("the engine has to be asked", target.engine, str(error))
            self._identities[target] = found
        if isinstance(found, Misfit):
            raise found
        return found

    def _lower(self, file: NetworkFile, row: NetworkRow) -> tuple[Partition, dict[str, str]]:
        network = self._network(file, row)
        try:
            lowered = registry.lower(network, row.target)
        except (MeasurementError, UnavailableError, NetworkError) as error:
            raise Misfit(
                "the engine's lowering refuses the network", f"{file.name} on {row.target}",
                str(error),
            ) from None  # fmt: skip
        signatures = [sign(cell.network) for cell in cut(lowered, network)]
        counts = Counter(s.hash for s in signatures)
        first = network.types[network.inputs[0]].shape if network.inputs else ()
        size = "x".join(map(str, _image(first) or ()))
        whole = sign(network).hash
        partition = Partition(whole, first[0] if first else 1, size, tuple(counts.items()))
        return partition, {s.hash: s.text for s in signatures}

    def _network(self, file: NetworkFile, row: NetworkRow) -> Network:
        key = (file.name, row.batch, row.size)
        if self._read[0] != key:
            try:
                self._read = key, network_at(file, row.batch, row.size)
            except Misfit as misfit:
                self._read = key, misfit
        found = self._read[1]
        if isinstance(found, Misfit):
            raise found
        return found


def network_at(file: NetworkFile, batch: int | None, size: tuple[int, int] | None) -> Network:
    """The network of a file bound to a batch, and its first image to height and width.

    None leaves what the file has. Raises Misfit where the file does not take them.
    """
    from hybridlat.onnx_io import load

    try:
        read = load(file.content, file.name)
    except InputError as error:
        raise Misfit("the ONNX file cannot be read", error, "export it again") from None
    shapes = _bound(file.name, read.input_sizes, batch, size) if size is not None else {}
    try:
        return read.network(batch, shapes)
    except NetworkError as error:
        raise Misfit(
            "the ONNX file does not take the batch or the size", f"{error} (batch {batch})",
            "export it with dynamic sizes, or for these sizes",
        ) from None  # fmt: skip


def _bound(
    name: str,
    inputs: Mapping[str, tuple[int | None, ...]],
    batch: int | None,
    size: tuple[int, int],
) -> dict[str, tuple[int, ...]]:
    """The first image among the inputs with these sizes; nothing where it has them already."""
    for tensor, sizes in inputs.items():
        if len(sizes) == 4:
            if _image(sizes) == size:
                return {}
            channels = sizes[3] if _is_channels_last(sizes) else sizes[1]
            if channels is None:
                break
            first = batch or sizes[0] or 1
            if _is_channels_last(sizes):
                return {tensor: (first, *size, channels)}
            return {tensor: (first, channels, *size)}
    raise Misfit(
        "the ONNX file has no input of images to give a size to",
        f"{name}: {', '.join(f'{n} {list(s)}' for n, s in inputs.items())}",
        "leave the size out, or export the network with its channels",
    )


def _image(sizes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """Height and width of an input of images; None for another input."""
    if len(sizes) != 4:
        return None
    return tuple(sizes[1:3] if _is_channels_last(sizes) else sizes[2:])


def _is_channels_last(sizes: Sequence[int | None]) -> bool:
    return sizes[3] in (1, 3, 4) and sizes[1] not in (1, 3, 4)


def notes(targets: Sequence[Target]) -> list[str]:
    """What is missing to predict on these targets' devices: their data sheets."""
    known = set(device_sheets.names())
    return [
        f"{device} has no data sheet: write {device_sheets.user_folder() / device}.toml, so that "
        "other devices teach it"
        for device in sorted({target.device for target in targets})
        if device not in known
    ]
