"""A network as cells of one target: what each is, how often and where it stands in the file.

A partition is cached in the store under a key of the file's structure, since to lower a network
costs tens of milliseconds. Networks that differ in names and weights alone share it.
"""

import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TypeVar

import msgspec

from hybridlat.engines import registry
from hybridlat.errors import HybridlatError, StoreError
from hybridlat.estimate.memory import footprint
from hybridlat.graph.cells import cells_of_run, file_rank, labels, run_positions
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import outline, read, sign, sign_part
from hybridlat.model.family.shipped import timed_as
from hybridlat.onnx_io import OnnxFile, Shapes
from hybridlat.onnx_io.facts import FACTS_FORMAT, FileFacts
from hybridlat.schema.files import decode_or_none
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store

PARTITION_FORMAT = 9
MAX_REMEMBERED = 2048  # partitions, in memory
KEPT_TOGETHER = 32
"""Candidates of a search that one transaction keeps: each alone would cost a server's commit."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class CellPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One use of a cell: the ``order``-th cell of the network's schedule, counted from 0.

    ``reads`` are the orders of the cells whose results it reads, -1 for the network's inputs;
    ``kernels`` the positions in the file that each kernel computes, in the order of the signature.
    """

    order: int
    reads: tuple[int, ...]
    kernels: tuple[tuple[int, ...], ...]


class CellUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One distinct cell of a network: ``ops`` labels its kernels as the file lists them."""

    signature: str
    ops: tuple[str, ...]
    places: tuple[CellPlace, ...]

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Positions in the file of all operators of all uses."""
        each = (sorted(itertools.chain(*place.kernels)) for place in self.places)
        return tuple(itertools.chain(*each))


Runs = tuple[tuple[str, tuple[str, ...]], ...]
"""Signatures of runs of kernels, each with those of its cells in order."""


@dataclass(frozen=True)
class Partition:
    """A network as cells: ``removed`` are positions of operators that the engine does not run.

    ``by`` names what lowered it. ``runs`` were one cell once and may be on record as such.
    ``texts`` are the signature texts of cells. Where ``hash`` is empty, ``network`` makes what is
    signed for it when ``whole`` is read. ``footprint`` are the bytes of its weights and of the
    activations that live at once. An empty ``outline`` is not known.
    """

    uses: tuple[CellUse, ...]
    removed: tuple[int, ...]
    batch: int
    by: str
    warnings: tuple[str, ...] = ()
    runs: Runs = ()
    hash: str = ""
    footprint: tuple[int, int] = (0, 0)
    texts: Mapping[str, str] = field(default_factory=dict)
    outline: str = ""
    network: Callable[[], Network] | None = field(default=None, repr=False, compare=False)

    def to_text(self) -> str:
        """All but ``network``; the hash is empty where no one has signed the network."""
        known = replace(self, hash=self.hash or vars(self).get("whole", ""))
        values = [getattr(known, one.name) for one in fields(self)[:-1]]
        return msgspec.json.encode([PARTITION_FORMAT, *values]).decode()

    @classmethod
    def from_text(cls, text: str) -> "Partition | None":
        """Read ``to_text``; None for another format or a damaged one."""
        stored = decode_or_none(text, tuple[
            int, tuple[CellUse, ...], tuple[int, ...], int, str, tuple[str, ...], Runs, str,
            tuple[int, int], dict[str, str], str,
        ])  # fmt: skip
        return cls(*stored[1:]) if stored is not None and stored[0] == PARTITION_FORMAT else None

    @cached_property
    def counts(self) -> dict[str, int]:
        """How often the network runs each cell, by signature hash."""
        return {use.signature: use.count for use in self.uses}

    def cells(self, hashes: Iterable[str] | None = None) -> dict[str, Network]:
        """Cells, all unless named by ``hashes``, each as a network to measure."""
        names = {use.signature: " → ".join(use.ops)[:60] for use in self.uses}
        return {h: read(self.texts[h], names[h]) for h in (names if hashes is None else hashes)}

    def breakdown(self, target: Target, name: str) -> Breakdown:
        """How the network of this name falls into cells, as a store keeps it."""
        cells = tuple(self.counts.items())
        return Breakdown(target, name, self.whole, cells, labels={"network": name})

    @cached_property
    def whole(self) -> str:
        """The hash of the network itself, under which its records lie; signed when needed."""
        return self.hash if self.network is None else sign(self.network()).hash


def partition_network(network: Network, lowered: Lowered, file_names: tuple[str, ...]) -> Partition:
    """Group the cells of a lowered network by signature; positions count in ``file_names``."""
    position_of = {name: i for i, name in enumerate(file_names)}
    in_file = [position_of[node.name] for node in network.nodes]
    nodes, types = lowered.network.nodes, lowered.network.types
    kernels: list[tuple[int, ...]] = []
    owned = set[int]()
    for origin in lowered.origins:  # what several kernels compute belongs to the first
        # One operator of the file may be several of the network that was lowered.
        held = dict.fromkeys(in_file[i] for i in origin)
        kernels.append(tuple([position for position in held if position not in owned]))
        owned.update(held)
    rank = file_rank(lowered)
    ops: dict[str, tuple[str, ...]] = {}
    places: defaultdict[str, list[CellPlace]] = defaultdict(list)
    texts: dict[str, str] = {}
    order_of: dict[str, int] = {}  # by tensor, the cell that makes it
    runs: dict[str, tuple[str, ...]] = {}
    orders = itertools.count()
    for run in run_positions(lowered.network):
        cells = cells_of_run(lowered.network, run)
        of_run = []
        for positions in cells:
            signature, in_order = sign_part(lowered.network, positions)
            hash_ = signature.hash
            of_run.append(hash_)
            if hash_ not in ops:
                texts[hash_] = signature.text
                ops[hash_] = labels(lowered, positions, network, rank)
            order, of_cell = next(orders), [nodes[position] for position in positions]
            outputs = {name for node in of_cell for name in node.outputs}
            inputs = {name for node in of_cell for name in node.inputs if name in types} - outputs
            reads = tuple(sorted({order_of.get(name, -1) for name in inputs}))
            order_of.update(dict.fromkeys(outputs, order))
            computed = tuple([kernels[positions[kernel]] for kernel in in_order])
            places[hash_].append(CellPlace(order, reads, computed))
        if len(cells) > 1:
            runs[sign_part(lowered.network, run)[0].hash] = tuple(of_run)
    uses = tuple([CellUse(hash_, ops[hash_], tuple(each)) for hash_, each in places.items()])
    return Partition(
        uses,
        removed=tuple(sorted({*range(len(file_names))}.difference(owned))),
        batch=_batch(network),
        by=lowered.by,
        warnings=lowered.warnings,
        runs=tuple(runs.items()),
        texts=texts,
        outline=outline(network),
        network=lambda: network,
    )


def _batch(network: Network) -> int:
    """The first size of the first input; where that has no batch, of what is convolved first."""
    shape, *others = [network.types[name].shape for name in network.inputs] or [()]
    tables = [one for one in others if len(one) == 2 == len(shape)]
    if any(one[0] != 1 and shape[0] not in one for one in tables):
        return 1  # rows of several tables, as a graph's nodes and edges
    read = [node.inputs[0] for node in network.nodes if node.op == "Conv"]
    shapes = [network.types[name].shape for name in read if name in network.types]
    shape = next((maps for maps in shapes if len(maps) > len(shape)), shape)
    if len(shape) == 1 and all(shape[0] not in network.type_of(o).shape for o in network.outputs):
        return 1  # one vector, as a sound
    return shape[0] if shape else 1


class Partitioner:
    """Splits files into cells for one target, by its engine or the rules of that."""

    def __init__(self, target: Target, store: Store) -> None:
        self._target, self._store = timed_as(target), store
        self._remembered: dict[str, Partition] = {}
        self._unkept: dict[str, Partition] = {}

    @property
    def rules(self) -> str:
        """What decides how networks fall into cells."""
        target = self._target
        return f"{registry.lowering_identity(target)}/{target.engine}/{target.precision}"

    def partition(
        self, file: OnnxFile, batch: int | None = None, shapes: Shapes | None = None
    ) -> Partition:
        """The cells of ``file``; NetworkError or MeasurementError where it has none."""
        key = f"split/{PARTITION_FORMAT}/{self.rules}/{file.key(batch, shapes)}"
        if (remembered := self._remembered.get(key)) is not None:
            return remembered
        partition = _cached(self._store, key, Partition.from_text)
        if partition is None:
            partition = self._lowered(file, batch, shapes)
            self._unkept[key] = partition
            if file.digest or len(self._unkept) >= KEPT_TOGETHER:
                self.keep()
        elif not partition.hash:
            partition = replace(partition, network=partial(file.network, batch, shapes))
        keep_file(self._store, file)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = partition
        return partition

    def keep(self) -> None:
        """Cache for later processes what is not cached yet."""
        new, self._unkept = self._unkept, {}
        with suppress(StoreError):  # the next process asks the engine again
            if new:
                self._store.cache_put({key: one.to_text() for key, one in new.items()})

    def _lowered(self, file: OnnxFile, batch: int | None, shapes: Shapes | None) -> Partition:
        network = file.network(batch, shapes)
        lowered = registry.lower(network, self._target, quickly=True)
        partition = partition_network(network, lowered, file.facts.node_names)
        partition = replace(
            partition,
            batch=file.batch_inside(batch, shapes) or partition.batch,
            footprint=footprint(lowered, self._target, network),
        )
        _log.debug("%s: %d distinct cells, by %s", file.label, len(partition.uses), partition.by)
        return replace(partition, hash=partition.whole, network=None) if file.digest else partition


def _cached(store: Store, key: str, parse: Callable[[str], T | None]) -> T | None:
    """What the store's cache holds under a key; None too where it cannot be read."""
    try:
        return store.cache_read(key, parse)
    except StoreError as error:
        _log.warning("what is cached of a file is not used: %s", error)
        return None  # a cache that cannot be read is no reason not to answer


def known_file(store: Store, digest: str) -> FileFacts | None:
    """The cached facts of the file with these bytes, if any."""
    return _cached(store, _file_key(digest), FileFacts.from_text)


def _file_key(digest: str) -> str:
    return f"file/{FACTS_FORMAT}/{registry.code_hash()}/{digest}"


def keep_file(store: Store, file: OnnxFile) -> None:
    """Cache the facts of a new file whose bytes have a digest."""
    if not file.digest or file.known is not None:
        return
    with suppress(HybridlatError):  # the next process parses the file again
        store.cache_put({_file_key(file.digest): FileFacts.of(file.parsed).to_text()})
