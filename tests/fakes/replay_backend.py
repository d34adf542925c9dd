"""Recorded measurements played back, so that a machine without the device can still judge it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, cycle, islice
from typing import Protocol as Shape

from hybridlat.engines.base import Backend, Method, Session
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Kind, Measurement
from hybridlat.schema.target import Target


class Recording(Shape):
    """What holds the records: a ``Store`` or a ``PackLookup``."""

    def measurements(
        self,
        target: Target | None = None,
        kind: Kind | None = None,
        signature: str | None = None,
    ) -> Iterator[Measurement]: ...


def as_it_is(network: Network) -> Lowered:
    """Every operator of the file as a kernel of its own."""
    origins = tuple((i,) for i in range(len(network.nodes)))
    return Lowered(network, origins, (), "as the file says")


class ReplayBackend(Backend):
    """Plays back what ``recording`` holds of ``target``; what it does not hold cannot be built.

    ``lower`` stands in for the engine's own lowering: give the rules that the recorded engine
    follows, or the signatures of cells will not be those of the recording.
    """

    name = "replay"
    method = Method.REPLICAS

    def __init__(
        self,
        recording: Recording,
        target: Target,
        lower: Callable[[Network], Lowered] = as_it_is,
    ) -> None:
        self._recording = recording
        self._target = target
        self._lower = lower
        self._records: dict[str, list[Measurement]] | None = None

    @property
    def target(self) -> Target:
        return self._target

    def environment(self) -> Mapping[str, str]:
        return {"engine": f"replay of {self._target}"}

    def lower(self, network: Network) -> Lowered:
        return self._lower(network)

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        """See Backend; the ``seed`` changes nothing, there is only one recording."""
        del seed
        try:
            signature = sign(network).hash
        except (KeyError, IndexError) as error:
            raise MeasurementError(f"{network.name} is not a whole network: {error}") from error
        records = self._of(signature)
        good = [r for r in records if r.latency_us is not None]
        if not good:
            what = "cell" if lowered else "network"
            why = records[-1].failure if records else "it is not in the recording"
            raise MeasurementError(
                f"the {what} {signature} cannot be played back for {self._target}: {why}"
            )
        return ReplaySession(good)

    def _of(self, signature: str) -> list[Measurement]:
        # A pack has no index: one pass over it serves every signature after.
        if self._records is None:
            self._records = {}
            for record in self._recording.measurements(self._target):
                self._records.setdefault(record.signature, []).append(record)
            for result in self._records.values():
                result.sort(key=lambda record: record.measured_at)
        return self._records.get(signature, [])


class ReplaySession(Session):
    """Gives out the recorded samples in order, again from the start when they are used up.

    Drift is divided out, and the samples of each record are scaled so that their median is its
    ``latency_us``: what a protocol made of them (overhead taken off, a predecessor subtracted) is
    what a cell is known to take. A record without samples gives out its one latency.
    """

    def __init__(self, records: list[Measurement]) -> None:
        self._samples = cycle(tuple(chain.from_iterable(map(_samples_us, records))))

    def run_us(self, count: int) -> list[float]:
        return list(islice(self._samples, count))


def _samples_us(record: Measurement) -> list[float]:
    assert record.latency_us is not None
    steady = [s / visit.drift for visit in record.visits for s in visit.samples_us if s > 0]
    if not steady:
        return [record.latency_us]
    scale = record.latency_us / statistics.median(steady)
    return [s * scale for s in steady]
