"""Broken and odd logs of trtexec and files of times: seeded mutations of folders of both."""

from __future__ import annotations

import functools
import json
import math
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.measuring import tables
from hybridlat.measuring.tables import board_of
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.target import PRECISIONS
from hybridlat.store import Store
from hybridlat.store.importers.trtexec_log import read_logs
from tests.fuzz.mutations import cut_short, flip_bytes
from tests.networks import conv_relu

COMMAND = "&&&& RUNNING TensorRT.trtexec [TensorRT v{tag}] # trtexec --onnx=net.onnx{options}\n"
LOG = (
    COMMAND
    + """\
[I] Max batch: explicit batch
[I] Precision: FP32+FP16
[I] Selected Device: {device}
[I] SMs: {units}
[I] TensorRT version: {version}
[I] Input binding for x with dimensions 1x4x16x16 is created.
[I] GPU Compute Time: min = 1.1 ms, max = 1.9 ms, mean = 1.3 ms, median = {median} ms
&&&& PASSED TensorRT.trtexec
"""
)
LOG_7 = (
    COMMAND
    + """\
[I] Selected Device: {device}
[I] SMs: {units}
[I] Host Latency
[I] median: 9.5 ms (end to end 9.6 ms)
[I] GPU Compute
[I] min: 1.1 ms
[I] max: 1.9 ms
[I] mean: 1.3 ms
[I] median: {median} ms
"""
)
FACTS = {"tag": "8601", "version": "8.6.1", "device": "Tesla T4", "units": "40", "median": "1.2",
         "options": " --fp16"}  # fmt: skip
VERSIONS = (("7103", "7.1.3"), ("8601", "8.6.1"), ("100300", "10.3.0"), ("110201", "11.2.1"))
DEVICES = (("Tesla T4", "40", "t4"), ("Orin", "16", "orin-agx"), ("Orin", "8", ""),
           ("Orin", "14", "orin-agx-32gb"), ("Xavier", "6", "xavier-nx"), ("Xavier", "7", ""),
           ("NVIDIA H100 PCIe", "114", "h100-pcie"), ("NVIDIA L4", "58", "l4"))  # fmt: skip
PRECISIONS_OF = ((" --fp16", "fp16"), (" --int8 --fp16", "int8"), ("", "fp16"), (" --fp8", ""),
                 (" --bf16 --fp16", ""), (" --best", ""), (" --fp16 --noTF32", "fp16"))  # fmt: skip
OTHERS = ("useDLACore=0", "streams=4", "infStreams=8", "sparsity=force", "dumpProfile", "unknown=1",
          "layerPrecisions=*:fp32", "directIO", "idleTime=9", "heuristic")  # fmt: skip
NUMBERS = ("nan", "inf", "-1", "0", "1e400", "9" * 400, "1,2", "1.234,5", "1e-9", "x", "", "1_2")
VALUES: tuple[object, ...] = (
    math.nan,
    math.inf,
    -1.0,
    0,
    1e308,
    10**400,
    "1",
    None,
    [],
    {},
    True,
    1.25,
)


@dataclass(frozen=True)
class Folder:
    """Files by name, and what may come of them: ``expected`` devices and precisions."""

    files: dict[str, bytes]
    expected: frozenset[str] | None = None


Mutation = Callable[[Folder, random.Random], Folder]


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, Folder]]:
    """The folders of these numbers with a name each: mutations take turns."""
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        mutate = MUTATIONS[number % len(MUTATIONS)]
        text = rng.choice((LOG, LOG, LOG_7)).format(**FACTS)
        times = [{"computeMs": 1.2 + rng.random() / 10, "latencyMs": 2} for _ in range(9)]
        timed = LOG.format(**{**FACTS, "options": " --fp16 --exportTimes=out/t.json"})
        folder = Folder({"a.log": text.encode(), "b.log": timed.encode(),
                         "t.json": json.dumps(times).encode()})  # fmt: skip
        yield f"{number}-{mutate.__name__}", mutate(folder, rng)


@functools.cache
def _networks() -> tables.NetworkFiles:
    folder = Path(tempfile.mkdtemp())
    (folder / "net.onnx").write_bytes(to_onnx(conv_relu(), seed=None))
    return tables.NetworkFiles(folder)


def attempt(label: str, data: Folder, folder: Path) -> str:
    """Import the folder: what comes in is a latency, on the device that its log states."""
    for name, content in data.files.items():
        (folder / name).write_bytes(content)
    read, records = read_logs([folder], None, board_of), []
    with Store("sqlite://") as store:
        for imported, refused in tables.take(read.rows, _networks()):
            store.add_all(imported)
            records += imported.measurements
            read.refused.extend(refused)
        if store.check():
            return "wrong store"
    for record in records:
        samples = [us for visit in record.visits for us in visit.samples_us]
        if not all(0 < us < 1e12 for us in (*samples, record.latency_us or 0.0)):
            return f"wrong latency {record.latency_us}"
        target = record.target
        if data.expected is not None and f"{target.device}/{target.precision}" not in data.expected:
            return f"wrong target {target}"
    names = [row.where.partition(",")[0] for row in read.rows]
    named = {*names, *(refusal.where.partition(",")[0] for refusal in read.refused)}
    lost = {name for name in data.files if name not in named} - {"b.log", "t.json"}
    return f"wrong: {lost} is not named" if lost else "answered" if records else "refused"


def _of_logs(change: Callable[[bytes, random.Random], bytes]) -> Mutation:
    def mutate(folder: Folder, rng: random.Random) -> Folder:
        name = rng.choice(sorted(folder.files))
        return replace(folder, files={**folder.files, name: change(folder.files[name], rng)})

    mutate.__name__ = change.__name__
    return mutate


def splice(data: bytes, rng: random.Random) -> bytes:
    start, other = rng.randrange(len(data)), rng.randrange(len(data))
    return data[:start] + data[other : other + rng.randrange(1, 200)] + data[start:]


def insert(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    odd = (b"\0", b"\n" * 500, b"x" * 50_000, b"9" * 500, b"[" * 50_000, b"\xff\xfe", b"\x1b[31m")
    return data[:start] + rng.choice(odd) + data[start:]


def shuffle_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines[rng.randrange(2) :] * rng.choice((1, 1, 2)))


def other_coding(data: bytes, rng: random.Random) -> bytes:
    return data.decode().encode(rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32")))


def odd_number(data: bytes, rng: random.Random) -> bytes:
    text = data.decode()
    for number in rng.sample(("1.1", "1.9", "1.2", "40", "16", "8601", "8.6"), 2):
        text = text.replace(number, rng.choice(NUMBERS))
    return text.encode()


def change_times(folder: Folder, rng: random.Random) -> Folder:
    times = json.loads(folder.files["t.json"])
    times[rng.randrange(9)]["computeMs"] = rng.choice(VALUES)
    if rng.random() < 0.3:
        times = rng.choice((times[0], [times], [], [[]], {"a": times}, times * 2, [*times, 1]))
    return replace(folder, files={**folder.files, "t.json": json.dumps(times).encode()})


def two_owners(folder: Folder, rng: random.Random) -> Folder:
    files = {**folder.files, "c.log": folder.files["b.log"] * rng.choice((1, 2))}
    return replace(folder, files=files, expected=frozenset(("t4/fp16",)))


def change_meaning(folder: Folder, rng: random.Random) -> Folder:
    device, units, board = rng.choice(DEVICES)
    options, precision = rng.choice(PRECISIONS_OF)
    (tag, version), other = rng.choice(VERSIONS), rng.choice(OTHERS)
    is_other = rng.random() < 0.3
    words = [options, *[f" --{other}"] * is_other]
    rng.shuffle(words)
    text = LOG.format(**{**FACTS, "device": device, "units": units, "options": "".join(words),
                         "tag": tag, "version": version})  # fmt: skip
    if version.startswith("11.") and options not in (" --fp8", " --best"):
        precision = "fp32-strict" if "noTF32" in options else "fp32"  # that of the file
    is_expected = board and precision and not is_other
    expected = frozenset([f"{board}/{precision}"] if is_expected else [])
    assert not is_expected or precision in PRECISIONS
    return replace(folder, files={"a.log": text.encode()}, expected=expected)


MUTATIONS: tuple[Mutation, ...] = (
    *map(_of_logs, (cut_short, flip_bytes, splice, insert, shuffle_lines, other_coding,
                    odd_number)),
    change_times, two_owners, change_meaning, change_meaning,
)  # fmt: skip
