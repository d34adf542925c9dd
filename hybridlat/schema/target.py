"""A target: device × runtime (with version) × precision, and threads on a CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from hybridlat.errors import TargetError

PRECISIONS = ("fp32", "fp32-strict", "tf32", "fp16", "bf16", "amp", "int8")
"""``fp32`` is what an engine makes of FP32 unless it is asked otherwise: under TensorRT products in
TF32 where there are tensor cores for it, which ``fp32-strict`` switches off. ``amp`` is a
framework's automatic mix: FP32 weights, products in FP16."""
PART = re.compile(r"[a-z0-9][a-z0-9._+-]*")
# A version begins with a digit (2.4, 8.0, 2020), or is the container that an engine came in, or
# what timed it where that is part of the latency.
VERSION = re.compile(r"-([0-9][0-9.]*(?:-[a-z]+)?|ngc|mlperf|trtutils|ultralytics|efficientvit)$")
_HINT = "write it as device/runtime[-version]/precision[/Nt], for example h100/tensorrt-8.6/fp16"


@lru_cache(maxsize=1024)
def version_key(version: str) -> tuple[int, ...]:
    """``8.6.1`` as numbers, so that 10 is above 8; of ``10-ultralytics`` those in front."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


@dataclass(frozen=True, slots=True, order=True)
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
    def parse(cls, text: str) -> Target:
        """Read a target as written by ``str(target)``; TargetError says what is wrong."""
        parts = text.strip().split("/")
        if len(parts) not in (3, 4) or not all(PART.fullmatch(part) for part in parts[:2]):
            raise TargetError(f"{text[:100]!r} is not a target: {_HINT}")
        if parts[2] not in PRECISIONS:
            raise TargetError(
                f"{parts[2][:60]!r} is not a precision in {text[:100]!r}: choose one of "
                + ", ".join(PRECISIONS)
            )
        threads = None
        if len(parts) == 4:
            if not re.fullmatch(r"[1-9][0-9]{0,3}t", parts[3]):
                raise TargetError(
                    f"{parts[3][:60]!r} is not a thread count in {text[:100]!r}: write 1t, 2t …"
                )
            threads = int(parts[3][:-1])
        return cls(parts[0], parts[1], parts[2], threads)

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
        word = self.version.rpartition("-")[2]
        return word if word.isalpha() else ""

    @property
    def plain(self) -> Target:
        """The target whatever timed it: ``tensorrt`` of ``tensorrt-trtutils``."""
        harness = self.harness
        return replace(self, runtime=self.runtime.removesuffix(f"-{harness}")) if harness else self

    @property
    def folder(self) -> str:
        """The target as one file name: ``h100_tensorrt-8.6_fp16``."""
        return str(self).replace("/", "_")
