"""Broken and odd logs of trtexec and files of times: seeded mutations of folders of both."""

import functools
import json
import random
import tempfile
from pathlib import Path

from hybridlat.measuring import tables
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from hybridlat.store.importers.trtexec_log import read_logs
from tests.fuzz.mutations import Files, damaged, odd_json, write
from tests.networks import conv_relu

COMMAND = "&&&& RUNNING TensorRT.trtexec [TensorRT v{tag}] # trtexec --onnx=net.onnx{options}\n"
LOG = """\
[I] Max batch: explicit batch
[I] Precision: FP32+FP16
[I] Selected Device: {device}
[I] SMs: {units}
[I] TensorRT version: {version}
[I] Input binding for x with dimensions 1x4x16x16 is created.
[I] GPU Compute Time: min = 1.1 ms, max = 1.9 ms, mean = 1.3 ms, median = {median} ms
&&&& PASSED TensorRT.trtexec
"""
LOG_7 = """\
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
FACTS = {"tag": "8601", "version": "8.6.1", "device": "Tesla T4", "units": "40", "median": "1.2"}
NUMBERS = ("nan", "inf", "-1", "0", "1e400", "9" * 400, "1,2", "1.234,5", "1e-9", "x", "", "1_2")


def made(number: int, rng: random.Random) -> tuple[str, Files]:
    text = (COMMAND + rng.choice((LOG, LOG, LOG_7))).format(**FACTS, options=" --fp16")
    timed = (COMMAND + LOG).format(**FACTS, options=" --fp16 --exportTimes=out/t.json")
    times = [{"computeMs": 1.2 + rng.random() / 10, "latencyMs": 2} for _ in range(9)]
    files = {"a.log": text.encode(), "b.log": timed.encode(), "t.json": json.dumps(times).encode()}
    mutate = (odd_file, odd_file, two_owners)[number % 3]
    return f"{number}-{mutate.__name__}", mutate(files, rng)


@functools.cache
def _networks() -> tables.NetworkFiles:
    folder = Path(tempfile.mkdtemp())
    (folder / "net.onnx").write_bytes(to_onnx(conv_relu(), seed=None))
    return tables.NetworkFiles(folder)


def attempt(label: str, data: Files, folder: Path) -> str:
    """Import the folder: what comes in is a latency, of two owners' sound logs on their device."""
    write(folder, data)
    read = read_logs([folder], None, tables.board_of)
    imported, refused = tables.take(read.rows, _networks(), lambda *_: None)
    records = imported.measurements
    read.refused.extend(refused)
    with Store("sqlite://") as store:
        store.add_all(imported)
        if store.check():
            return "wrong store"
    for record in records:
        samples = [us for visit in record.visits for us in visit.samples_us]
        if not all(0 < us < 1e12 for us in (*samples, record.latency_us or 0.0)):
            return f"wrong latency {record.latency_us}"
        if label.endswith("two_owners") and str(record.target) != "t4/tensorrt-8.6/fp16":
            return f"wrong target {record.target}"
    places = [row.where for row in read.rows] + [refusal.where for refusal in read.refused]
    lost = set(data).difference([place.partition(",")[0] for place in places])
    lost -= {"b.log", "t.json"}
    return f"wrong: {lost} is not named" if lost else "answered" if records else "refused"


def odd_file(files: Files, rng: random.Random) -> Files:
    """Bytes, lines, the encoding or a number of one of them another, beside the others or alone."""
    name = rng.choice(sorted(files))
    text = files[name].decode()
    lines = rng.sample(text.splitlines(keepends=True), len(text.splitlines()))
    numbers = text
    for number in rng.sample(("1.1", "1.9", "1.2", "40", "16", "8601", "8.6"), 2):
        numbers = numbers.replace(number, rng.choice(NUMBERS))
    encoding = rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32"))
    odd = [damaged(files[name], rng), text.encode(encoding), numbers.encode()]
    odd.append(odd_json(files[name], rng) if name == "t.json" else "".join(lines * 2).encode())
    return rng.choice((files, {})) | {name: rng.choice(odd)}


def two_owners(files: Files, rng: random.Random) -> Files:
    return files | {"c.log": files["b.log"] * rng.choice((1, 2))}
