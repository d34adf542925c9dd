"""Devices by name: data sheets in data/devices/*.toml, and a micro-benchmark for unknown CPUs."""

from __future__ import annotations

import os
import platform
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from hybridlat.errors import TargetError
from hybridlat.schema.device import Device
from hybridlat.schema.resources import shipped
from hybridlat.schema.target import Target

_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")


def _folder() -> Path:
    return shipped("data", "devices")


def names() -> tuple[str, ...]:
    """Devices that have a data sheet, in alphabetical order."""
    return tuple(sorted(file.stem for file in _folder().glob("*.toml")))


@cache
def load(name: str) -> Device:
    """The device of that name (``v100``); TargetError names the choices."""
    if name not in names():
        raise TargetError(
            f"{name!r} has no data sheet: choose one of {', '.join(names())}, "
            "or add data/devices/<name>.toml"
        )
    return read(_folder() / f"{name}.toml")


def read(file: Path) -> Device:
    """A data sheet; TargetError says what it lacks."""
    try:
        sheet: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        peaks = {str(k): float(v) * 1e12 for k, v in sheet["peak_tflops"].items()}
        device = Device(
            name=file.stem,
            kind=sheet["kind"],
            peak_flops=peaks,
            bandwidth_bytes_per_s=float(sheet["bandwidth_gb_per_s"]) * 1e9,
            units=int(sheet["units"]),
            clock_hz=float(sheet["clock_mhz"]) * 1e6,
            cache_bytes=tuple(int(c * 1024) for c in sheet.get("cache_kib", ())),
            source=str(sheet["source"]),
            title=str(sheet["title"]),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise TargetError(f"{file} is not a data sheet of a device: {error!r}") from None
    unknown = set(peaks) - set(_PRECISIONS)
    if unknown or "fp32" not in peaks or device.kind not in ("gpu", "cpu"):
        raise TargetError(
            f"{file} is not a data sheet of a device: peak_tflops needs fp32 and knows "
            f"{', '.join(_PRECISIONS)}; kind is gpu or cpu"
        )
    return device


def of_target(target: Target) -> Device:
    """The data sheet of a target's device, or the micro-benchmark if it is this machine's CPU."""
    if target.device in names():
        return load(target.device)
    from hybridlat.engines import host

    if target.device == host.cpu_device():
        return probe_cpu(target.threads or 1)
    return load(target.device)


@cache
def probe_cpu(threads: int = 1) -> Device:
    """This machine's CPU, measured in about a second: peak FLOP/s, bandwidth, cache sizes.

    The peak is the best of several matrix products of 768 x 768 under ONNX Runtime with that many
    threads; the bandwidth counts both sides of copies that are larger than the last cache.
    """
    from hybridlat.engines import host

    return Device(
        name=host.cpu_device(),
        kind="cpu",
        peak_flops={"fp32": _matmul_flops(threads)},
        bandwidth_bytes_per_s=_copy_bandwidth(),
        units=threads,
        clock_hz=0.0,
        cache_bytes=_caches(),
        source="micro-benchmark on this machine",
        title=platform.processor() or host.cpu_device(),
    )


def to_toml(device: Device) -> str:
    """A device as the text of a data sheet, so that a measured one can be kept."""
    peaks = "\n".join(f"{k} = {v / 1e12:.6g}" for k, v in sorted(device.peak_flops.items()))
    caches = ", ".join(f"{size / 1024:g}" for size in device.cache_bytes)
    return (
        f'title = "{device.title or device.name}"\nkind = "{device.kind}"\n'
        f"bandwidth_gb_per_s = {device.bandwidth_bytes_per_s / 1e9:.6g}\n"
        f"units = {device.units}\nclock_mhz = {device.clock_hz / 1e6:.6g}\n"
        f'cache_kib = [{caches}]\nsource = "{device.source}"\n\n[peak_tflops]\n{peaks}\n'
    )


def _matmul_flops(threads: int, size: int = 768, repeats: int = 12) -> float:
    import numpy as np

    from hybridlat.graph.network import Constant, Network, Node, TensorType
    from hybridlat.onnx_io import to_onnx

    square = TensorType("float32", (size, size))
    node = Node("product", "MatMul", ("x", "w"), ("y",), version=13)
    network = Network(
        "product", (node,), ("x",), ("y",), {"x": square, "y": square}, {"w": Constant(square)}
    )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        to_onnx(network, 0), options, providers=["CPUExecutionProvider"]
    )
    feed = {session.get_inputs()[0].name: np.random.default_rng(0).random((size, size), "float32")}
    best = min(_seconds(lambda: session.run(None, feed)) for _ in range(repeats))
    return 2.0 * size**3 / best


def _copy_bandwidth(size_bytes: int = 128 * 2**20, repeats: int = 4) -> float:
    import numpy as np

    source = np.ones(size_bytes, np.uint8)
    goal = np.empty_like(source)
    best = min(_seconds(lambda: np.copyto(goal, source)) for _ in range(repeats))
    return 2.0 * size_bytes / best


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _caches() -> tuple[int, ...]:
    """Data caches from the nearest to the last, from Linux's /sys; common sizes elsewhere."""
    found: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
            found[level] = int(size.rstrip("K")) * 1024 if size.endswith("K") else int(size)
        except (OSError, ValueError):
            continue
    if os.name == "posix" and found:
        return tuple(found[level] for level in sorted(found))
    return (32 * 1024, 1024 * 1024, 16 * 2**20)
