"""A whole network and its cells that are too far apart: said, and no evidence of either."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hybridlat import Predictor, predict
from hybridlat.engines import registry
from hybridlat.engines.host import PROC_VARIABLE, usable_cores
from hybridlat.estimate.belief import disagreement
from hybridlat.estimate.compose.composition import Composition, SummedNetwork, undisturbed
from hybridlat.estimate.compose.posterior import CellPrior
from hybridlat.estimate.compose.target_composition import PaceDrift, composition_of, pace_drift
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import load, to_onnx
from hybridlat.report.units import why_untrusted
from hybridlat.schema.measurement import KINDS, Kind, MachineLoad, Measurement, load_of
from hybridlat.schema.target import Target
from hybridlat.store import LatencyStats, Store, packs
from tests.estimate.known import ends
from tests.estimate.test_whole_networks import TARGET, network_of
from tests.fakes.fake_backend import FAKE, QUICK
from tests.networks import NETS

FITTED = Composition(scale=1.0, residual_share=0.02, networks=60)
WIDE = replace(FITTED, residual_share=0.3)


@pytest.mark.parametrize(
    ("latency_us", "noise", "composition", "is_predicted", "excess"),
    [
        (16400.0, 0.01, FITTED, False, 0.887),
        (4000.0, 0.01, FITTED, False, -0.54),
        (8800.0, 0.01, FITTED, False, None),
        # An unsure figure, or unsure cells, may be further apart.
        (11000.0, 0.01, FITTED, False, 0.266),
        (11000.0, 0.2, FITTED, False, None),
        # Predictions are to blame, however far apart the two are.
        (90000.0, 0.01, FITTED, True, None),
        # All cells measured leave no excuse to a wide composition.
        (2 * 8690.0, 0.01, WIDE, False, 1.0),
        (2 * 8690.0, 0.01, WIDE, True, None),
    ],
)
def test_the_reach_of_both_decides_whether_they_contradict(
    latency_us: float,
    noise: float,
    composition: Composition,
    is_predicted: bool,
    excess: float | None,
) -> None:  # fmt: skip
    source: Any = "predicted" if is_predicted else "measured"
    spread = 0.3 if is_predicted else 0.01
    priors = [CellPrior(f"{us:032.0f}", 1, us, spread, source=source) for us in (4690.0, 4000.0)]
    whole = WholeLatency(latency_us, noise, True, "once")
    contradiction = disagreement(whole, composition, FITTED.start(priors))
    assert contradiction == (excess if excess is None else pytest.approx(excess, abs=0.005))


def test_a_disturbed_network_says_nothing_of_its_machine() -> None:
    good = [SummedNetwork(1.02 * us, us) for us in (100.0, 200.0, 400.0)]
    bad = SummedNetwork(16400.0, 8690.0)
    assert undisturbed([bad], 0.0) == []
    assert undisturbed([good[0], bad, *good[1:]], 0.0) == good
    # A busy hour disturbs all alike: they do not vouch for each other.
    slow = [SummedNetwork(1.9 * us, us) for us in (100.0, 200.0, 400.0)]
    assert undisturbed(slow, 0.0) == []
    other_cpu = [SummedNetwork(1.1 * us, us) for us in (100.0, 200.0, 400.0)]
    assert undisturbed(other_cpu, 0.0) == other_cpu


@pytest.mark.parametrize("first", [True, False])
def test_the_estimate_says_so_and_the_machine_learns_nothing(first: bool, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    data = to_onnx(network_of(), seed=1)
    with Predictor(FAKE, store=url, settings=QUICK) as predictor:
        if not first:
            for channels in (12, 16, 20):
                predictor.predict(to_onnx(network_of(channels), seed=1))
        before = predictor.predict(data)
    assert not any("disturbed" in warning for warning in map(str, before.warnings))
    hash_ = sign(load(data).network(None, None)).hash
    with Store(url) as opened:
        own = list(opened.measurements(TARGET, "network", hash_))
    slow = f"sqlite:///{tmp_path / 'slow.db'}"
    with Store(url) as opened, Store(slow) as other:
        for record in opened.measurements(TARGET):
            slower_us = 1.89 * (record.latency_us or 0.0)
            is_own = record.id in {one.id for one in own}
            other.add([structs.replace(record, latency_us=slower_us) if is_own else record])
        other.add_breakdowns(list(opened.breakdowns(TARGET)))
        networks = composition_of(TargetData(TARGET, other)).networks
    assert networks == (0 if first else 3)
    after = predict(data, FAKE, store=slow, measure="never", tolerance=0.99)
    assert after.source == "measured"
    [warning] = [w for w in after.warnings if w.code == "contradicted"]
    assert "as a whole" in warning.text and warning.fix.endswith("--measure always")
    # The rows stay what was measured, and their shares add up.
    assert [c.latency_us for c in after.cells] == [c.latency_us for c in before.cells]
    assert sum(c.share for c in after.cells) == pytest.approx(1.0)
    # Nobody knows which of the two is right: both are in the interval, and neither is trusted.
    assert after.contradicted and not after.trusted and not after.within_tolerance
    before_us, (low_us, latency_us, high_us) = ends(before)[1], ends(after)
    assert low_us <= before_us < 1.5 * before_us < latency_us <= high_us
    assert "contradict each other" in why_untrusted(after)
    # Where measuring is allowed the network is measured again, and the quicker runs outvote it.
    with Predictor(FAKE, store=slow, settings=QUICK) as predictor:
        settled = predictor.predict(data)
    assert settled.network_measured_now and settled.measured_now == 0
    assert not settled.contradicted and settled.trusted
    with Store(slow) as other:
        assert 2 <= len(list(other.measurements(TARGET, "network", own[0].signature))) <= 4


def busy_proc(folder: Path, running: int) -> str:
    """A folder in place of /proc, of a machine on which so many tasks run or wait."""
    folder.mkdir(exist_ok=True)
    (folder / "loadavg").write_text(f"9.70 5.00 2.00 {running}/300 4242\n", encoding="utf-8")
    (folder / "stat").write_text("cpu  1 0 1 1 0 0 0 0 0 0\n", encoding="utf-8")
    return str(folder)


def test_a_busy_machine_is_named_and_what_it_measured_is_outweighed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    files = [to_onnx(network_of(channels), seed=1) for channels in (8, 12)]
    tasks = 1 + 5 * (os.cpu_count() or 1)  # the measuring process is one of them
    monkeypatch.setenv(PROC_VARIABLE, busy_proc(tmp_path / "proc", tasks))
    with Predictor(FAKE, store=url, settings=QUICK) as predictor:
        busy = [predictor.predict(file) for file in files]
    for estimate in busy:
        assert estimate.busy and not estimate.trusted and not estimate.within_tolerance
        assert why_untrusted(estimate) == "the machine was busy while measuring"
        [warning] = [w for w in map(str, estimate.warnings) if "busy" in w]
        assert f"({5 * usable_cores():.1f} other tasks on" in warning
        assert "when it is idle" in warning
    with Store(url) as opened:
        records = list(opened.measurements(TARGET))
        data = TargetData(TARGET, opened)
        assert all(load_of(record.environment) for record in records)
        # It taught the machine nothing, and later answers from its records say the same.
        assert pace_drift(data) == PaceDrift() and composition_of(data).networks == 0
    later = predict(files[0], FAKE, store=url, measure="never")
    assert any("busy" in warning for warning in map(str, later.warnings))
    monkeypatch.setenv(PROC_VARIABLE, busy_proc(tmp_path / "proc", 1))
    with Predictor(FAKE, store=url, settings=QUICK) as predictor:
        quiet = [predictor.predict(file) for file in files]
    for estimate in quiet:
        assert estimate.network_measured_now and estimate.trusted and not estimate.busy
        assert not any("busy" in warning for warning in map(str, estimate.warnings))
    with Store(url) as opened:
        assert pace_drift(TargetData(TARGET, opened)).processes > 0


class Shipped:
    """A pack that knows everything, measured on the quiet machine."""

    target = TARGET

    def latencies(
        self, target: Target, hashes: Sequence[str], kind: Kind = "cell"
    ) -> dict[str, LatencyStats]:
        return {hash_: LatencyStats(100.0, 0.01, 3) for hash_ in hashes}


class Failed(Shipped):
    """One in which a cell failed."""

    def latencies(self, *_: object) -> dict[str, LatencyStats]:
        return {"3" * 32: LatencyStats(None, 0.0, 0, "gave no answer")}


def test_a_pack_outweighs_a_busy_machine_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "packs_for", lambda target: [Failed(), Shipped(), Failed()])
    busy = MachineLoad(9.7, 0.0, 2).environment()
    hashes = [digit * 32 for digit in "0123"]
    first, second, failed, _ = hashes
    with Store("sqlite://") as store:
        for kind in KINDS[:2]:
            store.add([Measurement(TARGET, first, kind, 190.0, 0.5, environment=busy)])
            store.add([Measurement(TARGET, second, kind, 101.0, 0.02)])
        store.add([Measurement(TARGET, failed, "cell", None, failure="died of SIGKILL")])
        data = TargetData(TARGET, store)
        cells = [stats.latency_us for stats in data.known(hashes).values()]
        wholes = [data.whole(hash_) for hash_ in (first, second)]
    assert cells == [100.0, 101.0, 100.0, 100.0]
    assert [whole and whole.latency_us for whole in wholes] == [100.0, 101.0]
    assert wholes[0] is not None and wholes[0].is_exact and wholes[0].load is None


def test_nobody_is_sent_to_measure_what_the_engine_refuses(tmp_path: Path) -> None:
    def asked(target: str) -> tuple[list[str], bool]:
        path, store = NETS / "squeezenet.onnx", str(tmp_path / "s.db")
        estimate = predict(path, target, store=store, measure="never", batch=2)
        # Why this machine cannot measure a GPU that it does not have is nothing to act on.
        assert "driver" not in str(estimate.warnings) and "MaxPool" not in str(estimate.warnings)
        return [w.fix for w in estimate.warnings if w.fix], bool(estimate.to_measure)

    (fix,), wanted = asked("l4/tensorrt/int8")
    assert fix.startswith("hybridlat import TABLE.csv") and not wanted
    fixes, wanted = asked("l4/tensorrt/fp16")
    name = f"{NETS}/squeezenet.onnx --shape data_0:2x3x224x224 --target l4/tensorrt/fp16 --network"
    measuring, planning = f"measure {name} --host USER@HOST", f"plan {name} -o plan"
    assert wanted and fixes == [f"hybridlat {measuring}", f"hybridlat {planning}"]
    assert registry.can_measure(Target.parse("a/onnxruntime/int8/1t"))
    assert not registry.can_measure(Target.parse("a/torch/fp32"))
