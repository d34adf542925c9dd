"""Devices by name: data sheets (TOML) read with their mistakes named, else a micro-benchmark."""

from __future__ import annotations

import math
import os
import platform
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from hybridlat import onnx_io
from hybridlat.engines import host
from hybridlat.errors import TargetError
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.schema.device import Device
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import PRECISIONS, Target

_NUMBERS = {  # key -> its unit in words
    "bandwidth_gb_per_s": "GB per second", "units": "a whole number", "clock_mhz": "MHz",
    "tensor_clock_mhz": "MHz", "memory_gb": "GB", "launch_us": "microseconds",
    "bus_bits": "bits", "data_rate_gbit_per_s": "Gbit per second", "cores_per_unit": "a count",
}  # fmt: skip
_TEXTS = ("title", "kind", "architecture", "compute_capability", "source")
_RATES = ("peak_tflops", "sustained_tflops")  # tables by precision
_TABLES = (*_RATES, "cache_kib", "sources")
_SOURCED = ("architecture", "compute_capability", "cache_kib")  # beside the numbers and peaks
_KEYS = (*_TEXTS, *_NUMBERS, *_TABLES)
_WHOLE = ("units", "bus_bits", "cores_per_unit")
_OWN = "not stated"


_given: ContextVar[tuple[Device, ...]] = ContextVar("_given", default=())


def user_folder() -> Path:
    """Where a user's own sheets lie; one of a shipped device's name stands in for that one."""
    from platformdirs import user_config_path

    return user_config_path("hybridlat") / "devices"


def names() -> tuple[str, ...]:
    """Devices that have a data sheet, in alphabetical order: given, the user's own, shipped."""
    given = {device.name for device in _given.get()}
    return tuple(sorted({*_files(user_folder()), *_shipped_files(), *given}))


def _files(folder: Path) -> dict[str, Path]:
    """The data sheets in a folder by device.

    A listing, not a path made of a name: a name is no way out of the folder.
    """
    return {file.stem: file for file in folder.glob("*.toml")}


@cache
def _shipped_files() -> dict[str, Path]:
    return _files(shipped("data", "devices"))


@cache
def _shipped_device(name: str) -> Device:
    return read(_shipped_files()[name])


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
    own = user_folder()
    if name == Path(name).name and (own / f"{name}.toml").is_file():  # no way out of the folder
        return read(own / f"{name}.toml")
    if name in _shipped_files():
        return _shipped_device(name)
    raise TargetError(
        f"{name!r} has no data sheet: choose one of {', '.join(names())}, "
        f"or write {own / '<name>.toml'}"
    )


def read(file: Path | str, name: str | None = None) -> Device:
    """The data sheet in ``file``, whose stem is the device's name unless one is given.

    TargetError says in one sentence what is wrong with it. Numbers become base units (FLOP per
    second, bytes, hertz).
    """
    path = Path(file)
    try:
        sheet: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        _refuse(path, f"it cannot be read ({error.strerror or error})")
    except ValueError as error:
        _refuse(path, f"it is not TOML ({error})")
    _check_keys(path, sheet)
    kind = sheet.get("kind")
    if kind not in ("gpu", "cpu"):
        _refuse(path, f'kind is {kind!r}, but must be "gpu" or "cpu"')
    memory = _optional(path, sheet, "memory_gb")
    source = str(sheet.get("source", _OWN))
    device = name or path.stem
    return Device(
        name=device,
        kind=kind,
        peak_flops=_peaks(path, sheet),
        sustained_flops=_rates(path, sheet, "sustained_tflops"),
        bandwidth_bytes_per_s=_number(path, sheet, "bandwidth_gb_per_s") * 1e9,
        units=int(_number(path, sheet, "units")),
        clock_hz=_number(path, sheet, "clock_mhz", zero=kind == "cpu") * 1e6,
        cache_bytes=_caches(path, sheet),
        source=source,
        title=str(sheet.get("title") or device),
        architecture=str(sheet.get("architecture", "")),
        compute_capability=str(sheet.get("compute_capability", "")),
        memory_bytes=None if memory is None else int(memory * 2**30),
        launch_us=_optional(path, sheet, "launch_us"),
        sources=_sources(path, sheet, source),
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
    if target.device == host.cpu_device():
        return probe_cpu(target.threads or 1)
    return load(target.device)


@cache
def probe_cpu(threads: int = 1) -> Device:
    """This machine's CPU, measured in about a second: peak FLOP/s, bandwidth, cache sizes.

    The peak is the best of several matrix products of 768 x 768 under ONNX Runtime with that many
    threads; the bandwidth counts both sides of copies that are larger than the last cache.
    """
    return Device(
        name=host.cpu_device(),
        kind="cpu",
        peak_flops={"fp32": _matmul_flops(threads)},
        bandwidth_bytes_per_s=_copy_bandwidth(),
        units=threads,
        clock_hz=0.0,
        cache_bytes=_cache_sizes(),
        source="micro-benchmark on this machine",
        title=platform.processor() or host.cpu_device(),
    )


def _matmul_flops(threads: int, size: int = 768, repeats: int = 12) -> float:
    import numpy as np

    square = TensorType("float32", (size, size))
    node = Node("product", "MatMul", ("x", "w"), ("y",), version=13)
    network = Network(
        "product", (node,), ("x",), ("y",), {"x": square, "y": square}, {"w": Constant(square)}
    )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        onnx_io.to_onnx(network, 0), options, providers=["CPUExecutionProvider"]
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


def _cache_sizes() -> tuple[int, ...]:
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


def _refuse(path: Path, why: str) -> NoReturn:
    raise TargetError(f"{path} is not a data sheet of a device: {why}") from None


def _check_keys(path: Path, sheet: Mapping[str, Any]) -> None:
    for key, value in sheet.items():
        if key not in _KEYS:
            _refuse(path, f"{key} is no key of it; choose from {', '.join(_KEYS)}")
        if key in _NUMBERS:
            _number(path, sheet, key, zero=key == "clock_mhz")
        if key in _TEXTS and not isinstance(value, str):
            _refuse(path, f"{key} is {value!r}, but must be a text in quotes")


def _number(path: Path, sheet: Mapping[str, Any], key: str, *, zero: bool = False) -> float:
    if key not in sheet:
        _refuse(path, f"it lacks {key} ({_NUMBERS[key]})")
    value = sheet[key]
    if not _is_number(value) or value < 0 or (value == 0 and not zero):
        _refuse(path, f"{key} is {value!r}, but must be a positive number ({_NUMBERS[key]})")
    if key in _WHOLE and value != int(value):
        _refuse(path, f"{key} is {value!r}, but must be a whole number")
    return float(value)


def _optional(path: Path, sheet: Mapping[str, Any], key: str) -> float | None:
    return _number(path, sheet, key) if key in sheet else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _peaks(path: Path, sheet: Mapping[str, Any]) -> dict[str, float]:
    peaks = sheet.get("peak_tflops")
    if not isinstance(peaks, dict) or "fp32" not in peaks:
        _refuse(path, "it needs a table [peak_tflops] with at least fp32")
    return _rates(path, sheet, "peak_tflops")


def _rates(path: Path, sheet: Mapping[str, Any], table: str) -> dict[str, float]:
    """FLOP per second by precision, of a table that may be missing."""
    rates = sheet.get(table, {})
    if not isinstance(rates, dict):
        _refuse(path, f"{table} must be a table: [{table}] with one number for each precision")
    for precision, value in rates.items():
        if precision not in PRECISIONS:
            _refuse(path, f"{table} knows no {precision}; choose from {', '.join(PRECISIONS)}")
        if not _is_number(value) or value <= 0:
            _refuse(path, f"{table}.{precision} is {value!r}, but must be a positive number")
    return {precision: float(value) * 1e12 for precision, value in rates.items()}


def _caches(path: Path, sheet: Mapping[str, Any]) -> tuple[int, ...]:
    caches = sheet.get("cache_kib", [])
    if not isinstance(caches, list) or not all(_is_number(c) and c > 0 for c in caches):
        _refuse(path, f"cache_kib is {caches!r}, but must be a list of sizes in KiB, nearest first")
    return tuple(int(c * 1024) for c in caches)


def _sources(path: Path, sheet: Mapping[str, Any], source: str) -> dict[str, str]:
    """Where each number comes from: what [sources] says of it, else ``source``.

    One text for ``peak_tflops`` or ``sustained_tflops`` stands for all precisions.
    """
    stated = sheet.get("sources", {})
    if not isinstance(stated, dict):
        _refuse(path, "sources must be a table: [sources] with one text for each key")
    places = {k: source for k in sheet if k in (*_NUMBERS, *_SOURCED)}
    rates = {f"{table}.{p}": source for table in _RATES for p in sheet.get(table, ())}
    named: dict[str, object] = {}
    for key, text in stated.items():
        if key in _RATES and isinstance(text, dict):
            named.update({f"{key}.{precision}": one for precision, one in text.items()})
        elif key in _RATES:
            named.update({k: text for k in rates if k.startswith(f"{key}.")})
        else:
            named[key] = text
    sources = places | rates
    for toml_key, one in named.items():
        if toml_key not in sources:
            _refuse(path, f"sources names {toml_key}, which the sheet does not have")
        if not isinstance(one, str) or not one.strip():
            _refuse(path, f"the source of {toml_key} is {one!r}, but must be a text")
        sources[toml_key] = one
    return sources
