"""What a log of trtexec settles of a latency: the number, and the circumstances of its run.

The clock that a log prints is the highest that the board has, whatever its mode (an AGX Xavier in a
mode of 15 W prints 1.377 GHz): it rules out faster modes alone. A run is bound by enqueueing above
0.8 of the GPU's time, which is where trtexec warns (sampleReporting.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from hybridlat.api.sources import Query
from hybridlat.engines import device_sheets
from hybridlat.errors import InputError
from hybridlat.measuring.tables import MODE, board_of
from hybridlat.onnx_io import Shapes
from hybridlat.schema.target import Target
from hybridlat.store.importers.table import Refusal, target_of
from hybridlat.store.importers.trtexec_log import TrtexecLog, read_runs, text_of

_BOUND, _STEADY, _SAME_CLOCK = 0.8, 0.95, 1.05


@dataclass(frozen=True)
class Circumstance:
    """How a network may run: a kind, words, and what is predicted; ``work`` times as much is done.

    ``work`` is 0 where its latency is none of the work's alone.
    """

    kind: str
    text: str
    target: Target
    query: Query
    work: float = 0.0


@dataclass(frozen=True)
class LoggedRun:
    """A run of trtexec: ``gpu_us`` is the median of its GPU Compute Time, ``target`` the log's."""

    log: TrtexecLog
    target: Target
    gpu_us: float

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
    def is_steady(self) -> bool:
        """Whether the quickest run is hardly quicker than the median."""
        return (self.log.least_us or 0.0) > _STEADY * self.gpu_us

    @property
    def settled(self) -> set[str]:
        """The kinds of circumstances that the log states or excludes."""
        kinds = {"host copies"}
        if "precision" in self.log.fields and not self.log.is_typed:
            kinds.add("precision")
        if self.log.shapes or self.log.batch:
            kinds |= {"batch", "size"}
        if self.log.labels.get("note") or "Enqueue Time" in self.log.medians_us:
            kinds.add("launches")
        return kinds

    def allows(self, target: Target) -> bool:
        """Whether the board's highest clock reaches that of a mode."""
        most = (self.log.clock_hz or math.inf) * _SAME_CLOCK
        return device_sheets.load(target.device).clock_hz <= most

    def stated(self, asked: Target, query: Query, shapes: Shapes) -> Iterator[Circumstance]:
        """What the log states otherwise than ``asked`` and ``shapes``, each on top of the last."""
        own, target = asked, self.target
        if not self.allows(target):
            modes = [replace(target, device=name) for name in device_sheets.names()
                     if MODE.sub("", name) == MODE.sub("", target.device)]  # fmt: skip
            clocks = {one: device_sheets.load(one.device).clock_hz for one in modes}
            target = max(filter(self.allows, modes), key=clocks.__getitem__, default=target)
        moved = "power mode" if target.device != self.target.device else "device"
        for kind, part, text in (
            ("engine", "runtime", f"under {target.runtime}"),
            (moved, "device", f"on {target.device}"),
            ("precision", "precision", f"computed in {target.precision.upper()}"),
        ):
            if getattr(target, part) != getattr(own, part):
                own = Target(**{**asdict(own), part: getattr(target, part)})
                yield Circumstance(kind, text, own, query)
        stated = _by_input(self.log.shapes, shapes)
        now = next((shape[0] for shape in shapes.values() if shape), 1)
        batch = next((shape[0] for shape in stated.values() if shape), self.log.batch or now)
        if any(stated[name][1:] != shapes[name][1:] for name in stated):
            sized = {**shapes, **stated}
            work = math.prod(chain(*sized.values())) / math.prod(chain(*shapes.values()))
            text = "at " + ", ".join("×".join(map(str, shape)) for shape in stated.values())
            yield Circumstance("size", text, own, replace(query, batch=None, shapes=sized), work)
        elif batch != now:
            other = replace(query, batch=batch, shapes=None)
            yield Circumstance("batch", f"at batch {batch}", own, other, batch / now)


def _by_input(stated: Mapping[str, tuple[int, ...]], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The log's shapes by the names of the file; of one input whatever it is called."""
    if len(stated) == len(shapes) == 1:
        return dict(zip(shapes, stated.values(), strict=True))
    return {name: shape for name, shape in stated.items() if name in shapes}


def read_run(file: Path, asked: Target) -> LoggedRun:
    """The run that a log holds; InputError where it holds none or several, or states no latency."""
    try:
        runs = read_runs(text_of(file))
        log = runs[0]
        if len(runs) != 1 or log.median_us is None:
            why = f"{len(runs)} runs" if len(runs) > 1 else "no median of GPU Compute Time"
            why = log.objection.reason if log.objection and len(runs) == 1 else why
            raise InputError(f"{file} is no whole log of one run of trtexec: {why}")
        target = target_of(log.fields, asked)
        board, word = (log.fields.get("device", ""), *log.board), asked.device
        if board[0]:
            try:
                device, _ = board_of(*board, word)
            except Refusal:
                device, _ = board_of(*board, "")
            target = replace(target, device=device)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except Refusal as refusal:
        raise InputError(f"{file}: {refusal.reason} ({refusal.value}); {refusal.fix}") from None
    return LoggedRun(log, target, log.median_us)
