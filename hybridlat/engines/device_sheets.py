"""Devices by name: data sheets (TOML) read with their mistakes named, else a micro-benchmark."""

import time
import timeit
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NoReturn

import msgspec

from hybridlat import onnx_io
from hybridlat.engines import host
from hybridlat.errors import TargetError
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.schema.files import read_bytes
from hybridlat.schema.names import own_sheets, user_folder
from hybridlat.schema.plugins import shipped_files, shipped_table
from hybridlat.schema.target import BOUNDS, FP16_IN_FP16, PRECISIONS, Device, Target, implausible

_SHIPPED = shipped_files("devices", ".toml")
# Tables by precision; ``fp16_in_fp16`` is no precision of a target, but a rate of FP16.
_RATES = {"peak_tflops": (*PRECISIONS, FP16_IN_FP16), "sustained_tflops": PRECISIONS}
# Keys by what a device calls them, with the unit of the key.
_FIELDS = {
    "units": ("units", 1), "clock_mhz": ("clock_hz", 1e6), "memory_gb": ("memory_bytes", 2**30),
    "bandwidth_gb_per_s": ("bandwidth_bytes_per_s", 1e9), "peak_tflops": ("peak_flops", 1e12),
    "sustained_tflops": ("sustained_flops", 1e12), "cache_kib": ("cache_bytes", 2**10),
    "launch_us": ("launch_us", 1), "enqueue_us": ("enqueue_us", 1),
    "tensor_clock_mhz": ("clock_hz", 1e6), "power_w": ("power_w", 1),
}  # fmt: skip
_BOUNDS = {key: (BOUNDS[name][0] / x, BOUNDS[name][1] / x) for key, (name, x) in _FIELDS.items()}
_BOUNDS |= {"bus_bits": (1, 1e6), "data_rate_gbit_per_s": (0.01, 1e4), "cores_per_unit": (1, 1e5)}
_RATIOS = {
    "peak_tflops.fp32 / (units x clock_mhz)": (8, 2000, "FLOP of a unit in a cycle"),
    "peak_tflops.fp32 / bandwidth_gb_per_s": (0.5, 1000, "FLOP a byte"),
    "memory_gb / bandwidth_gb_per_s": (5e-4, 10, "seconds to read it"),
}
"""What GPUs have, with room: the shipped ones 21 to 384, 3.9 to 113, 0.014 to 0.5."""
_MOST_BYTES = 1 << 20
_Text = Annotated[str, msgspec.Meta(min_length=1)]  # msgspec frees a pattern in a union wrongly


class _Sheet(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of a sheet, each with its unit in its name; ``cache_kib`` nearest first.

    The last four are for whoever reads a sheet. ``based_on`` names the shipped device whose keys
    hold where this sheet has none: it is a mode, a slice or a variant of that.
    """

    title: str = ""
    based_on: str = ""
    kind: Literal["gpu", "cpu"]
    architecture: str = ""
    compute_capability: str = ""
    units: int
    clock_mhz: float
    bandwidth_gb_per_s: float
    peak_tflops: dict[str, float]
    sustained_tflops: dict[str, float] = {}
    cache_kib: tuple[float, ...] = ()
    memory_gb: float | None = None
    shares_memory: bool = False
    power_w: float | None = None
    data_rate_gbit_per_s: float | None = None
    launch_us: float | None = None
    enqueue_us: float | None = None
    source: str = "not stated"
    sources: dict[str, _Text | dict[str, _Text]] = {}
    tensor_clock_mhz: float | None = None
    bus_bits: int | None = None
    cores_per_unit: int | None = None


_substitutes: ContextVar[Mapping[str, Device]] = ContextVar(
    "_substitutes", default=MappingProxyType({})
)


def names() -> tuple[str, ...]:
    """Devices that have a data sheet, in alphabetical order: given, the user's own, shipped."""
    return tuple(sorted({*own_sheets(), *_SHIPPED, *_substitutes.get()}))


def load(name: str) -> Device:
    """The device of that name (``v100``); TargetError names the choices.

    A sheet of ``with_sheet`` comes before one of the user's folder, and that before a shipped one.
    """
    if name in (substitutes := _substitutes.get()):
        return substitutes[name]
    if own := own_sheets().get(name):
        return read(own)
    if name in _SHIPPED:
        return _read_once(_SHIPPED[name])
    raise TargetError(
        f"{name!r} has no data sheet: choose one of {', '.join(names())}, "
        f"or write {user_folder() / '<name>.toml'}"
    )


def read(file: Path | str, name: str | None = None) -> Device:
    """The data sheet in ``file``, whose stem is the device's name unless there is another.

    Numbers become base units (FLOP per second, bytes, hertz). TargetError says what is wrong.
    """
    path = Path(file)
    try:
        sheet = _sheet(path)
    except OSError as error:
        _refuse(path, f"it cannot be read ({error.strerror or error})")
    except msgspec.ValidationError as error:
        why = str(error).replace("$.", "").replace("Object", "it")
        keys = f"; its keys are {', '.join(_Sheet.__struct_fields__)}" if "field" in why else ""
        _refuse(path, why + keys)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"it is not TOML ({error})")
    if "fp32" not in sheet.peak_tflops:
        _refuse(path, "it needs a table [peak_tflops] with at least fp32")
    if sheet.kind == "gpu" and not sheet.clock_mhz:
        _refuse(path, "clock_mhz is 0, but must be positive for a GPU")
    for table, known in _RATES.items():
        for precision in [p for p in getattr(sheet, table) if p not in known]:
            _refuse(path, f"{table} knows no {precision}; choose from {', '.join(known)}")
    if sheet.kind == "gpu":
        _check_ratios(path, sheet)
    device = name or path.stem
    stated = msgspec.structs.asdict(sheet)
    same = {f.name: stated[f.name] for f in fields(Device) if f.name in stated}
    return Device(
        **same | {"title": sheet.title or device},
        name=device,
        clock_hz=sheet.clock_mhz * 1e6,
        memory_clock_hz=sheet.data_rate_gbit_per_s and sheet.data_rate_gbit_per_s * 5e8,
        peak_flops={p: tflops * 1e12 for p, tflops in sheet.peak_tflops.items()},
        sustained_flops={p: tflops * 1e12 for p, tflops in sheet.sustained_tflops.items()},
        bandwidth_bytes_per_s=sheet.bandwidth_gb_per_s * 1e9,
        cache_bytes=tuple(int(kib * 1024) for kib in sheet.cache_kib),
        memory_bytes=None if sheet.memory_gb is None else int(sheet.memory_gb * 2**30),
    )


_read_once = cache(read)


def _sheet(path: Path) -> _Sheet:
    """The keys in a file, and those of the sheet that it is based on: rates by units and clock."""
    stated = tomllib.loads(read_bytes(path, _MOST_BYTES).decode("utf-8-sig"))
    _check(path, stated)
    if "based_on" not in stated:
        return msgspec.convert(stated, _Sheet)
    if (name := str(stated["based_on"])) not in _SHIPPED:
        _refuse(path, f"it is based on {name!r}, which is no shipped device")
    base = _sheet(_SHIPPED[name])
    sheet = msgspec.convert({**msgspec.structs.asdict(base), **stated}, _Sheet)
    speed = sheet.units * sheet.clock_mhz / (base.units * base.clock_mhz)
    for table in _RATES.keys() - stated.keys():
        setattr(sheet, table, {p: rate * speed for p, rate in getattr(base, table).items()})
    _check(path, {table: getattr(sheet, table) for table in _RATES})
    return sheet


def _check(path: Path, stated: Mapping[str, object]) -> None:
    """TargetError names the first number that no device has."""
    for key, (low, high) in _BOUNDS.items():
        if problem := implausible(key, stated.get(key), low, high):
            _refuse(path, problem)


def _check_ratios(path: Path, sheet: _Sheet) -> None:
    """TargetError for numbers that do not go together: one is in another unit than its key's."""
    peak_flops, bytes_per_s = sheet.peak_tflops["fp32"] * 1e12, sheet.bandwidth_gb_per_s * 1e9
    ratios = (
        peak_flops / (sheet.units * sheet.clock_mhz * 1e6),
        peak_flops / bytes_per_s,
        (sheet.memory_gb or 0.0) * 2**30 / bytes_per_s,
    )
    for ratio, (what, (low, high, unit)) in zip(ratios, _RATIOS.items(), strict=True):
        if ratio and not low <= ratio <= high:
            why = f"{what} is {ratio:.3g} {unit}, and GPUs have {low:g} to {high:g}"
            _refuse(path, f"{why}: one of these numbers is in another unit than its key's")


def _refuse(path: Path, why: str) -> NoReturn:
    raise TargetError(f"{path} is not a data sheet of a device: {why}") from None


@contextmanager
def with_sheet(device: Device) -> Iterator[None]:
    """Let a device stand for its name in this thread, and what it starts, while the block runs."""
    token = _substitutes.set({**_substitutes.get(), device.name: device})
    try:
        yield
    finally:
        _substitutes.reset(token)


def is_gpu(target: Target) -> bool:
    """Whether a target's device is a GPU, by its data sheet, or by its engine without one."""
    if target.device in names():
        return load(target.device).kind == "gpu"
    of_cpus = shipped_table("names")["words"]["surely_cpu"]
    return "tensorrt" in target.engine and set(of_cpus).isdisjoint(target.device.split("-"))


def versions_there(target: Target) -> Mapping[str, str]:
    """The ``first`` and ``last`` version of an engine that run on a GPU; "0" where none does."""
    if target.device not in names() or (device := load(target.device)).kind != "gpu":
        return {}
    runs: Mapping[str, Mapping[str, str]] = shipped_table("names")["runs"].get(target.engine, {})
    return next((v for of, v in runs.items() if device.compute_capability.startswith(of)), {})


def of_target(target: Target) -> Device:
    """The data sheet of a target's device under its engine; this machine's CPU is measured."""
    if target.device == host.cpu().name and target.device not in names():
        return probe_cpu(target.threads or 1)
    return load(target.device).under(target.engine)


def probe_cpu(threads: int = 1) -> Device:
    """This machine's CPU, measured in about a second: peak FLOP/s, bandwidth, cache sizes.

    The peak is that of the best product of two 768 x 768 matrices under ONNX Runtime. The bandwidth
    counts both sides of copies that are larger than the last cache. On one
    thread its own time counts, which others on the machine do not lengthen.
    """
    return Device(
        name=host.cpu().name,
        kind="cpu",
        title=host.cpu().model,
        units=threads,
        clock_hz=0.0,
        peak_flops={"fp32": _matmul_flops(threads)},
        bandwidth_bytes_per_s=_copy_bandwidth(),
        cache_bytes=host.cpu().cache_bytes,
        source="micro-benchmark on this machine",
    )


@cache
def _matmul_flops(threads: int, size: int = 768, repeats: int = 25) -> float:
    import numpy as np

    builder, square = NetworkBuilder("product"), (size, size)
    builder.op("MatMul", [builder.input(square), builder.constant(square)], square, 13)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        onnx_io.to_onnx(builder.network(), 0), options, providers=["CPUExecutionProvider"]
    )
    feed = {session.get_inputs()[0].name: np.random.default_rng(0).random(square, "float32")}
    timer = time.thread_time if threads == 1 else time.perf_counter
    times = timeit.repeat(lambda: session.run(None, feed), timer=timer, number=1, repeat=repeats)
    return 2.0 * size**3 / min(times)


@cache
def _copy_bandwidth(size_bytes: int = 128 * 2**20, repeats: int = 8) -> float:
    import numpy as np

    source = np.ones(size_bytes, np.uint8)
    goal = np.empty_like(source)
    times = timeit.repeat(
        lambda: np.copyto(goal, source), timer=time.thread_time, number=1, repeat=repeats
    )
    return 2.0 * size_bytes / min(times)
