"""A target, device × runtime (with version) × precision; and its device as the model sees it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import msgspec

from hybridlat.errors import TargetError

TENSORRT = ("tensorrt", "tensorrt-rtx", "paddle-tensorrt", "onnxruntime-tensorrt", "torch-tensorrt")
"""Engines whose kernels are TensorRT's."""
STRICT, FP16_IN_FP16 = "fp32-strict", "fp16_in_fp16"
"""Names of peaks beside those of precisions that all engines know alike."""
CACHE_BYTES_PER_CYCLE = 20
"""What a multiprocessor reads from the last cache: 2,155 GB/s in a V100 of 1.38 GHz, 1,270 in a T4
(Jia et al. 2018 and 2019, "Dissecting the NVIDIA Volta", "Turing T4")."""
LAUNCHES_AT_HZ = 1.53e9
"""The clock of the boards that sheets' launches were seen on; those of others follow theirs."""
_FLOPS, _LAUNCH_US = (1e8, 1e18), (0.01, 1e4)
BOUNDS: Mapping[str, tuple[float, float]] = {
    "peak_flops": _FLOPS, "sustained_flops": _FLOPS, "bandwidth_bytes_per_s": (1e8, 1e15),
    "units": (1, 100_000), "clock_hz": (1e6, 2e10), "cache_bytes": (2.0**10, 2.0**40),
    "kept_share": (0, 1), "memory_bytes": (2.0**20, 2.0**50), "launch_us": _LAUNCH_US,
    "enqueue_us": _LAUNCH_US, "power_w": (0.01, 1e5),
}  # fmt: skip
"""What any device has, from a microcontroller to a machine room; beyond it a number is damaged."""


def implausible(name: str, value: object, low: float, high: float) -> str:
    """The first number that no device has, in words; else empty. A clock of 0 is an unknown one."""
    of = value if isinstance(value, Mapping) else {}
    each = {f"{name}.{part}": x for part, x in of.items()} or {name: value}
    for part, parts in each.items():
        for x in parts if isinstance(parts, list | tuple) else (parts,):
            is_number = isinstance(x, int | float) and not ("clock" in name and x == 0)
            if is_number and not low <= x <= high:
                shown = f"{x:g}" if isinstance(x, float) or abs(x) < 1e15 else "too large"
                return f"{part} is {shown}, but must be {low:g} to {high:g}"
    return ""


@dataclass(frozen=True)
class Device:
    """The few numbers of a data sheet (or of a micro-benchmark) that features are made from.

    ``peak_flops`` is FLOP per second by precision (a multiply-add counts two), dense, without
    structured sparsity, and under ``fp16_in_fp16`` that of FP16 with FP16 accumulation where it
    differs; ``bandwidth_bytes_per_s`` that of the main memory; ``units`` the streaming
    multiprocessors of a GPU or the cores of a CPU that one inference may use; ``clock_hz`` the
    highest clock; ``cache_bytes`` from the nearest cache to the last (per unit, shared last).
    ``kept_share`` is how much of a time in memory the last cache spares what would fit into it and
    the kernel before left there (0..1). ``launch_us`` is what one small kernel of many enqueued
    ones takes, None where it is unknown (a CPU launches nothing), ``enqueue_us`` that under
    TensorRT where slow cores of the host enqueue it. ``sustained_flops`` is what large matrix
    products reach by precision, where it was measured: less than the peak where the power limit
    lowers the clock. ``name`` is that of targets, ``title`` the maker's; ``kind`` is ``gpu`` or
    ``cpu``. ``architecture``, ``compute_capability`` and ``memory_bytes`` are stated where they are
    known; ``shares_memory`` with its host, as Jetsons do; ``power_w`` is the most that the board
    takes; ``memory_clock_hz`` is as nvidia-smi counts. ``source`` is where the numbers come from.
    """

    name: str
    kind: Literal["gpu", "cpu"]
    peak_flops: Mapping[str, float]
    bandwidth_bytes_per_s: float
    units: int
    clock_hz: float
    cache_bytes: tuple[int, ...] = ()
    kept_share: float = 0.5
    source: str = ""
    title: str = ""
    architecture: str = ""
    compute_capability: str = ""
    memory_bytes: int | None = None
    launch_us: float | None = None
    enqueue_us: float | None = None
    sustained_flops: Mapping[str, float] = field(default_factory=dict)
    shares_memory: bool = False
    power_w: float | None = None
    memory_clock_hz: float | None = None

    @classmethod
    def from_mapping(cls, stated: Mapping[str, Any]) -> "Device":
        """The device that ``dataclasses.asdict`` made a mapping of, in this version or another."""
        device = msgspec.convert(stated, cls)
        problems = (implausible(name, getattr(device, name), *BOUNDS[name]) for name in BOUNDS)
        lacks = "" if "fp32" in device.peak_flops else "peak_flops lacks fp32"
        if problem := next(filter(None, problems), lacks):
            raise ValueError(problem)
        return device

    def under(self, engine: str) -> "Device":
        """The device with the peaks that an engine's arithmetic has, its launches and caches.

        TensorRT multiplies FP32 in TF32 where tensor cores can (TensorRT developer guide, "TF32
        inference"), and its FP16 kernels accumulate in FP16, at twice the rate on GeForce boards.
        What is sustained was measured with other arithmetic, and is not known then. Tensors pass
        from kernel to kernel through the last cache, at its speed (``CACHE_BYTES_PER_CYCLE``).
        Boards of a higher clock launch quicker, by its power 1.5, and stand in newer hosts; those
        that share their memory with the host are as quick as its cores.
        """
        if engine not in TENSORRT:
            return self
        better = {
            precision: self.peak_flops[arithmetic]
            for precision, arithmetic in (("fp32", "tf32"), ("fp16", FP16_IN_FP16))
            if self.peak_flops.get(arithmetic, 0.0) > self.peak_flops.get(precision, 0.0)
        }
        memory = self.bandwidth_bytes_per_s
        cache = CACHE_BYTES_PER_CYCLE * self.units * self.clock_hz
        share = 1 - memory / max(memory, cache)
        strict = {STRICT: self.peak_flops["fp32"]} if better else {}
        peaks = {**self.peak_flops, **strict, **better}
        sustained = {p: flops for p, flops in self.sustained_flops.items() if p not in better}
        launch_us = self.enqueue_us or self.launch_us
        if launch_us and not self.shares_memory:
            launch_us *= min(1.0, LAUNCHES_AT_HZ / max(self.clock_hz, 1.0)) ** 1.5
        return replace(
            self, peak_flops=peaks, sustained_flops=sustained, launch_us=launch_us, kept_share=share
        )

    def peak(self, precision: str) -> float:
        """FLOP per second at a precision; FP32's where the sheet has none of its own."""
        return self.peak_flops[self._unit(precision)]

    def known_peak(self, precision: str) -> float | None:
        """The same; None for a CPU, whose FP32 peak bounds no narrower numbers."""
        unit = self._unit(precision)
        return self.peak_flops[unit] if unit == precision or self.kind == "gpu" else None

    def sustained_share(self, precision: str) -> float:
        """What is left of ``peak`` in large matrix products (0..1); 1 where it is unknown."""
        unit = self._unit(precision)
        if unit == "int8" and unit not in self.sustained_flops:
            unit = self._unit("fp16")  # the same tensor cores under the same power limit
        peak = self.peak_flops[unit]
        return min(1.0, self.sustained_flops.get(unit, peak) / peak)

    def _unit(self, precision: str) -> str:
        unit = "fp16" if precision == "amp" else precision
        return unit if unit in self.peak_flops else "fp32"


PRECISIONS = ("fp32", "fp32-strict", "tf32", "fp16", "bf16", "amp", "int8")
"""``fp32`` is what an engine makes of FP32 unless it is asked otherwise: under TensorRT products in
TF32 where there are tensor cores for it, which ``fp32-strict`` switches off. ``amp`` is a
framework's automatic mix: FP32 weights, products in FP16."""
PART = re.compile(r"[a-z0-9][a-z0-9._+-]*")
# A version begins with a digit (2.4, 8.0, 2020), or is the container that an engine came in, or
# what timed it where that is part of the latency.
_HARNESSES = "ngc|mlperf|trtutils|ultralytics|efficientvit|mmdeploy|jetson-inference"
VERSION = re.compile(rf"-([0-9][0-9.]*(?:-[a-z][a-z0-9]*)?|{_HARNESSES})$")
_HINT = "write it as device/runtime[-version]/precision[/Nt], for example h100/tensorrt-8.6/fp16"


@lru_cache(maxsize=1024)
def version_key(version: str) -> tuple[int, ...]:
    """``8.6.1`` as numbers, so that 10 is above 8; of ``10-ultralytics`` those in front."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


@dataclass(frozen=True, slots=True)
class Target:
    """``h100/tensorrt-8.6/fp16`` or ``xeon-8481c/onnxruntime-1.31/fp32/1t``.

    ``runtime`` carries its version where it is known (``tensorrt-8.6``, or just ``tensorrt``);
    ``threads`` is None where the ``device`` decides. ``precision`` is that of the arithmetic.
    """

    device: str
    runtime: str
    precision: str
    threads: int | None = None

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> "Target":
        """Read a target as written by ``str(target)``; TargetError says what is wrong."""
        parts = text.strip().split("/")
        if len(parts) not in (3, 4) or not all(PART.fullmatch(part) for part in parts[:2]):
            raise TargetError(f"{text[:100]!r} is not a target: {_HINT}")
        if parts[2] not in PRECISIONS:
            raise TargetError(
                f"{parts[2][:60]!r} is not a precision in {text[:100]!r}: choose one of "
                + ", ".join(PRECISIONS)
            )
        if parts[3:] and not re.fullmatch(r"[1-9][0-9]{0,3}t", parts[3]):
            raise TargetError(
                f"{parts[3][:60]!r} is not a thread count in {text[:100]!r}: write 1t, 2t …"
            )
        threads = int(parts[3][:-1]) if parts[3:] else None
        return cls(parts[0], parts[1], parts[2], threads)

    def __lt__(self, other: "Target") -> bool:
        """Orders targets part by part; one without threads comes before those that state them."""
        own, theirs = ((t.device, t.runtime, t.precision, t.threads or 0) for t in (self, other))
        return own < theirs

    def __str__(self) -> str:
        tail = f"/{self.threads}t" if self.threads is not None else ""
        return f"{self.device}/{self.runtime}/{self.precision}{tail}"

    @property
    def engine(self) -> str:
        """The runtime without its version: ``tensorrt``, ``torch-compile``."""
        return VERSION.sub("", self.runtime)

    @property
    def version(self) -> str:
        """The runtime's version (``8.6``, ``2020``, ``ngc``), empty where it is not stated."""
        match = VERSION.search(self.runtime)
        return match[1] if match else ""

    @property
    def harness(self) -> str:
        """What timed a published table, where the version ends with its name (``trtutils``)."""
        return self.version.lstrip("0123456789.").removeprefix("-")

    @property
    def plain(self) -> "Target":
        """The target whatever timed it: ``tensorrt`` of ``tensorrt-trtutils``."""
        harness = self.harness
        return replace(self, runtime=self.runtime.removesuffix(f"-{harness}")) if harness else self

    @property
    def folder(self) -> str:
        """The target as one file name: ``h100_tensorrt-8.6_fp16``."""
        return str(self).replace("/", "_")
