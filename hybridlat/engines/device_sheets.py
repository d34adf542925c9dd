"""Devices by name: data sheets in data/devices/*.toml, and a micro-benchmark for unknown CPUs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hybridlat.engines.device_toml import read, to_toml
from hybridlat.errors import TargetError
from hybridlat.schema.device import Device
from hybridlat.schema.resources import shipped
from hybridlat.schema.target import Target

__all__ = [
    "load", "names", "of_target", "probe_cpu", "read", "to_toml", "user_folder", "with_sheet",
]  # fmt: skip

_given: ContextVar[tuple[Device, ...]] = ContextVar("_given", default=())


def _folder() -> Path:
    return shipped("data", "devices")


def user_folder() -> Path:
    """Where a user's own sheets lie; one of a shipped device's name stands in for that one."""
    from platformdirs import user_config_path

    return user_config_path("hybridlat") / "devices"


def names() -> tuple[str, ...]:
    """Devices that have a data sheet, in alphabetical order: given, the user's own, shipped."""
    stems = {file.stem for folder in (user_folder(), _folder()) for file in folder.glob("*.toml")}
    return tuple(sorted(stems | {device.name for device in _given.get()}))


def load(name_or_path: str | Path) -> Device:
    """The device of that name (``v100``), or of a data sheet (``boards/mine.toml``).

    A sheet given by ``with_sheet`` comes before one of the user's own folder, and that before one
    that is shipped. TargetError names the choices.
    """
    name = str(name_or_path)
    if isinstance(name_or_path, Path) or name.endswith(".toml"):
        return read(name_or_path)
    for device in reversed(_given.get()):
        if device.name == name:
            return device
    for folder in (user_folder(), _folder()):
        # A listing, not a path made of the name: a name is no way out of the folder.
        if name in {file.stem for file in folder.glob("*.toml")}:
            return read(folder / f"{name}.toml")
    raise TargetError(
        f"{name!r} has no data sheet: choose one of {', '.join(names())}, "
        f"or write {user_folder() / '<name>.toml'}"
    )


@contextmanager
def with_sheet(sheet: str | Path | Device, name: str | None = None) -> Iterator[Device]:
    """Let a data sheet stand for its device (its file's stem, or ``name``) while the block runs.

    ``sheet`` is a file or a device that was read before. The block's ``load``, ``names`` and
    ``of_target`` know it, in this thread and in what it starts with a copied context; nothing is
    kept afterwards. TargetError where it is no sheet.
    """
    if isinstance(sheet, Device):
        device = replace(sheet, name=name or sheet.name)
    else:
        device = read(sheet, name)
    token = _given.set((*_given.get(), device))
    try:
        yield device
    finally:
        _given.reset(token)


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
    sizes: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
            sizes[level] = int(size.rstrip("K")) * 1024 if size.endswith("K") else int(size)
        except (OSError, ValueError):
            continue
    if os.name == "posix" and sizes:
        return tuple(sizes[level] for level in sorted(sizes))
    return (32 * 1024, 1024 * 1024, 16 * 2**20)
