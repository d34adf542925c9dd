"""A target of which nothing is known, and another version or precision of it is: by ratios."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hybridlat import Predictor, predict
from hybridlat.engines.fusion.precision import in_precision
from hybridlat.estimate.belief import cells_of
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import Matrix
from hybridlat.estimate.lookup.target_data import TargetData, relatives_of
from hybridlat.estimate.lookup.whole_networks import measured_networks
from hybridlat.estimate.partition import Partitioner
from hybridlat.estimate.predict import other_targets
from hybridlat.estimate.predict.ratios import RATIOS, Kinds, Pair, RatioPrior, Ratios
from hybridlat.graph.signature import sign
from hybridlat.model.conformal import normal_quantile
from hybridlat.onnx_io import load, to_onnx
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import packs_for
from tests.estimate.known import ends, keep_network
from tests.networks import NETS, Builder, residual_block, stem

VERSIONED, PLAIN = "orin-agx/tensorrt-8.6/fp16", "orin-agx/tensorrt/fp16"
CELL_US = 700.0  # far from what any law would say of these


def asked(folder: Path, target: str, channels: int = 64) -> Estimate:
    folder.mkdir(exist_ok=True)
    network, exactly = to_onnx(residual_block(channels=channels), seed=1), Target.parse(target)
    return predict(network, exactly, store=str(folder / "s.db"), measure="never", tolerance=0.99)


def log_width(estimate: Estimate) -> float:
    low_us, _, high_us = ends(estimate)
    return math.log(high_us / low_us) / 2


@pytest.mark.parametrize(("known", "wanted"), [(VERSIONED, PLAIN), (PLAIN, VERSIONED)])
def test_cells_of_other_versions_answer_and_say_so(known: str, wanted: str, tmp_path: Path) -> None:
    signatures = [cell.signature for cell in asked(tmp_path, known).cells]
    with Store(tmp_path / "s.db") as store:
        store.add(Measurement(Target.parse(known), s, "cell", CELL_US, 0.01) for s in signatures)
    there, here = asked(tmp_path, known), asked(tmp_path, wanted)
    assert here.supported and {cell.source for cell in here.cells} == {"predicted"}
    reasons = {cell.reason for cell in here.cells}
    assert reasons == {f"measured as {known}: another version of the engine"}
    assert [cell.latency_us for cell in here.cells] == pytest.approx([CELL_US] * len(here.cells))
    assert any(known in warning for warning in map(str, here.warnings))
    width = log_width(here)
    assert width > 2 * log_width(there)
    spread = math.hypot(RATIOS["version", ""].spread, 0.01)
    family = log_width(asked(tmp_path / "empty", wanted))  # which answers for the host still
    of_cells = here.sum_of_cells_us / (here.latency_us or math.nan)
    expected = of_cells * normal_quantile(0.9) * spread + (1 - of_cells) * family
    assert width == pytest.approx(expected, rel=0.01)


def test_the_model_of_another_version_answers_for_cells_without_a_record(tmp_path: Path) -> None:
    net = Builder("net")
    x = net.relu(net.conv(net.input((1, 3, 64, 64)), 64))
    x = net.relu(net.conv(x, 3000, kernel=9))  # far from all that the model was trained on
    network, target = to_onnx(net.network(x), seed=1), "epyc-26-2/onnxruntime-2.0/fp32/1t"
    estimate = predict(network, target, store=str(tmp_path / "s.db"), measure="never")
    assert estimate.supported and estimate.interval_us is not None
    strange = [cell for cell in estimate.cells if not cell.trusted]
    assert strange and estimate.trusted and not replace(estimate, tolerance_given=True).trusted
    for cell in estimate.cells:
        assert "epyc-26-2/onnxruntime-1.31/fp32/1t: another version of the engine" in cell.reason
        assert cell.interval_us is not None and cell.latency_us is not None
        assert cell.interval_us[1] / cell.latency_us >= math.exp(1.6 * 0.3)


@pytest.mark.parametrize("version", ["1.30", "1.32"])
def test_the_pack_of_a_machine_tells_of_versions_beside_it(version: str, tmp_path: Path) -> None:
    target = f"epyc-26-2/onnxruntime-{version}/fp32/1t"
    with Predictor(target, store=str(tmp_path / "s.db"), measure="never") as predictor:
        estimates = [predictor.predict(NETS / f"{n}.onnx") for n in ("ghostnet_100", "resnet18")]
    for estimate in estimates:
        assert estimate.supported and all("onnxruntime-1.31" in c.reason for c in estimate.cells)
        # Another machine of this CPU measured it.
        _, latency_us, high_us = ends(estimate)
        assert 1.12 < high_us / latency_us < 1.3
        texts = [w.text for w in estimate.warnings if "taken from epyc-26-2" in w.text]
        assert texts and all("as another machine measured it" in text for text in texts)


@pytest.mark.parametrize("machine", ["i7-12700h/onnxruntime-1.31", "epyc-26-2/onnxruntime-1.30"])
def test_what_is_computed_in_fp32_takes_as_long_in_files_of_half_precision(
    machine: str, tmp_path: Path
) -> None:
    """A CPU's cells are those of FP32 files, but for the conversions."""
    store, cells = str(tmp_path / "s.db"), []
    for name, net in {"fp32": stem(32, 32), "fp16": in_precision(stem(32, 32), "float16")}.items():
        target = f"{machine}/{name}/1t"
        estimate = predict(to_onnx(net, seed=1), target, store=store, measure="never")
        assert estimate.structure is not None
        each = zip(estimate.cells, estimate.structure.cells, strict=True)
        cells.append({cell.signature: (cell.latency_us, drawn) for cell, drawn in each})
    whole, half = cells
    common = whole.keys() & half
    assert len(common) > 1 and all(whole[cell] == half[cell] for cell in common)


def test_what_this_machine_measured_itself_is_surer_than_a_pack(tmp_path: Path) -> None:
    def half_width_share(cells: int) -> float:
        store = str(tmp_path / f"{cells}.db")
        records = [Measurement(known, f"{i:032x}", "cell", 50.0, 0.01) for i in range(cells)]
        with Store(store) as opened:
            opened.add(records)
        estimate = predict(NETS / "resnet18.onnx", target, store=store, measure="never")
        _, latency_us, high_us = ends(estimate)
        return high_us / latency_us - 1

    known = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
    target = "epyc-26-2/onnxruntime-1.32/fp32/1t"
    assert half_width_share(60) < 0.7 * half_width_share(0)


@pytest.mark.parametrize(
    ("pace", "spread", "is_believed"), [(1.01, 0.01, True), (0.7, 0.01, False), (1.0, 0.5, False)]
)
def test_the_pack_of_this_very_version_is_exact_once_cells_measured_here_agree(
    pace: float, spread: float, is_believed: bool, tmp_path: Path
) -> None:
    target = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
    with Predictor(target, store=str(tmp_path / "s.db"), measure="never") as predictor:
        there = predictor.predict(NETS / "ghostnet_100.onnx")  # as on a machine elsewhere
        assert there.source == "measured"
        predictor.sessions.first._doubted = TargetData(target, predictor.store).doubted()
        first = predictor.predict(NETS / "ghostnet_100.onnx")
        assert first.source == "composed" and first.measured_share == 0
        _, latency_us, high_us = ends(first)
        assert 1.12 < high_us / latency_us < 1.3
        assert any("of this machine, taken from epyc-26-2" in w.text for w in first.warnings)

        cells = sorted(there.cells, key=lambda cell: -(cell.latency_us or 0.0))[:30]
        (pack,) = packs_for(target)
        predictor.store.add_signatures(pack.signature_texts(cell.signature for cell in cells))
        predictor.store.add(
            Measurement(target, c.signature, "cell", pace * (c.latency_us or 0.0), spread)
            for c in cells
        )
        after = predictor.predict(NETS / "ghostnet_100.onnx")
    assert (after.source == "measured") == is_believed
    expected = 1.0 if is_believed else pace
    assert ends(after)[1] / ends(there)[1] == pytest.approx(expected, abs=0.08)


def test_an_estimate_that_lacks_a_cell_has_no_upper_end(tmp_path: Path) -> None:
    store, known = str(tmp_path / "s.db"), Target.parse("abacus/tensorrt/fp16")
    cell = predict(NETS / "resnet18.onnx", PLAIN, store=store, measure="never").cells[0]
    with Store(store) as opened:
        opened.add([Measurement(known, cell.signature, "cell", CELL_US, 0.01)])
    estimate = predict(NETS / "resnet18.onnx", known, store=store, measure="never")
    assert estimate.latency_us == CELL_US * cell.uses and not estimate.supported
    assert estimate.low_us is not None and 0 < estimate.low_us <= estimate.latency_us
    assert estimate.high_us == math.inf and estimate.grade is None and not estimate.trusted
    body = json.loads(json.dumps(estimate.to_json(), allow_nan=False))
    assert body["interval_us"] == [estimate.low_us, None] and body["high_us"] is None
    assert any("no latency" in warning for warning in map(str, estimate.warnings))


def test_a_network_measured_whole_on_another_version_is_evidence(tmp_path: Path) -> None:
    before = asked(tmp_path, PLAIN, channels=256)
    before_us, same = ends(before)[1], to_onnx(residual_block(channels=256), seed=1)
    with Store(tmp_path / "s.db") as store:
        whole = sign(load(same).network()).hash
        known = Target.parse(VERSIONED)
        store.add([Measurement(known, whole, "network", 1.2 * before_us, 0.01)])
    after = asked(tmp_path, PLAIN, channels=256)
    assert after.source == "composed"
    assert [VERSIONED in w.text for w in after.warnings if w.code == "network-hint"] == [True]
    assert 1.01 * before_us < ends(after)[1] < 1.2 * before_us
    assert math.log(1.3) / 2 < log_width(after) < log_width(before)


def test_networks_of_another_version_correct_the_family(tmp_path: Path) -> None:
    before_us, known = ends(asked(tmp_path, PLAIN))[1], Target.parse(VERSIONED)
    assert "no data for TensorRT 8.6" in asked(tmp_path, VERSIONED).rests_on
    with Store(tmp_path / "s.db") as store:
        wider = to_onnx(residual_block(channels=128), seed=1)
        keep_network(store, known, wider, 50 * before_us)
        assert len(measured_networks(store, known)) == 1
    after = asked(tmp_path, PLAIN)
    assert ends(after)[1] > 1.1 * before_us
    assert any(f"1 network measured on {VERSIONED}" in cell.reason for cell in after.cells)
    rests_on = asked(tmp_path, VERSIONED).rests_on
    assert "and 1 network measured on it" in rests_on and "no data" not in rests_on


def test_the_surest_comes_first_and_another_device_or_engine_is_not_near(tmp_path: Path) -> None:
    names = ["orin-agx/tensorrt-8.6/fp32", "orin-agx/tensorrt-8.6/fp16", "orin-agx/tensorrt/fp32"]
    names += ["orin-nx/tensorrt-8.6/fp16", "orin-agx/torch-2.4/fp16"]
    names += ["orin-agx/paddle-tensorrt/fp16"]
    with Store(tmp_path / "s.db") as store:
        store.add([Measurement(Target.parse(n), "0" * 32, "cell", 1.0, 0.01) for n in names])
        near = relatives_of(TargetData(Target.parse(PLAIN), store))
        cpu = Target.parse("abacus/onnxruntime-1.31/fp32/1t")
        store.add([Measurement(replace(cpu, precision="int8"), "0" * 32, "cell", 1.0, 0.01)])
        assert relatives_of(TargetData(cpu, store)) == ()
    assert list(map(str, near)) == [names[1], names[2], names[0]]


def test_networks_measured_here_tell_how_the_machine_of_a_pack_compares(tmp_path: Path) -> None:
    store, here = str(tmp_path / "s.db"), Target.parse("epyc-26-2/onnxruntime-1.32/fp32/1t")

    def predicted(*names: str) -> list[Estimate]:
        with Predictor(here, store=store, measure="never") as predictor:
            return [predictor.predict(NETS / f"{name}.onnx") for name in names]

    names = ("mnasnet_100", "fbnetc_100", "efficientnet_lite0", "resnet18")
    (before,), others = predicted("mobilenetv2_100"), predicted(*names)
    with Store(store) as opened:
        for name, other in zip(names, others, strict=True):
            quicker_us = 0.75 * (other.latency_us or math.nan)
            keep_network(opened, here, NETS / f"{name}.onnx", quicker_us)
    (after,) = predicted("mobilenetv2_100")
    assert ends(after)[1] == pytest.approx(0.75 * ends(before)[1], rel=0.06)
    assert log_width(after) < 0.7 * log_width(before)
    assert any("4 networks compared" in warning.text for warning in after.warnings)


@pytest.mark.parametrize(("spread", "unconvolved"), [(0.2, 0.0), (0.0, 0.2), (0.0, 0.0)])
def test_networks_tell_of_ratios_as_surely_as_they_are_known_there(
    spread: float, unconvolved: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (Target.parse(f"abacus/onnxruntime-1.3{n}/fp32/1t") for n in (1, 0))
    composition = Composition(residual_share=0.02, unconvolved_spread=unconvolved)
    monkeypatch.setattr(other_targets, "composition_of", lambda _: composition)
    net = Builder("pool")
    pool = to_onnx(net.network(net.pool(net.input((1, 16, 64, 64)))), seed=1)
    with Store(tmp_path / "s.db") as store:
        keep_network(store, here, pool, 120.0)
        (known, _), *layouts = next(store.breakdowns(here)).cells
        store.add([Measurement(there, h, "cell", 1e-3, 0.01) for h, _ in layouts])
        store.add([Measurement(there, known, "cell", 100.0, spread)])
        data = TargetData(here, store), TargetData(there, store)
        (pair,) = other_targets.network_pairs_of(*data)
        assert pair.log_ratio == pytest.approx(math.log(1.2), abs=1e-3)
        assert (pair.noise > 0.19) == (max(spread, unconvolved) > 0)
        # A network that was measured there moves what it composes to by as much.
        partition = Partitioner(there, store).partition(load(pool))
        cells = cells_of(partition, load(pool).network)
        store.add([Measurement(there, partition.whole, "network", 110.0, 0.01)])
        data[1].refresh()
        law = other_targets.OtherTarget(*data).law(cells)
        assert law is not None and law.composed is not None
        assert (law.composed.scale > 1.08) == (unconvolved > 0)


PRIOR = RatioPrior(0.02, 0.03, 0.03, 0.02)
NAMES = ("Conv 1x1", "Conv kxk", "Conv depthwise", "MaxPool")
ALONE: list[Kinds] = [((name, 1.0),) for name in NAMES]


def pairs_of(draw: np.random.Generator, count: int) -> list[Pair]:
    """Cells of one or two kinds, whose ratios are as the prior has them."""
    scales = [PRIOR.common, *[PRIOR.kind] * len(NAMES)]
    parts = student(draw, len(scales)) * scales
    pairs = []
    for _ in range(count):
        first, second = draw.choice(len(NAMES), 2, replace=False)
        share = float(draw.choice([1.0, 0.6]))
        kinds = ((NAMES[first], share), (NAMES[second], 1 - share))
        ratio = parts[0] + share * parts[1 + first] + (1 - share) * parts[1 + second]
        ratio += PRIOR.cell * student(draw, 1)[0] + 0.01 * draw.standard_normal()
        pairs.append(Pair(kinds, float(ratio), 0.01))
    return pairs


def student(draw: np.random.Generator, count: int) -> Matrix:
    """Of four degrees of freedom and variance 1."""
    return draw.standard_t(4.0, count) / math.sqrt(2.0)


@pytest.mark.parametrize("counts", [(0, 1), (1, 4), (4, 16), (16, 64)])
def test_cells_compared_never_widen_an_interval_in_the_mean(counts: tuple[int, int]) -> None:
    spreads: dict[int, list[float]] = {count: [] for count in counts}
    for seed in range(60):
        pairs = pairs_of(np.random.default_rng(seed), counts[1])
        for count in counts:
            _, covariance = Ratios(PRIOR, pairs[:count]).of(ALONE)
            weights = np.array([0.5, 0.3, 0.1, 0.1])
            spreads[count].append(math.sqrt(weights @ covariance @ weights))
    assert np.mean(spreads[counts[1]]) < np.mean(spreads[counts[0]])


def test_intervals_hold_what_they_promise() -> None:
    held = []
    for seed in range(300):
        *pairs, last = pairs_of(np.random.default_rng(seed), 13)
        means, covariance = Ratios(PRIOR, pairs).of([last.kinds])
        reach = 1.645 * math.hypot(math.sqrt(covariance[0, 0]), last.noise)
        held.append(abs(last.log_ratio - means[0]) <= reach)
    assert 0.84 < np.mean(held) < 0.96


def test_a_rewritten_kernel_moves_its_kind_alone_and_a_contradiction_widens_it() -> None:
    rewritten = [Pair((("Conv depthwise", 1.0),), math.log(1.5), 0.01)] * 4
    alike = [Pair(kinds, 0.0, 0.01) for kinds in ALONE if kinds[0][0] != "Conv depthwise"] * 4
    means, covariance = Ratios(PRIOR, [*rewritten, *alike]).of(ALONE)
    assert np.exp(means) == pytest.approx([1.0, 1.0, 1.5, 1.0], abs=0.03)
    untouched = Ratios(PRIOR, alike).of(ALONE)[1].diagonal()
    assert np.all(covariance.diagonal()[[0, 1, 3]] < 1.3 * untouched[[0, 1, 3]])
    alike = [Pair(kinds, 0.0, 0.01) for kinds in ALONE] * 3
    odd = Pair((("Conv kxk", 1.0),), math.log(1.5), 0.01)
    before = np.sqrt(Ratios(PRIOR, alike).of(ALONE)[1].diagonal())
    after = np.sqrt(Ratios(PRIOR, [*alike, odd]).of(ALONE)[1].diagonal())
    assert after[1] > 3 * before[1] and after[0] < 1.2 * before[0]


def test_a_cell_of_every_kind_that_takes_time_is_asked_for_once() -> None:
    cells: list[Kinds] = [*ALONE[:3], (("Conv 1x1", 0.5), ("Conv kxk", 0.5)), *ALONE[3:]]
    uses_us = [100.0, 100.0, 100.0, 300.0, 5.0]
    asked = Ratios(PRIOR, []).unchecked(cells, uses_us)
    assert sorted(asked) == [2, 3]  # both convolutions by the one that takes most
    assert Ratios(PRIOR, [Pair(ALONE[2], 0.0, 0.01)]).unchecked(cells, uses_us) == [3]
