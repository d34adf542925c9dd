"""Make a new device known: measure what there is time for, then train.

Everything is measured once, in the order drawn and in runs of some seconds. Two fifths of the time
go to the shipped networks, whole and with all their cells, the rest to random kernels. What is
measured is in the store at once: a second run goes on where the first stopped.
"""

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.errors import HybridlatError, UnavailableError
from hybridlat.graph.network import Network
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.fit import check_installed
from hybridlat.schema.measurement import Breakdown, Kind
from hybridlat.schema.plugins import shipped
from hybridlat.schema.shown import count_text
from hybridlat.schema.target import Target
from hybridlat.schema.workers import OnMessage, OnProgress, silent
from hybridlat.store import Store
from hybridlat.training.kernel_sampler import partition_of, random_kernels
from hybridlat.training.quantise import as_target_takes
from hybridlat.training.train import Trained, TrainingOptions, train_target

SETTINGS = MeasurementConfig(
    rounds=1, processes=1, max_processes=3, spread_share=0.1, visit_ms=10.0,
    network_visit_ms=100.0, network_visits=2,
)  # fmt: skip
"""Many cells once are worth more than few often; what was disturbed is visited once more."""
_READING_SHARE = 0.1  # of the budget, that reading networks may take before anything is measured
_RUNS = 10  # that a budget falls into, within these limits
LEAST_RUN_S, MOST_RUN_S = 15.0, 60.0
_LEAST_CELLS = 60  # fewer are not trained on
_TRAINING_S, _TRAINING_SHARE = 60.0, 0.2
_LEAST_NETWORKS = 4  # so many are lowered however long that takes
_HEAVY_BYTES = 100_000_000  # weights from which on a network is read last
_NETWORK_SHARE = 0.4  # of the measuring time, that goes to networks while there are some
_DEAREST_SHARE = 0.25  # of the time left: a network that is expected to take more is left out
_LONGEST = 2.0  # after so many times its length a run is cut off: the rest is measured later
_STARTING_S = 3.0  # a measuring process: what is left of a budget must be more than that
_CELL_S, _CELL_IN_NETWORK_S = 0.1, 2.0  # expected until something was measured
_WHOLE = 5  # so many cells a whole network counts as


@dataclass(frozen=True)
class OnboardingOptions:
    """What to measure for how long; ``budget_s``, above 0, holds training too.

    ``nets`` is a folder of ONNX files, by default those that come with hybridlat.
    """

    budget_s: float
    store: str | None = None
    nets: Path | None = None
    seed: int = 0
    settings: MeasurementConfig = SETTINGS
    most_kernels: int = 100_000


@dataclass(frozen=True)
class Onboarded:
    """What an onboarding did of one target.

    ``networks`` are known whole and with their cells, ``kernels`` were measured now, ``cells`` are
    in the store. ``by`` is another version of the engine that answers here too, so that nothing
    was trained. ``accepted``: a model is in use, or no answer is wide.
    """

    target: Target
    networks: int = 0
    cells: int = 0
    kernels: int = 0
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    trained: Trained | None = None
    by: Target | None = None
    accepted: bool = False


def measure_target(
    measurer: Measurer,
    options: OnboardingOptions,
    progress: OnProgress | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """Measure the measurer's target, and leave time to train.

    Raises MissingExtra where nothing could be trained on what would be measured.
    """
    check_installed()
    began, target = time.monotonic(), measurer.backend.target
    # Of what ten minutes measured, the slower of two machines learned in two and a half.
    training_s = max(_TRAINING_S, _TRAINING_SHARE * options.budget_s)
    budget_s = max(options.budget_s - training_s, 0.5 * options.budget_s)
    run_s = min(max(budget_s / _RUNS, LEAST_RUN_S), MOST_RUN_S)
    with Store(options.store) as store:
        bench = _Bench(measurer, store, options.settings, progress)
        nets = options.nets or shipped("data", "nets")
        bench.read(nets.glob("*.onnx"), options.seed, began + _READING_SHARE * budget_s)
        drawn = random_kernels(measurer, options.most_kernels, options.seed)
        kernels = (_Item(request, texts) for request, texts in drawn)
        # However slow reading was: one run is made.
        end = max(began + budget_s, time.monotonic() + run_s)
        count = bench.measure(kernels, run_s, end, on_message)
        rest = {item.request.name for item in bench.networks if bench.things(item)}
        if left := len(rest - bench.refused) + bench.unread:
            bench.notes.append(f"{count_text(left, 'network')} did not fit into the budget")
        cells = sum(stats.cells for stats in store.stats() if stats.target == target)
    done, elapsed_s = len(bench.networks) - len(rest), time.monotonic() - began
    return Onboarded(target, done, cells, count, elapsed_s, tuple(bench.notes))


def train_on(
    onboarded: Onboarded, training: TrainingOptions, store: str | None, on_message: OnMessage
) -> Onboarded:
    """Train on what the store knows of a target that was measured."""
    target, cells = onboarded.target, count_text(onboarded.cells, "cell")
    if onboarded.cells < _LEAST_CELLS:
        note = f"{cells} of at least {_LEAST_CELLS} to train on: run it again, it goes on from here"
        return replace(onboarded, notes=(*onboarded.notes, note))
    on_message(f"{target}: training on {cells}")
    began = time.monotonic()
    trained = train_target(target, training, store=store, on_message=on_message)
    elapsed_s = onboarded.elapsed_s + time.monotonic() - began
    accepted = trained.folder is not None
    return replace(onboarded, elapsed_s=elapsed_s, trained=trained, accepted=accepted)


@dataclass(frozen=True)
class _Item:
    """One thing to measure, all of which ``request`` asks for: a network, or a kernel.

    ``texts`` are the signature texts of its cells by hash; a kernel has no ``breakdown``.
    """

    request: MeasureRequest
    texts: Mapping[str, str]
    breakdown: Breakdown | None = None

    @cached_property
    def things(self) -> dict[tuple[Kind, str], int]:
        """By kind and hash what is measured of it, in cells that it counts as."""
        things: dict[tuple[Kind, str], int] = {("cell", hash_): 1 for hash_ in self.texts}
        if self.breakdown is not None:
            things["network", self.breakdown.signature] = _WHOLE
        return things


@dataclass
class _Bench:
    """A measurer with its store: what was tried, and what measuring takes.

    ``tried`` says by kind and hash whether there is a latency; ``refused`` are names of what could
    not be measured. So far ``spent_s`` went to ``count`` things.
    """

    measurer: Measurer
    store: Store
    settings: MeasurementConfig
    progress: OnProgress | None
    networks: list[_Item] = field(default_factory=list)
    unread: int = 0
    tried: dict[tuple[Kind, str], bool] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.target = self.measurer.backend.target

    def read(self, files: Iterable[Path], seed: int, end: float) -> None:
        """Read networks, and lower them until ``end`` (of the monotonic clock), at least a few."""
        readable: list[Network] = []
        for path in sorted(files):
            try:
                network = onnx_io.read_network(path, name=path.stem)
                readable.append(as_target_takes(network, self.target))
            except HybridlatError as error:
                self.notes.append(f"{path.name} is left out: {error}")
        random.Random(f"hybridlat networks {seed}").shuffle(readable)
        readable.sort(key=lambda network: network.weight_bytes > _HEAVY_BYTES)
        for place, network in enumerate(readable):
            if time.monotonic() >= end and place >= _LEAST_NETWORKS:
                self.unread = len(readable) - place
                break
            try:
                partition = partition_of(network, self.measurer.backend)
            except HybridlatError as error:
                self.notes.append(f"{network.name} is left out: {error}")
                continue
            request = MeasureRequest(network.name, network, partition.cells(), whole=True)
            whole = partition.breakdown(self.target, network.name)
            self.networks.append(_Item(request, partition.texts, whole))

    def measure(
        self, kernels: Iterator[_Item], run_s: float, end: float, on_message: OnMessage
    ) -> int:
        """Runs until ``end`` or until nothing is left; how many random kernels were measured."""
        networks_s, kernels_s, measured = 0.0, 0.0, 0
        self._look_up(self.networks)
        while (left_s := end - time.monotonic()) > (_STARTING_S if self.tried else 0.0):
            networks = [item for item in self.networks if item.request.name not in self.refused]
            turns: tuple[Iterable[_Item], ...] = (networks, kernels)
            if networks_s > _NETWORK_SHARE * (networks_s + kernels_s):
                turns = (kernels, networks)
            chosen = next(filter(None, (self._next(of, run_s, end) for of in turns)), [])
            if not chosen:
                break
            known = sum(has and kind == "cell" for (kind, _), has in self.tried.items())
            are_kernels = chosen[0].breakdown is None
            now = f"{len(chosen)} {'random kernels' if are_kernels else 'networks'}"
            on_message(f"{self.target}: {known} cells known, {left_s:.0f} s left; now {now}")
            took_s = self._run(chosen, min(end, time.monotonic() + _LONGEST * run_s))
            if are_kernels:
                kernels_s += took_s
                measured += sum(any(map(self.tried.get, one.things)) for one in chosen)
            else:
                networks_s += took_s
        return measured

    def things(self, item: _Item) -> int:
        """How many things of an item were not tried yet, in cells."""
        return sum(count for thing, count in item.things.items() if thing not in self.tried)

    def _look_up(self, items: Sequence[_Item]) -> None:
        new = [thing for item in items for thing in item.things if thing not in self.tried]
        for kind in {kind for kind, _ in new}:
            hashes = [h for of, h in new if of == kind]
            for h, stats in self.store.latencies(self.target, hashes, kind).items():
                self.tried[kind, h] = stats.latency_us is not None

    def _next(self, items: Iterable[_Item], run_s: float, end: float) -> list[_Item]:
        """The next items with something to try, for about ``run_s`` seconds."""
        usual_s = _CELL_IN_NETWORK_S if self.measurer.needs_network else _CELL_S
        thing_s = self.spent_s / self.count if self.count else usual_s
        chosen, expected_s = list[_Item](), 0.0
        for item in items:
            left_s = end - time.monotonic()
            self._look_up([item])
            item_s = thing_s * self.things(item)
            if item_s and (item.breakdown is None or item_s <= _DEAREST_SHARE * left_s):
                chosen.append(item)
                expected_s += item_s
            if expected_s >= min(run_s, left_s):
                break
        return chosen

    def _run(self, items: Sequence[_Item], end: float) -> float:
        things = sum(map(self.things, items))
        self.store.add_signatures({h: t for item in items for h, t in item.texts.items()})
        began = time.monotonic()
        requests = []
        for item in items:
            new = item.things.keys() - self.tried.keys()
            cells = {h: c for h, c in item.request.cells.items() if ("cell", h) in new}
            whole = any(kind == "network" for kind, _ in new)
            requests.append(replace(item.request, cells=cells, whole=whole))
        latencies = self._try(requests, end)
        took_s = time.monotonic() - began
        self.store.add_breakdowns(i.breakdown for i in items if i.breakdown is not None)
        self._look_up(items)
        if latencies:
            self.spent_s += took_s
            self.count += things - sum(map(self.things, items))
        elif time.monotonic() < end:  # what cannot be measured is not tried again
            self.refused.update(item.request.name for item in items)
        return took_s

    def _try(self, requests: Sequence[MeasureRequest], end: float) -> int:
        """Measure what there is time for; how many latencies came of it. Refusals become notes."""
        left_s = end - time.monotonic()
        if left_s <= 0:
            return 0
        # What needs its network is built with it, and a run of many cannot be cut.
        if len(requests) > 1 and self.measurer.needs_network:
            return sum(self._try([request], end) for request in requests)
        settings = replace(self.settings, budget_s=left_s)
        try:
            records = self.measurer.measure(requests, self.store, settings, self.progress)
        except UnavailableError:
            raise
        except HybridlatError as error:
            if len(requests) > 1:  # one of them is to blame, perhaps
                return sum(self._try([request], end) for request in requests)
            self.notes.append(f"{requests[0].name} was not measured: {error}")
            self.refused.add(requests[0].name)
            return 0
        return sum(record.latency_us is not None for record in records)
