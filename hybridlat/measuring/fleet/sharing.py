"""A measurer for what asks for portions: each is shared out to the devices of a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hybridlat.engines import registry
from hybridlat.engines.base import Method
from hybridlat.measuring.fleet.fleet import Fleet
from hybridlat.measuring.fleet.unit import Unit
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import OnProgress
from hybridlat.schema.target import Target
from hybridlat.store import Store


@dataclass(frozen=True)
class FleetMeasurer:
    """A measurer (see ``measurer.py``) that shares each call out to the devices of a target."""

    fleet: Fleet
    target: Target

    @property
    def needs_network(self) -> bool:
        return registry.load_backend(self.target.engine).method is not Method.REPLICAS

    @property
    def devices(self) -> int:
        return self.fleet.count(self.target)

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        store: Store,
        settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:
        """See Measurer. Raises what stood in the way where nothing at all could be measured."""
        del on_progress  # the fleet tells of all its devices
        units = [
            Unit(str(self.target), self.target, share, settings)
            for share in shares(requests, self.devices)
        ]
        results = self.fleet.measure(units, store)
        records = [record for result in results for record in result.records]
        for result in results:
            if result.problem is not None and not records:
                raise result.problem
        return records


def shares(requests: Sequence[MeasureRequest], count: int) -> list[tuple[MeasureRequest, ...]]:
    """Requests dealt out in ``count`` parts of about as many cells and networks; none is empty."""
    hands: list[dict[int, MeasureRequest]] = [{} for _ in range(count)]
    turn = 0
    for place, request in enumerate(requests):
        for hash_ in [None] * request.whole + list(request.cells):
            hand = hands[turn % count]
            own = hand.get(place, replace(request, cells={}, whole=False))
            if hash_ is None:
                own = replace(own, whole=True)
            else:
                own = replace(own, cells={**own.cells, hash_: request.cells[hash_]})
            hand[place] = own
            turn += 1
    return [tuple(hand.values()) for hand in hands if hand]
