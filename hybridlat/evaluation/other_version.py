"""A version of an engine first met where another one is known: what it costs and what it gives.

``other_version``: networks in turn, nothing measured. ``other_version@5%``: the gate measures until
the interval is within 5 %, and later networks profit. The records stand in for the machine; all
else is as in use.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

from msgspec import structs

from hybridlat.estimate.belief import Request
from hybridlat.estimate.lookup.target_data import RecordSource, TargetData
from hybridlat.estimate.network_estimate import belief_of
from hybridlat.estimate.partition import CellPlace, CellUse, Partition
from hybridlat.estimate.predict.source import measuring_cost_s
from hybridlat.evaluation.cross_fitting import even_folds
from hybridlat.evaluation.dataset import Dataset, WholeNetwork
from hybridlat.evaluation.metrics import OWN, MethodResult, Prediction
from hybridlat.schema.measurement import Measurement
from hybridlat.store import Store

REGIME = "other_version"
AS_IT_IS, ALL_CELLS = "other_version_as_it_is", "all_cells_measured"


def first_met(
    here: Dataset, sources: Sequence[RecordSource], there: Dataset, tolerances: Sequence[float]
) -> list[MethodResult]:
    """Both regimes, beside the other version's latency as it is, and all cells measured.

    ``sources`` hold the records of both targets. Networks come in the order of their names' hashes.
    """
    records: dict[str, list[Measurement]] = defaultdict(list)
    for record in (r for source in sources for r in source.measurements(here.target)):
        # The pace of the machine is told by networks; samples of all cells would fill the memory.
        kept = record if record.kind == "network" else structs.replace(record, visits=())
        records[record.signature].append(kept)
    hashes = {b.network: b.signature for s in sources for b in s.breakdowns(here.target)}
    networks = {n.name: n for n in here.complete_networks}

    def answer(
        data: TargetData, network: WholeNetwork, tolerance: float | None, all_cells: bool
    ) -> Prediction:
        whole, cells = hashes[network.name], [h for h, _ in network.cells]
        costs_s: dict[str, float] = {}

        def measure(signatures: Sequence[str], with_whole: bool) -> None:
            costs_s.update({h: here.cells[h].cost_s for h in signatures})
            if with_whole:
                costs_s[whole] = measuring_cost_s(network.latency_us, is_network=True)
            data.store.add(r for h in (*signatures, *[whole] * with_whole) for r in records[h])
            data.refresh()

        if all_cells:
            known = data.known(cells)
            measure([h for h in cells if h not in known], False)
        uses = [CellUse(h, (), (CellPlace(0, (), ()),) * count) for h, count in network.cells]
        none = cast(Any, None)  # what is believed needs no file
        texts = {h: here.cells[h].text for h in cells}
        partition = Partition(tuple(uses), (), 1, "records", hash=whole, texts=texts)
        measuring = None if tolerance is None else measure
        belief = belief_of(Request(none, partition, none, tolerance or 1, 0.9, measuring), data)
        interval, shown = belief.interval, belief.composition.shown_ratio
        low_us, high_us = interval.interval_us
        return Prediction(
            network.name,
            network.latency_us,
            interval.latency_us / shown,
            (low_us / shown, high_us / shown),
            belief.posterior.measured_share,
            sum(costs_s.values()),
            len(cells),
            len(costs_s),
        )

    def play(
        regime: str, method: str, tolerance: float | None, all_cells: bool = False
    ) -> MethodResult:
        with Store(":memory:") as store:
            for source in sources:
                store.add(source.measurements(there.target))
                store.add_breakdowns(source.breakdowns(there.target))
            store.add_signatures({h: cell.text for h, cell in here.cells.items()})
            data, began = TargetData(here.target, store, models=()), time.perf_counter()
            predictions = [
                answer(data, networks[n], tolerance, all_cells) for n in even_folds(networks)
            ]
        each_ms = 1e3 * (time.perf_counter() - began) / max(len(predictions), 1)
        return MethodResult(regime, method, [predictions], each_ms)

    both = [n for n in there.networks if n.name in networks]
    old = [Prediction(n.name, networks[n.name].latency_us, n.latency_us) for n in both]
    results = [play(REGIME, OWN, None), MethodResult(REGIME, AS_IT_IS, [old])]
    for tolerance in tolerances:
        regime = f"{REGIME}@{tolerance * 100:g}%"
        results += [play(regime, OWN, tolerance), play(regime, ALL_CELLS, None, True)]
    return results
