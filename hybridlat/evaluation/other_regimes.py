"""Regimes of whole networks without cells, and of a version of an engine first met.

Where only whole networks are recorded, each regime is fitted once for a family. ``unseen``: five
folds of architectures, twins in one fold. ``unseen_family``: five folds of what architectures are
variants of. ``zero_shot``: nothing of the device is known. Figures of folds are means over draws.

Where another version is known: ``other_version`` takes networks in turn and measures nothing;
``other_version@5%``: the gate measures until the interval is within 5 %, and later networks profit.
The records stand in for the machine; all else is as in use.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
from msgspec import structs

from hybridlat.errors import InputError
from hybridlat.estimate.belief import Request
from hybridlat.estimate.lookup.target_data import RecordSource, TargetData
from hybridlat.estimate.network_estimate import belief_of
from hybridlat.estimate.partition import CellPlace, CellUse, Partition
from hybridlat.estimate.predict.source import measuring_cost_s
from hybridlat.evaluation import metrics
from hybridlat.evaluation.baseline_runs import Contest, Judged, Split, evaluate_baselines
from hybridlat.evaluation.cross_fitting import even_folds
from hybridlat.evaluation.dataset import Dataset, WholeNetwork
from hybridlat.evaluation.families import Parts
from hybridlat.evaluation.family_laws import HeldOutLaws, interval
from hybridlat.evaluation.metrics import OWN, MethodResult, Prediction, TargetReport
from hybridlat.evaluation.twins import TWIN_SHARE
from hybridlat.model.baselines import Problem, Sums, Unit
from hybridlat.model.fit import FitConfig
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

_LEAST_ROWS = 10
REGIME = "other_version"
AS_IT_IS, ALL_CELLS = "other_version_as_it_is", "all_cells_measured"


class Regimes(HeldOutLaws):
    """The regimes of one family's targets."""

    def evaluate(
        self,
        target: Target,
        config: FitConfig,
        baselines: Sequence[str],
        networks: Sequence[str] | None = None,
    ) -> TargetReport:
        """All regimes of ``target``; ``networks`` restricts what is judged, not what teaches.

        InputError where there are too few networks.
        """
        records, places = self.records, self.places(target, networks)

        def of_all_draws(regime: str, confidence: float) -> list[Prediction]:
            return [*chain(*self.unseen(regime, places, confidence))]

        results = [
            MethodResult(regime, OWN, self.unseen(regime, places, config.confidence))
            for regime in self.held_out
        ]
        zero_shot = self._zero_shot(places, config.confidence)
        results += zero_shot
        contests = self._contests(places, config.seed)
        others = evaluate_baselines(target, baselines, contests, config, self.on_message)
        results += [replace(result, predict_ms=None) for result in others]  # nor is ours timed
        rows = [records.rows[i] for i in places]
        return TargetReport(
            target=target,
            data_hash=records.data_hash,
            results=tuple(results),
            noise_floor=metrics.noise_floor([row.repeats_us for row in rows]),
            networks=len(rows),
            cells=len({text for row in rows for text, _ in row.cells}),
            calibration={r: metrics.levels(partial(of_all_draws, r)) for r in self.held_out},
            notes=tuple(self._notes(target, places, bool(zero_shot))),
        )

    def places(self, target: Target, networks: Sequence[str] | None = None) -> list[int]:
        """Positions of the rows of ``target`` that are judged; InputError where they are few."""
        rows, counted = self.records.rows, np.flatnonzero(self.records.counted).tolist()
        of_target = [i for i in counted if rows[i].target == target]
        own = [i for i in of_target if networks is None or rows[i].network in networks]
        if len(own) < _LEAST_ROWS:
            which = "of those named " if networks is not None else ""
            raise InputError(
                f"of {target} only whole networks are recorded, and {len(own)} {which}that can be "
                f"used: {_LEAST_ROWS} are needed to hold some out; measure or import more"
            )
        return own

    def _zero_shot(self, places: Sequence[int], confidence: float) -> list[MethodResult]:
        """The rows of one target by the law of other devices; none where there are no others."""
        rows = self.records.rows
        device = rows[places[0]].target.device
        if self.without(device) is None:
            return []
        calibration = None
        if "unseen" in self.held_out:
            outside = np.array([row.target.device != device for row in rows])
            calibration = self.calibration(outside, self.held_out["unseen"][0].answers)
        predictions = [interval(rows[i], self.left_out[i], calibration, confidence) for i in places]
        return [MethodResult("zero_shot", OWN, [predictions])]

    def _contests(self, places: Sequence[int], seed: int) -> dict[Unit, Contest]:
        rows = [self.records.rows[i] for i in places]
        truth = np.array([row.latency_us for row in rows])
        names = tuple(row.architecture for row in rows)
        networks = [
            Judged(r.name, r.latency_us, ((i, 1),), len(r.cells)) for i, r in enumerate(rows)
        ]
        splits = []
        for regime, drawn in self.folds.items():
            for draw, folds in enumerate(of[places] for of in drawn):
                for number in np.unique(folds):
                    known, judged = np.flatnonzero(folds != number), np.flatnonzero(folds == number)
                    splits.append(Split(known, judged.tolist(), {regime: {}}, seed, draw))
        contests: dict[Unit, Contest] = {}
        units: dict[Unit, list[Parts]] = {
            "network": [row.cells for row in rows],
            "layered network": [row.layers for row in rows],
        }
        for unit, parts in units.items():
            if all(parts):
                tables = [row.table(own) for own, row in zip(parts, rows, strict=True)]
                problem = Problem(Sums.of_networks(tables), truth, names)
                contests[unit] = Contest(problem, np.zeros(len(rows)), networks, splits)
        return contests

    def _notes(self, target: Target, places: Sequence[int], is_zero_shot: bool) -> Iterator[str]:
        records = self.records
        yield from records.missing
        own = [row for row in records.rows if row.target == target]
        suspect, learned = sum(row.suspect for row in own), int(records.counted.sum())
        if suspect:
            yield f"{suspect} of {len(own)} networks are noted as suspect and do not count"
        if learned > len(places):
            yield (
                f"other methods learn from the {len(places)} latencies of {target}, hybridlat from "
                f"all {learned} of its family, each without the fold that is judged"
            )
        elif self.folds:
            yield (
                f"all methods learn from these {learned} networks alone, without the fold that is "
                "judged; predictions rest on the shipped model too"
            )
        if self.folds:
            drawn = "one draw" if self.draws == 1 else f"{self.draws} draws"
            apart = Counter(self.groups["unseen"].values())
            yield (
                f"folds are of {drawn}, with {sum(n for n in apart.values() if n > 1)} twins kept "
                f"together; {self.held_share('unseen', places):.0%} of the networks still spend "
                f"over {TWIN_SHARE:.0%} of their time in kernels that training has seen"
            )
        if not is_zero_shot:
            yield (
                "zero_shot is not judged: the store has no networks of another device of the "
                f"family {records.family}"
            )


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
    networks = {n.name: n for n in here.complete_networks}

    def answer(
        data: TargetData, network: WholeNetwork, tolerance: float | None, all_cells: bool
    ) -> Prediction:
        whole, costs_s = network.signature, dict[str, float]()
        texts = {h: here.cells[h].text for h, _ in network.cells}

        def measure(signatures: Sequence[str], with_whole: bool) -> None:
            costs_s.update({h: here.cells[h].cost_s for h in signatures})
            if with_whole:
                costs_s[whole] = measuring_cost_s(network.latency_us, is_network=True)
            data.store.add(r for h in (*signatures, *[whole] * with_whole) for r in records[h])
            data.refresh()

        if all_cells:
            known = data.known(texts)
            measure([h for h in texts if h not in known], False)
        uses = [CellUse(h, (), (CellPlace(0, (), ()),) * count) for h, count in network.cells]
        none = cast(Any, None)  # what is believed needs no file
        partition = Partition(tuple(uses), (), 1, "records", hash=whole, texts=texts)
        measuring = None if tolerance is None else measure
        belief = belief_of(Request(none, partition, none, tolerance or 1, 0.9, measuring), data)
        interval, shown = belief.interval, belief.composition.shown_ratio
        low_us, high_us = interval.interval_us
        complete = belief.exact is not None or belief.posterior.complete
        return Prediction(
            name=network.name,
            true_us=network.latency_us,
            predicted_us=interval.latency_us / shown if complete else math.nan,
            interval_us=(low_us / shown, high_us / shown) if complete else None,
            measured_share=belief.posterior.measured_share,
            device_s=sum(costs_s.values()),
            cells=len(network.cells),
            cells_measured=len(costs_s),
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
            ordered = [networks[name] for name in even_folds(networks)]
            predictions = [answer(data, network, tolerance, all_cells) for network in ordered]
        each_ms = 1e3 * (time.perf_counter() - began) / max(len(predictions), 1)
        return MethodResult(regime, method, [predictions], each_ms)

    known = {n.signature: n.latency_us for n in there.networks}
    both = [n for n in networks.values() if n.signature in known]
    old = [Prediction(n.name, n.latency_us, known[n.signature]) for n in both]
    results = [play(REGIME, OWN, None), MethodResult(REGIME, AS_IT_IS, [old])]
    for tolerance in tolerances:
        regime = f"{REGIME}@{tolerance * 100:g}%"
        results += [play(regime, OWN, tolerance), play(regime, ALL_CELLS, None, True)]
    return results
