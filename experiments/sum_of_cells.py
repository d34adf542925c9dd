"""Does the sum of cells give the latency of the network? Measured on real networks.

Every network of ``data/nets`` and a sample of NAS-Bench-201 is measured whole, by the cells of the
engine's own graph, by its kernels, and by the layers of the file one by one, on this machine's CPU.
Networks and cells are measured together, in batches, between runs of a reference network; the
networks are measured once more afterwards for the noise floor.

    python experiments/sum_of_cells.py measure --store sqlite:///records.db   # about 30 min
    python experiments/sum_of_cells.py sweep   --store sqlite:///records.db   # about 16 min
    python experiments/sum_of_cells.py pack    --store sqlite:///records.db   # to data/packs
    python experiments/sum_of_cells.py report  --store sqlite:///records.db
    python experiments/sum_of_cells.py report                  # from the pack in data/packs

A run that is cut off goes on where it stopped.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from msgspec import structs

from experiments import nasbench201
from experiments.sum_of_cells_report import print_report
from hybridlat import onnx_io
from hybridlat.cli.output import ProgressShown
from hybridlat.engines.base import Backend
from hybridlat.engines.registry import open_backend
from hybridlat.graph.cells import cut, kernels
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.store import Store
from hybridlat.training.kernel_families import ATTENTION, RARE
from hybridlat.training.kernel_sampler import sweep

DISAGREE_SHARE = 0.015  # standard error of the mean: two measurements 3 % apart
SWEEP_KERNELS = 4800
SWEEP_SEED = 0
SWEEP_BATCH = 400
NAS_NETWORKS = 60
NAS_SEED = 2024
BATCH = 10
TRUTH = MeasurementConfig(rounds=2, processes=2, max_processes=3)
REPEAT = MeasurementConfig(rounds=2, processes=1, max_processes=1)
BASELINE = MeasurementConfig(rounds=1, processes=1, max_processes=1, visit_ms=15.0)
SWEEP = MeasurementConfig(rounds=1, processes=2, max_processes=2, visit_ms=15.0)


@dataclass(frozen=True)
class Subject:
    """One network with everything that is measured of it."""

    whole: Job
    cells: tuple[tuple[Job, int], ...]
    kernels: tuple[tuple[Job, int], ...]
    layers: tuple[tuple[Job, int], ...]
    labels: Mapping[str, str]

    def breakdown(self, backend: Backend) -> Breakdown:
        def counted(jobs: tuple[tuple[Job, int], ...]) -> tuple[tuple[str, int], ...]:
            return tuple((job.signature.hash, count) for job, count in jobs)

        return Breakdown(
            backend.target,
            self.labels["network"],
            self.whole.signature.hash,
            counted(self.cells),
            counted(self.layers),
            self.labels,
        )


def subjects(backend: Backend, only: Sequence[str], nets: Path | None = None) -> list[Subject]:
    """Real networks first, then the NAS sample; those of a folder ``nets`` alone."""
    result = []
    for path in sorted((nets or ROOT / "data" / "nets").glob("*.onnx")):
        if not only or path.stem in only:
            network = onnx_io.read_network(path)
            result.append(subject(backend, network, {"network": path.stem, "set": "nets"}))
    # An architecture without a path from input to output computes a constant: nothing to time.
    drawn = nasbench201.sample(2 * NAS_NETWORKS, NAS_SEED) if not only and not nets else []
    for arch in [a for a in drawn if nasbench201.live_edges(a)][:NAS_NETWORKS]:
        name = f"nasbench201-{nasbench201.index_from_arch(arch)}"
        network = onnx_io.read_network(nasbench201.build(arch), name=name)
        result.append(subject(backend, network, {"network": name, "set": "nasbench201"}))
    return result


def subject(backend: Backend, network: Network, labels: Mapping[str, str]) -> Subject:
    """Everything to measure of one network."""
    lowered = backend.lower(network)
    layers = [
        replace(network.subnetwork((i,)), context=lowered.network.context)
        for i in range(len(network.nodes))
    ]
    return Subject(
        Job(sign(network), network, "network", labels),
        _count([c.network for c in cut(lowered)], "cell", labels),
        _count([c.network for c in kernels(lowered)], "cell", labels),
        _count(layers, "layer", labels),
        labels,
    )


def _count(
    parts: Sequence[Network], kind: str, labels: Mapping[str, str]
) -> tuple[tuple[Job, int], ...]:
    signatures = [sign(part) for part in parts]
    first = dict(zip(reversed(signatures), reversed(parts), strict=True))
    return tuple(
        (Job(signature, first[signature], kind, labels), count)  # type: ignore[arg-type]
        for signature, count in Counter(signatures).items()
    )


def opened(precision: str) -> Backend:
    """This machine's CPU, for files of a precision."""
    backend = open_backend("onnxruntime", {"threads": 1})
    backend.target = replace(backend.target, precision=precision)
    return backend


def run(
    backend: Backend, store: Store, only: Sequence[str], nets: Path | None, budget_s: float | None
) -> None:
    """Measure everything that the store does not hold yet."""
    started = time.monotonic()
    everything = subjects(backend, only, nets)
    # Neighbours in the alphabet are of one family: deal them out over the batches.
    count = -(-len(everything) // BATCH)
    batches = [everything[i::count] for i in range(count)]

    def spent() -> bool:
        return budget_s is not None and time.monotonic() - started > budget_s

    for number, batch in enumerate(batches):
        if spent():
            return
        store.add_breakdowns([s.breakdown(backend) for s in batch])
        jobs = [s.whole for s in batch] + [job for s in batch for job, _ in s.cells]
        _measure(backend, store, jobs, TRUTH, f"cells {number + 1}/{count}")
    for number, batch in enumerate(batches):
        if spent():
            return
        _repeat(backend, store, batch, 1, f"again {number + 1}/{count}")
    if not spent():
        _repeat(backend, store, everything, 2, "where the two differ")
    for what in ("layers", "kernels"):
        for number, batch in enumerate(batches):
            if spent():
                return
            parts = [job for s in batch for job, _ in getattr(s, what)]
            _measure(backend, store, parts, BASELINE, f"{what} {number + 1}/{count}")


def run_sweep(backend: Backend, store: Store, count: int, budget_s: float | None) -> None:
    """Measure random realistic kernels to learn others from.

    A third as many are rarer ones, a quarter are of transformers.
    """
    started = time.monotonic()
    drawn = list(sweep(backend, count, SWEEP_SEED))
    drawn += sweep(backend, count // 3, SWEEP_SEED, families=RARE)
    drawn += sweep(backend, count // 4, SWEEP_SEED, families=ATTENTION)
    for place in range(0, len(drawn), SWEEP_BATCH):
        if budget_s is not None and time.monotonic() - started > budget_s:
            return
        jobs = [
            Job(sign(network), network, "cell", {"sweep": str(SWEEP_SEED)})
            for _, network in drawn[place : place + SWEEP_BATCH]
        ]
        _measure(backend, store, jobs, SWEEP, f"sweep {place + len(jobs)}/{len(drawn)}")


def write_pack(
    backend: Backend, store: Store, nets: Path | None, is_lean: bool, folder: Path
) -> Path:
    """The store's records of this machine as a pack, with the breakdowns as they are made now.

    A lean one leaves out what no network of ``nets`` is made of, single kernels and layers among
    it, but for kernels of the sweep; of a cell's samples it keeps every sixteenth and both ends.
    """
    with tempfile.TemporaryDirectory() as scratch, Store(Path(scratch) / "pack.db") as clean:
        records = list(store.measurements(backend.target))
        known = {r.signature for r in records if r.kind == "network"}
        result = [s for s in subjects(backend, (), nets) if s.whole.signature.hash in known]
        breakdowns = [s.breakdown(backend) for s in result]
        if is_lean:
            kept = {b.signature for b in breakdowns} | {h for b in breakdowns for h, _ in b.cells}
            of_sweep = {r.signature for r in records if r.labels.get("sweep")}
            records = [_lean(r) for r in records if r.signature in kept | of_sweep]
            breakdowns = [structs.replace(b, layers=()) for b in breakdowns]
        clean.add_signatures(store.signature_texts({r.signature for r in records}))
        clean.add(records)
        clean.add_breakdowns(breakdowns)
        source = "measured by experiments/sum_of_cells.py"
        clean.export(folder, backend.target, source=source, licence="Apache-2.0")
    return folder / backend.target.folder


def _lean(record: Measurement) -> Measurement:
    """The record of a network, or that of a cell with few of its samples."""
    if record.kind == "network":
        return record
    visits = []
    for visit in record.visits:
        ends = (min(visit.samples_us), max(visit.samples_us)) if visit.samples_us else ()
        samples_us = (*ends, *visit.samples_us[::16])
        visits.append(structs.replace(visit, samples_us=samples_us))
    return structs.replace(record, visits=tuple(visits))


def _measure(
    backend: Backend, store: Store, jobs: Sequence[Job], settings: MeasurementConfig, label: str
) -> None:
    unique = {(job.kind, job.signature.hash): job for job in reversed(jobs)}
    missing: list[Job] = []
    for kind in {kind for kind, _ in unique}:
        hashes = [h for k, h in unique if k == kind]
        known = store.latencies(backend.target, hashes, kind)
        missing += [
            unique[kind, h] for h in hashes if h not in known or known[h].latency_us is None
        ]
    if missing:
        with ProgressShown() as shown:
            measure(backend, missing, store, settings, shown.at(label))


def _repeat(
    backend: Backend, store: Store, chosen: Sequence[Subject], repeat: int, label: str
) -> None:
    """Measure whole networks once more: all for the noise floor, then those that disagree."""
    known = store.latencies(backend.target, [s.whole.signature.hash for s in chosen], "network")
    missing = {
        s.whole.signature.hash: replace(s.whole, labels={**s.labels, "repeat": str(repeat)})
        for s in chosen
        if s.whole.signature.hash in known
        and known[s.whole.signature.hash].records == repeat
        and (repeat == 1 or known[s.whole.signature.hash].spread_share > DISAGREE_SHARE)
    }
    if missing:
        settings = REPEAT if repeat == 1 else TRUTH
        jobs = list(missing.values())
        with ProgressShown() as shown:
            measure(backend, jobs, store, settings, shown.at(label))


def main() -> None:
    """Measure or report, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("action", choices=("measure", "sweep", "pack", "report"))
    parser.add_argument("--store", help="URL of the store; report without it reads the pack")
    parser.add_argument("--only", nargs="*", default=[], help="names of networks")
    parser.add_argument("--nets", type=Path, help="folder of networks instead of data/nets")
    parser.add_argument("--precision", default="fp32", help="that of the networks")
    parser.add_argument("--kernels", type=int, default=SWEEP_KERNELS, help="how many to sweep")
    parser.add_argument("--lean", action="store_true", help="a pack of cells and networks alone")
    parser.add_argument("--budget", type=float, help="seconds after which no batch is begun")
    chosen = parser.parse_args()
    if chosen.action == "report":
        print_report(chosen.store)
        return
    backend = opened(chosen.precision)
    with Store(chosen.store) as store:
        if chosen.action == "measure":
            run(backend, store, chosen.only, chosen.nets, chosen.budget)
        elif chosen.action == "sweep":
            run_sweep(backend, store, chosen.kernels, chosen.budget)
        else:
            folder = ROOT / "data" / "packs"
            print(write_pack(backend, store, chosen.nets, chosen.lean, folder))


if __name__ == "__main__":
    main()
