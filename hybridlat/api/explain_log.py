"""What a log of trtexec settles of a latency: the number, and the circumstances of its run.

The clock that a log prints is the highest that the board has, whatever its mode (an AGX Xavier in a
mode of 15 W prints 1.377 GHz). So it rules out faster modes alone. A run is bound by enqueueing
above 0.8 of the GPU's time, which is where trtexec warns (sampleReporting.cpp).

What is not settled the log may still tell, by how much single runs vary: by 0.1 to 10 % in seven
logs from public issues, by 28 % in one that waits for its host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import NormalDist

from hybridlat.api.arguments import Query
from hybridlat.engines import device_sheets
from hybridlat.errors import InputError
from hybridlat.measuring.tables import board_of, held_on, in_mode
from hybridlat.onnx_io import Shapes
from hybridlat.schema.names import MODES, engine_text
from hybridlat.schema.target import Target
from hybridlat.store.importers.cells import Refusal, target_of
from hybridlat.store.importers.trtexec_log import TrtexecLog, read_runs, with_builds
from hybridlat.store.importers.trtexec_options import text_of

_BOUND, _SAME_CLOCK = 0.8, 1.05
# Of ln(standard deviation of ln(latency) of single runs), on a quiet machine and on a busy one.
_QUIET, _SHAKEN = NormalDist(math.log(0.01), 1.2), NormalDist(math.log(0.2), 0.8)
_BUSY_SHAKEN, _ELSE_SHAKEN, _LEAST_SPREAD = 0.75, 0.05, 1e-4  # it may slow all runs alike
REPLAYED = "replayed from a CUDA graph"


@dataclass(frozen=True)
class Circumstance:
    """How a network may run; ``work`` times as long where work alone decides, else 0."""

    kind: str
    text: str
    target: Target
    query: Query
    work: float = 0.0
    is_replayed: bool = False


@dataclass(frozen=True)
class Run:
    """What was measured: ``gpu_us`` is the median of GPU Compute Time, or of no log a number."""

    gpu_us: float
    target: Target
    log: TrtexecLog = field(default_factory=TrtexecLog)

    @property
    def spread(self) -> float | None:
        """The standard deviation of ln(latency of single inferences), by their upper tail.

        None where no log states it, or the GPU waits for its host, which varies by itself.
        """
        if self.log.upper_us is None or self.enqueue_us:
            return None
        share, us = self.log.upper_us
        return max(math.log(us / self.gpu_us) / NormalDist().inv_cdf(share), _LEAST_SPREAD)

    def odds(self, kind: str) -> float:
        """How likely a spread is in a circumstance, against what is usual."""
        if self.spread is None:
            return 1.0
        often, at = _BUSY_SHAKEN if kind == "busy" else _ELSE_SHAKEN, math.log(self.spread)
        mixed = often * _SHAKEN.pdf(at) + (1 - often) * _QUIET.pdf(at)
        return 2 * mixed / (_SHAKEN.pdf(at) + _QUIET.pdf(at))

    @property
    def copies_us(self) -> float:
        """What the median of ``Latency`` has above that of the GPU."""
        return max(self.log.medians_us.get("Latency", 0.0) - self.gpu_us, 0.0)

    @property
    def enqueue_us(self) -> float:
        """The time of enqueueing, where the GPU waits for it; else 0."""
        us = 0.0 if self.log.labels.get("note") else self.log.medians_us.get("Enqueue Time", 0.0)
        return us if us > _BOUND * self.gpu_us else 0.0

    @property
    def settled(self) -> set[str]:
        """The kinds of circumstances that the log states or excludes."""
        log, sized = self.log, self.log.shapes or self.log.batch
        kinds: dict[str, object] = {"host copies": log.median_us, "batch": sized, "size": sized}
        kinds["launches"] = log.labels.get("note") or "Enqueue Time" in log.medians_us
        kinds["precision"] = "precision" in log.fields and not log.is_typed
        kinds["power mode"] = log.power_mode.strip("0123456789")
        return {kind for kind, stated in kinds.items() if stated}

    def allows(self, target: Target) -> bool:
        """Whether the board's highest clock reaches that of a mode."""
        most_hz = self.log.clocks_hz[0]
        return most_hz is None or clock_hz(target) <= most_hz * _SAME_CLOCK

    def stated(self, written: Target, query: Query, shapes: Shapes) -> Iterator[Circumstance]:
        """What the log states otherwise than ``written`` and ``shapes``, one on the other."""
        own, target = written, self.target
        if not self.allows(target):
            target = max(filter(self.allows, modes_of(target)), key=clock_hz, default=target)
        boards = {MODES.sub("", one.device) for one in (own, target)}
        moved = "device" if len(boards) > 1 else "power mode"
        for kind, part, text in (
            ("engine", "runtime", f"under {engine_text(target.runtime)}"),
            (moved, "device", f"on {target.device}"),
            ("precision", "precision", f"computed in {target.precision.upper()}"),
        ):
            if getattr(target, part) != getattr(own, part):
                own = Target(**{**asdict(own), part: getattr(target, part)})
                yield Circumstance(kind, text, own, query)
        if self.log.labels.get("note"):
            yield Circumstance("launches", REPLAYED, own, query, is_replayed=True)
        sized = dict(shapes)
        for name, shape in shapes.items():  # of one input whatever it is called
            only = [*self.log.shapes.values()] if len(shapes) == len(self.log.shapes) == 1 else []
            implicit = (self.log.batch or shape[0], *shape[1:]) if shape else shape
            sized[name] = self.log.shapes.get(name, only[0] if only else implicit)
        if sized != shapes:
            first = next(sized[name] for name, shape in shapes.items() if sized[name] != shape)
            is_batch = all(sized[name][1:] == shape[1:] for name, shape in shapes.items())
            text = f"at batch {first[0]}" if is_batch else f"at {'×'.join(map(str, first))}"
            work = math.prod(chain(*sized.values())) / math.prod(chain(*shapes.values()))
            other = replace(query, batch=None, shapes=sized)
            yield Circumstance("batch" if is_batch else "size", text, own, other, work)


def clock_hz(target: Target) -> float:
    """The clock of a board's mode."""
    return device_sheets.load(target.device).clock_hz


def modes_of(target: Target) -> list[Target]:
    """The same board in each of its modes."""
    names, board = device_sheets.names(), MODES.sub("", target.device)
    return [replace(target, device=name) for name in names if MODES.sub("", name) == board]


def require_gpu(file: str | Path, own: Target) -> None:
    """InputError where a file of trtexec, which runs on GPUs, is to explain a CPU."""
    if own.threads is not None:
        raise InputError(f"{file} is of trtexec, a GPU's, and {own} is a CPU's: correct --target")


def read_run(file: Path, own: Target) -> Run:
    """The run that a log holds beside its build; InputError for none, several, or no latency."""
    require_gpu(file, own)
    try:
        runs = with_builds([(file, run, None) for run in read_runs(text_of(file))])
        timed = [run for run in runs if run[1].median_us] or runs  # one may have failed before
        (_, log, _), *others = timed
        why = log.objection.reason if log.objection else "no median of GPU Compute Time"
        if others or log.median_us is None:
            why = f"{1 + len(others)} runs" if others else why
            raise InputError(f"{file} is no whole log of one run of trtexec: {why}")
        target = target_of(log.fields, own)
        if name := log.fields.get("device", ""):
            try:
                device, _ = board_of(name, *log.board, own.device)
            except Refusal:  # it may be a board that is another
                device, _ = board_of(name, *log.board, "")
            target = replace(target, device=device)
        target = replace(target, device=in_mode(target.device, log.power_mode))
    except Refusal as refusal:
        raise InputError(f"{file}: {refusal.reason} ({refusal.value}); {refusal.fix}") from None
    if target.device != own.device and target.device not in device_sheets.names():
        raise InputError(f"{file} is of {target.device}, which has no data sheet to predict it by")
    if log.is_typed or (target.precision, own.precision) == ("fp32", "tf32"):
        target = replace(target, precision=own.precision)  # FP32 on tensor cores is TF32
    objection = log.objection or held_on(target, log.labels)
    return Run(log.median_us, target, replace(log, objection=objection))
