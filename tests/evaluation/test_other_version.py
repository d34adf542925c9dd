"""A version first met: played on made-up records of two versions."""

import math
from collections.abc import Callable, Collection

import pytest
from msgspec import structs

from hybridlat.estimate.predict.source import kinds_of
from hybridlat.evaluation.dataset import load
from hybridlat.evaluation.metrics import OWN, MethodResult
from hybridlat.evaluation.other_regimes import ALL_CELLS, AS_IT_IS, first_met
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.evaluation.made_pack import TARGET, fill

HERE, THERE = (Target("made", f"onnxruntime-1.{minor}", "fp32", 1) for minor in (32, 31))


def played(
    ratio_of: Callable[[str], float], unknown: Collection[str] = (), batches: int = 1
) -> dict[tuple[str, str], MethodResult]:
    """Networks, all on both versions but the ``unknown``; cells here take ``ratio_of`` as long.

    Of ``batches`` above 1 they are twice as many, half of them so many times as long.
    """
    known = set[str]()
    with Store(":memory:") as store:
        fill(store, networks=20, sweep=0)
        hashes = store.signatures(TARGET, "cell")
        ratios = {h: ratio_of(text) for h, text in store.signature_texts(hashes).items()}
        us = {h: stats.latency_us or 0.0 for h, stats in store.latencies(TARGET, hashes).items()}
        for item in list(store.breakdowns(TARGET)) if batches > 1 else ():
            other, cells = "f" + item.signature[1:], tuple((h, batches * n) for h, n in item.cells)
            store.add_breakdowns([structs.replace(item, signature=other, cells=cells)])
            for one in list(store.measurements(TARGET, "network", item.signature)):
                longer_us = batches * (one.latency_us or 0.0)
                store.add([structs.replace(one, signature=other, latency_us=longer_us)])
        for item in list(store.breakdowns(TARGET)):
            sums = [sum(n * us[h] * r.get(h, 1.0) for h, n in item.cells) for r in ({}, ratios)]
            ratios[item.signature] = sums[1] / sums[0]
            store.add_breakdowns([structs.replace(item, target=HERE)])
            if item.network not in unknown:
                store.add_breakdowns([structs.replace(item, target=THERE)])
                known |= {item.signature, *(h for h, _ in item.cells)}
        for record in list(store.measurements(TARGET)):
            slower = record.latency_us and record.latency_us * ratios.get(record.signature, 1.0)
            again = structs.replace(record, target=HERE, latency_us=slower)
            store.add([again])
            if record.signature in known:
                store.add([structs.replace(record, target=THERE)])
        here, there = (load(target, [store]) for target in (HERE, THERE))
        results = first_met(here, [store], there, [0.05])
    return {(each.regime, each.method): each for each in results}


@pytest.mark.parametrize("batches", [1, 8])
def test_versions_that_are_alike_cost_little(batches: int) -> None:
    results = played(lambda text: 1.01, batches=batches)
    never, gated = results["other_version", OWN], results["other_version@5%", OWN]
    assert never.score.rmspe is not None and never.score.rmspe < 2.5
    assert never.score.width is not None and never.score.width < 0.2 and not never.score.device_s
    assert never.score.coverage is not None and never.score.coverage >= 0.85
    everything = results["other_version@5%", ALL_CELLS].score.device_s
    assert 0 < gated.score.device_s < 0.2 * everything
    as_it_is = results["other_version", AS_IT_IS].score.rmspe
    assert as_it_is == pytest.approx(100 * (1 - 1 / 1.01), abs=0.1)


def test_a_rewritten_kernel_is_found_before_the_gate_answers() -> None:
    def ratio(text: str) -> float:
        shares = dict(kinds_of(text))
        return 1.5 if any("depthwise" in name for name in shares) else 1.0

    results = played(ratio)
    gated, never = results["other_version@5%", OWN], results["other_version", OWN]
    assert never.score.rmspe is not None and never.score.rmspe > 4  # so much is to be found
    errors = [abs(math.log(p.predicted_us / p.true_us)) for p in gated.predictions]
    assert max(errors) < math.log(1.05)
    assert gated.score.device_s < results["other_version@5%", ALL_CELLS].score.device_s


def test_the_sum_of_some_cells_is_no_answer() -> None:
    unknown = {f"net{place:03d}" for place in range(8)}
    results = played(lambda text: 1.01, unknown)
    never, gated = results["other_version", OWN], results["other_version@5%", OWN]
    assert {p.name for p in never.predictions if math.isnan(p.predicted_us)} == unknown
    assert never.score.rmspe is not None and never.score.rmspe < 2.5
    assert gated.score.answered == 20
