"""The GPU campaign: all that a bare machine with one GPU can tell in a few minutes.

``prepare`` (here) reads networks, lowers and cuts them, and packs a plan into one archive under
40 MiB. ``run`` (there) needs a Python of 3.6 or newer and the engine, nothing else: it is the
plan's own worker.py. It goes on where it stopped and keeps to its budget.
``report`` (here) reads the results back into records and judges them.

    python experiments/10_gpu_campaign.py prepare -o campaign.tar.gz --device h100
    tar xzf campaign.tar.gz && python3 campaign/worker.py run --budget 8m        (on the machine)
    python experiments/10_gpu_campaign.py report campaign
    python experiments/10_gpu_campaign.py rehearse --backend fake --budget 60s   (all three, here)

In order of worth, in waves, so that whatever time there is ends with networks that are whole: a
few networks with their cells (each behind its predecessor, which tells the time alone as well) and
the networks again for the noise floor, FP16 and FP32; a sample of NAS-Bench-201 likewise; the
other networks; convolutions at fine channel steps; batch 8. See experiments/gpu_campaign.md.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from hybridlat import onnx_io
from hybridlat.board.journal import read_lines
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError
from hybridlat.evaluation.metrics import rmspe
from hybridlat.graph.builder import gpu_reference_network
from hybridlat.graph.cells import cut, file_part
from hybridlat.graph.network import Constant, Lowered, Network, Node, TensorType
from hybridlat.graph.signature import sign
from hybridlat.measuring import plan_results, plans
from hybridlat.measuring.plan_runs import import_results
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

NETS = ROOT / "data" / "nets"
LIMIT_MIB = 40
# Well-known and unlike each other first: if time runs out, what is there says most.
FIRST = (
    "resnet18", "mobilenetv2_100", "squeezenet", "resnet50", "efficientnet_b0", "densenet121",
    "vgg19", "inception_v3", "mobilenetv3_large_100", "regnety_008", "shufflenet", "repvgg_a0",
)  # fmt: skip
# How many networks each wave takes; the NAS sample comes behind the second.
WAVES = (4, 8, 12, 12, 12)
NAS_SAMPLE = 24
BUILD_S = 150.0  # of half an hour in all, one network may not take more
SWEEP_CHANNELS = (*range(16, 161, 4), *range(60, 69), *range(124, 133))


def networks(limit: int | None, batch: int | None = None) -> Iterator[tuple[str, Network]]:
    """The networks of data/nets, the most telling first."""
    names = sorted(path.stem for path in NETS.glob("*.onnx"))
    order = [n for n in FIRST if n in names] + [n for n in names if n not in FIRST]
    for name in order[:limit]:
        try:
            yield name, onnx_io.read_network(NETS / f"{name}.onnx", batch=batch)
        except HybridlatError as error:
            print(f"left out {name}: {error}", file=sys.stderr)


def nas_networks(count: int) -> Iterator[tuple[str, Network]]:
    """A seeded sample of NAS-Bench-201, without those whose cell delivers only zeros."""
    for index in nas_indices(count):
        model = nasbench201.build(nasbench201.arch_from_index(index))
        yield f"nas{index}", onnx_io.read_network(model, name=f"nas{index}")


def nas_indices(count: int) -> Iterator[int]:
    """The architectures of that sample."""
    draw = random.Random(201)
    result = 0
    while result < count:
        index = draw.randrange(nasbench201.ARCHITECTURES)
        if nasbench201.live_edges(nasbench201.arch_from_index(index)):
            result += 1
            yield index


def conv_network(channels: int, size: int = 28) -> Network:
    """One 3x3 convolution with as many channels out as in, and its ReLU."""
    data = TensorType("float32", (1, channels, size, size))
    weight = Constant(TensorType("float32", (channels, channels, 3, 3)))
    pads = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    nodes = (
        Node("conv", "Conv", ("x", "w"), ("c",), pads, version=11),
        Node("relu", "Relu", ("c",), ("y",), version=14),
    )
    types = dict.fromkeys(("x", "c", "y"), data)
    return Network(f"conv{channels}", nodes, ("x",), ("y",), types, {"w": weight})


class Campaign:
    """A draft that is put together wave by wave."""

    def __init__(self, device: str, runtime: str, precisions: list[str]) -> None:
        self.draft = plans.Draft(
            device, runtime, samples=150, rounds=1, warm_s=0.15, limit_s=0.8, build_s=BUILD_S
        )
        self.precisions = precisions
        rules = "tensorrt" if runtime == "fake" else runtime
        self.rules = Target(device, rules, "fp32")
        self.draft.add_reference(gpu_reference_network(), precisions[-1])
        self.stage = 0

    def lower(self, network: Network, precision: str) -> Lowered:
        """The kernels of the network at a precision, as every other command lowers it."""
        return registry.lower(network, replace(self.rules, precision=precision))

    def wave(self, title: str, nets: list[tuple[str, Network]]) -> None:
        """Whole networks, their cells behind their predecessors, and the networks again."""
        draft, stage = self.draft, self.stage
        lowered = {}
        for precision in self.precisions:
            for name, network in nets:
                try:
                    lowered[name, precision] = self.lower(network, precision)
                except HybridlatError as error:
                    print(f"no cells of {name} at {precision}: {error}", file=sys.stderr)
        for precision in self.precisions:
            for name, network in nets:
                draft.add_network(
                    name, network, precision, stage=stage, title=f"{title} whole {precision}"
                )
        for precision in self.precisions:
            for name, network in nets:
                if (name, precision) in lowered:
                    draft.add_cells(
                        name, network, lowered[name, precision], precision, stage=stage + 1,
                        title=f"{title} cells {precision}",
                    )  # fmt: skip
                    self.add_isolated_cells(
                        name, network, lowered[name, precision], precision,
                        f"{title} cells {precision}",
                    )  # fmt: skip
                    draft.add_breakdown(name, network, lowered[name, precision], precision)
        for precision in self.precisions:
            for name, network in nets:
                draft.add_network(
                    name, network, precision, stage=stage + 2, again=1,
                    title=f"{title} again {precision}",
                )  # fmt: skip
        self.stage += 3

    def add_isolated_cells(
        self, name: str, network: Network, lowered: Lowered, precision: str, title: str
    ) -> None:
        """The cells of a lowered network, each alone: what a differential is compared with."""
        draft = self.draft
        for cell in cut(lowered, network):
            signature = sign(cell.network)
            if not cell.origins or draft.has(signature.hash, precision, "isolated"):
                continue
            item = draft.item(file_part(network, lowered, cell.origins), precision, "cell")
            label = f"{name}: {' '.join(cell.ops)}"
            task = draft.time((item,), stage=self.stage + 1, title=title, label=label)
            labels = {"network": name, "method": "isolated"}
            draft.record(signature, "cell", precision, task, "isolated", labels)

    def sweep(self, channels: Sequence[int]) -> None:
        """3x3 convolutions of ``channels``, each alone."""
        for precision in self.precisions:
            for count in dict.fromkeys(channels):
                network = conv_network(count)
                item = self.draft.item(network, precision, "cell")
                task = self.draft.time(
                    (item,), stage=self.stage, title=f"conv sweep {precision}",
                    label=f"{count} channels",
                )  # fmt: skip
                signature = sign(self.lower(network, precision).network)
                self.draft.record(
                    signature, "cell", precision, task, "isolated",
                    {"sweep": "channels", "channels": str(count)},
                )  # fmt: skip
        self.stage += 1

    def batches(self, batch: int, nets: list[tuple[str, Network]]) -> None:
        """Whole networks at another batch size."""
        for precision in self.precisions:
            for name, network in nets:
                self.draft.add_network(
                    f"{name}@{batch}", network, precision, stage=self.stage,
                    title=f"batch {batch} {precision}", labels={"batch": str(batch)},
                )  # fmt: skip
        self.stage += 1


def draft_of(device: str, runtime: str, precisions: list[str], limit: int | None) -> plans.Draft:
    """Everything the campaign asks for, in stages of falling worth."""
    campaign = Campaign(device, runtime, precisions)
    nets = list(networks(limit))
    nas = list(nas_networks(NAS_SAMPLE if limit is None else min(2, limit)))
    for number, size in enumerate((*WAVES, len(nets)), start=1):
        wave, nets = nets[:size], nets[size:]
        if wave:
            campaign.wave(f"wave {number}", wave)
        if number == 2:
            campaign.wave("NAS-Bench-201", nas)
    campaign.sweep(SWEEP_CHANNELS if limit is None else SWEEP_CHANNELS[:3])
    campaign.batches(8, list(networks(len(FIRST) if limit is None else 1, batch=8)))
    return campaign.draft


def add_fake_engine(folder: Path) -> None:
    """Put the tests' made-up engine beside a plan's other engines."""
    shutil.copy(ROOT / "tests" / "fakes" / "board" / "engine_fake.py", folder)


def prepare(arguments: argparse.Namespace) -> int:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "campaign"
        draft = draft_of(
            arguments.device, arguments.runtime, arguments.precisions.split(","), arguments.limit
        )
        draft.write(folder)
        with tarfile.open(arguments.output, "w:gz") as archive:
            archive.add(folder, "campaign")
        manifest = draft.manifest()
    size = Path(arguments.output).stat().st_size / 2**20
    print(
        f"{len(manifest['tasks'])} tasks on {len(manifest['items'])} models in "
        f"{arguments.output}, {size:.1f} MiB; weights made there: "
        f"{sum(manifest['noise'].values()) / 2**20:.0f} MiB"
    )
    if size > LIMIT_MIB:
        print(f"more than {LIMIT_MIB} MiB: give --limit", file=sys.stderr)
        return 2
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Cells against networks, and the noise floor, from a folder of results."""
    results = plan_results.read_results(
        Path(arguments.folder), methods=("whole", "differential", "isolated")
    )
    records, breakdowns = results.measurements, results.breakdowns
    whole: dict[tuple[str, str], list[float]] = {}
    cells: dict[str, dict[tuple[str, str], float]] = {"differential": {}, "isolated": {}}
    for record in records:
        if record.latency_us is None:
            continue
        key = (str(record.target), record.signature)
        if record.kind == "network":
            whole.setdefault(key, []).append(record.latency_us)
        else:
            cells[_method(record)][key] = record.latency_us
    print(f"{len(records)} records, {sum(bool(r.failure) for r in records)} failures")
    print("| target | method | networks | RMSPE % | bias % | median scale | noise floor % |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for target in sorted({str(b.target) for b in breakdowns}):
        again = [v[1] / v[0] - 1 for (t, _), v in whole.items() if t == target and len(v) > 1]
        floor = f"{rmspe(np.array(again)):.2f}" if again else "-"
        own = [item for item in breakdowns if str(item.target) == target]
        for method, known in cells.items():
            errors = []
            for item in own:
                measured = whole.get((target, item.signature))
                parts = [(known.get((target, h), math.nan), n) for h, n in item.cells]
                us = math.fsum(each * count for each, count in parts)
                if measured and parts and not math.isnan(us):
                    errors.append(us / measured[0] - 1)
            figures = "- | - | -"
            if errors:
                ratios = sorted(1 / (1 + error) for error in errors if error > -1)
                off = f"{rmspe(np.array(errors)):.2f} | {100 * np.mean(errors):+.2f}"
                figures = f"{off} | {ratios[len(ratios) // 2]:.3f}"
            print(f"| {target} | {method} | {len(errors)} | {figures} | {floor} |")
    return 0


def _method(record: Measurement) -> str:
    return "differential" if record.protocol.endswith("differential") else "isolated"


def rehearse(arguments: argparse.Namespace) -> int:
    """prepare, unpack, run, be killed, go on, report, import: with an engine without a GPU."""
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    fake = arguments.backend == "fake"
    archive = folder / "campaign.tar.gz"
    made = argparse.Namespace(
        device=arguments.device, runtime="tensorrt" if fake else arguments.backend,
        precisions=arguments.precisions,
        limit=arguments.limit, output=str(archive),
    )  # fmt: skip
    shutil.rmtree(folder / "campaign", ignore_errors=True)
    if prepare(made):
        return 2
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    plan_folder = folder / "campaign"
    if fake:
        add_fake_engine(plan_folder / "hybridlat_board")
    command = [
        arguments.python, str(plan_folder / "worker.py"), "run",
        "--engine", arguments.backend, "--budget", arguments.budget,
    ]  # fmt: skip
    if fake:  # under TensorRT's name, so that its rules and its commands can be rehearsed too
        command += ["--option", "name=tensorrt", "--option", "version=10.3"]
    cut_off(command, plan_folder / "results.jsonl")
    status = subprocess.run(command, check=False).returncode
    if status not in (0, 4):
        return status
    twice = repeated(plan_folder / "results.jsonl")
    if twice:
        print(f"measured twice: {', '.join(twice)}", file=sys.stderr)
        return 1
    if report(argparse.Namespace(folder=str(plan_folder))):
        return 2
    with Store(str(folder / "store.db")) as store:
        records, new = import_results(plan_folder, store)
    targets = ", ".join(sorted({str(record.target) for record in records}))
    print(f"{new} records of {targets} in {folder / 'store.db'}")
    return 0


def cut_off(command: list[str], results: Path, lines: int = 6) -> None:
    """Start the run and kill it, without a warning, when it has written some lines."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None:
            if results.exists() and results.read_text().count("\n") >= lines:
                os.killpg(process.pid, signal.SIGKILL)
                print(f"killed behind line {lines}", file=sys.stderr)
                break
            time.sleep(0.05)


def repeated(results: Path) -> list[str]:
    """Tasks that a results file holds more than once."""
    lines = [line for line in read_lines(str(results)) if line["kind"] == "visit"]
    done = [f"{line['task']} {line['round']}" for line in lines]
    return sorted({task for task in done if done.count(task) > 1})


def main() -> int:
    """0 done, 2 bad input, 3 the engine is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    make = commands.add_parser("prepare")
    make.add_argument("-o", "--output", default="campaign.tar.gz")
    make.add_argument("--device", required=True, help="its name in a target, such as h100")
    make.add_argument("--runtime", default="tensorrt")
    judge = commands.add_parser("report")
    judge.add_argument("folder")
    try_out = commands.add_parser("rehearse")
    try_out.add_argument("--backend", default="fake", choices=("fake", "tensorrt"))
    try_out.add_argument(
        "--device", default="rehearsal", help="one with a data sheet can be trained"
    )
    try_out.add_argument("--python", default=sys.executable, help="the Python that measures")
    try_out.add_argument("--budget", default="60s")
    try_out.add_argument("--folder")
    for sub in (make, try_out):
        sub.add_argument("--precisions", default="fp16,fp32")
        sub.add_argument("--limit", type=int, help="only so many networks")
    arguments = parser.parse_args()
    command = {"prepare": prepare, "report": report, "rehearse": rehearse}[arguments.what]
    try:
        return command(arguments)
    except HybridlatError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
