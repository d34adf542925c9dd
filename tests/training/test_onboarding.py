"""A new device is made known: networks, then random kernels, then a model; twice goes on."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec import structs

from hybridlat import Predictor, onnx_io
from hybridlat.cli import main as cli
from hybridlat.engines import registry
from hybridlat.errors import MeasurementError, MissingExtra, StoreError
from hybridlat.graph.signature import sign
from hybridlat.measuring.measurer import Measurer, MeasureRequest
from hybridlat.measuring.schedule import MeasurementConfig, needs_visit
from hybridlat.model.fit import FitConfig, fit_model
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.workers import OnProgress, silent
from hybridlat.store import Store
from hybridlat.training import onboarding
from hybridlat.training.kernel_families import ATTENTION, COMMON, RARE, Family
from hybridlat.training.kernel_sampler import MOST_BYTES, draw, sweep
from hybridlat.training.onboarding import OnboardingOptions
from hybridlat.training.train import TrainingOptions
from tests.evaluation.made_pack import DEVICE
from tests.fakes.fake_backend import QUICK, FakeBackend, FakeDifferentialBackend, Machine
from tests.networks import Builder, classifier, conv_relu, residual_block
from tests.slow import slow


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    folder.mkdir()
    for network in (classifier(), conv_relu(), residual_block(blocks=2)):
        (folder / f"{network.name}.onnx").write_bytes(to_onnx(network, seed=None))
    return folder


def options(nets: Path, tmp_path: Path, budget_s: float = 900.0, **more: Any) -> OnboardingOptions:
    return OnboardingOptions(budget_s, str(tmp_path / "s.db"), nets, settings=QUICK, **more)


def run(
    backend: FakeBackend, nets: Path, tmp_path: Path, kernels: int, measurer: Any = None
) -> onboarding.Onboarded:
    chosen = options(nets, tmp_path, most_kernels=kernels)
    training = TrainingOptions(out=tmp_path / "models", device=DEVICE, track=False)
    measured = onboarding.measure_target(measurer or Measurer(backend), chosen)
    return onboarding.train_on(measured, training, chosen.store, silent)


@pytest.mark.parametrize("kind", [FakeBackend, pytest.param(FakeDifferentialBackend, marks=slow)])
def test_networks_kernels_and_a_model(kind: type[FakeBackend], nets: Path, tmp_path: Path) -> None:
    backend = kind(Machine(noise_share=0.0))
    outcome = run(backend, nets, tmp_path, 70)
    assert outcome.networks == 3 and outcome.kernels >= 70
    assert outcome.trained is not None and outcome.trained.accepted
    with Store(str(tmp_path / "s.db")) as store:
        cells = [r for r in store.measurements(kind="cell") if not r.labels.get("role")]
        assert len(list(store.breakdowns())) == 3
        before = len(list(store.measurements()))
    assert "isolated" not in {r.protocol for r in cells}
    again = options(nets, tmp_path, most_kernels=0)
    assert onboarding.measure_target(Measurer(backend), again).kernels == 0
    with Store(str(tmp_path / "s.db")) as store:
        assert len(list(store.measurements())) == before  # nothing is measured twice


def test_what_is_measured_is_said_and_what_is_refused_is_a_note(nets: Path, tmp_path: Path) -> None:
    said: list[str] = []
    backend = FakeBackend(Machine(noise_share=0.0), refused_ops={"GlobalAveragePool"})
    chosen = options(nets, tmp_path, most_kernels=5)
    done = onboarding.measure_target(Measurer(backend), chosen, on_message=said.append)
    assert done.networks == 2 and done.kernels == 5
    assert any("classifier is left out" in note for note in done.notes)
    assert "0 cells known" in said[0] and "s left; now 2 networks" in said[0]
    assert said[-1].endswith("now 5 random kernels")
    with Store(str(tmp_path / "s.db")) as store:
        visits = [
            len(r.visits) for r in store.measurements(kind="cell") if not r.labels.get("role")
        ]
    assert visits and set(visits) == {1}  # each thing once


@dataclass
class Played:
    """A measurer on a clock of its own: each cell takes ``cell_s``, each network ``network_s``."""

    backend: FakeBackend
    cell_s: float = 1.0
    network_s: float = 2.0
    now_s: float = 0.0
    needs_network: bool = False
    networks_s: float = 0.0
    names: list[str] = field(default_factory=list)

    def measure(
        self, requests: Sequence[MeasureRequest], store: Store, settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:  # fmt: skip
        del on_progress
        assert settings.budget_s is not None
        assert len(requests) == 1 or not self.needs_network  # a run of many cannot be cut
        began, records = self.now_s, []
        for request in requests:
            if self.now_s - began >= settings.budget_s:
                break
            at = self.now_s
            for hash_ in request.cells:
                records.append(Measurement(self.backend.target, hash_, "cell", 10.0))
                self.now_s += self.cell_s
            if request.whole:
                signature = sign(request.network).hash
                records.append(Measurement(self.backend.target, signature, "network", 99.0))
                self.now_s += self.network_s
            self.networks_s += (self.now_s - at) * (request.name != "kernel")
            self.names.append(request.name)
        store.add(records)
        return records


@pytest.fixture
def many_nets(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    for channels in range(8, 72, 4):
        network = residual_block(channels)
        (folder / f"net{channels}.onnx").write_bytes(to_onnx(network, seed=None))
    return folder


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played(FakeBackend())
    clock = SimpleNamespace(monotonic=lambda: played.now_s)
    monkeypatch.setattr(onboarding, "time", clock)
    return played


def collect(
    played: Played, nets: Path, tmp_path: Path, budget_s: float, **more: Any
) -> onboarding.Onboarded:
    chosen = options(nets, tmp_path, budget_s, **more)
    return onboarding.measure_target(cast("Any", played), chosen)


def test_two_fifths_of_the_time_go_to_networks_and_a_fifth_is_left_to_train(
    played: Played, many_nets: Path, tmp_path: Path
) -> None:
    done = collect(played, many_nets, tmp_path, 150.0)
    assert 0 < done.networks < 16 and done.kernels > 0
    assert played.networks_s == pytest.approx(0.4 * played.now_s, abs=onboarding.LEAST_RUN_S)
    assert 85.0 < played.now_s < 95.0  # 90 s, and a minute for training
    assert f"{16 - done.networks} networks did not fit into the budget" in done.notes


def test_a_second_run_goes_on(played: Played, many_nets: Path, tmp_path: Path) -> None:
    first = collect(played, many_nets, tmp_path, 150.0)
    names = set(played.names)
    played.names.clear()
    second = collect(played, many_nets, tmp_path, 150.0)
    assert second.networks > first.networks and second.cells > first.cells
    assert set(played.names) & names <= {"kernel"}
    third = collect(played, many_nets, tmp_path, 900.0, most_kernels=0)
    assert third.networks == 16 and not third.notes


def test_a_network_that_takes_a_quarter_of_the_time_left_is_left_out(
    played: Played, many_nets: Path, tmp_path: Path
) -> None:
    b = Builder()
    tensor = b.input((1, 8, 16, 16))
    for channels in range(9, 80):
        tensor = b.conv(tensor, channels, 1)
    (many_nets / "net8.onnx").write_bytes(to_onnx(b.network(tensor), seed=None))
    played.cell_s, played.network_s = 0.1, 0.5
    done = collect(played, many_nets, tmp_path, 30.0)
    assert "net8" not in played.names
    assert "1 network did not fit into the budget" in done.notes


def test_what_needs_its_network_is_measured_one_by_one(
    played: Played, many_nets: Path, tmp_path: Path
) -> None:
    played.needs_network = True
    assert collect(played, many_nets, tmp_path, 150.0, most_kernels=2).networks > 1


class Refusing(Measurer):
    """A measurer whose engine refuses one network, and with it every run that holds it."""

    def measure(self, requests: Sequence[MeasureRequest], *rest: Any) -> list[Measurement]:
        if any(request.name == "conv_relu" for request in requests):
            raise MeasurementError("no kernel for it")
        return super().measure(requests, *rest)


def test_what_an_engine_refuses_costs_only_itself(nets: Path, tmp_path: Path) -> None:
    backend = FakeBackend(Machine(noise_share=0.0))
    found = run(backend, nets, tmp_path, 4, Refusing(backend))
    assert found.networks == 2 and found.kernels == 4
    assert found.notes[0] == "conv_relu was not measured: no kernel for it"
    assert found.trained is None and "at least" in found.notes[-1]
    with Store(str(tmp_path / "s.db")) as store:
        assert len(list(store.measurements(kind="network"))) == 2


def test_what_was_disturbed_is_looked_at_again() -> None:
    calm, disturbed = Visit((100.0, 101.0, 102.0)), Visit((100.0, 400.0, 90.0))
    assert not needs_visit(onboarding.SETTINGS, 1, [calm])
    assert needs_visit(onboarding.SETTINGS, 1, [disturbed])
    assert needs_visit(onboarding.SETTINGS, 2, [calm, Visit((250.0, 251.0), process=1)])
    assert not needs_visit(onboarding.SETTINGS, 2, [calm, Visit((103.0, 104.0), process=1)])


def test_what_cannot_be_trained_on_is_not_measured_first(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.model.fit.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install \"\.\[train\]\""):
        run(FakeBackend(), nets, tmp_path, 4)
    with Store(str(tmp_path / "s.db")) as store:
        assert not list(store.measurements())
    with pytest.raises(MissingExtra, match="scikit-learn"):
        fit_model([], [], [], FitConfig(DEVICE))


@pytest.mark.usefixtures("unknown_cpu")
def test_a_new_version_is_checked_against_the_one_that_is_known(
    nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, known = str(tmp_path / "seen.db"), str(tmp_path / "known.db")
    for file in sorted(nets.glob("*.onnx"))[1:]:
        file.unlink()
    with Predictor(store=seen, settings=QUICK) as predictor:
        here = predictor.target
        (file,) = nets.glob("*.onnx")
        cells = [cell.signature for cell in predictor.predict(file).cells]
    other = replace(here, runtime="onnxruntime-0.9")
    with Store(seen) as measured, Store(known) as store:
        store.add(structs.replace(r, target=other) for r in measured.measurements(here))
        store.add_breakdowns(structs.replace(b, target=other) for b in measured.breakdowns(here))
        store.add_signatures(measured.signature_texts(cells))
        store.add(
            Measurement(other, sign(conv_relu(channels=n)).hash, "network", 50.0 + n, 0.02)
            for n in range(1, 11)
        )
    words = ["onboard", "--time-limit", "5m", "--nets", str(nets), "--no-track", "--json"]
    code = cli.run([*words, "--store", known])
    document = json.loads(capsys.readouterr().out)
    assert code == (0 if document["accepted"] else 3)  # 3 on a busy machine
    assert document["target"] == str(here) and document["by"] == str(other)
    assert document["networks"] == 1 and document["trained"] is None
    assert document["notes"][0].startswith(f"answered from {other}")
    monkeypatch.setattr(Store, "is_read_only", True)
    monkeypatch.setattr(Store, "require_writable", Mock(side_effect=StoreError("read only")))
    assert cli.run([*words, "--store", known]) == 2  # and not 0, with nothing measured


@pytest.mark.parametrize("chosen", [COMMON, RARE, ATTENTION], ids=["common", "rarer", "tokens"])
def test_networks_are_sound_and_within_limits(chosen: Mapping[str, Family]) -> None:
    families: set[str] = set()
    for seed in range(300):
        drawn = draw(seed, chosen)
        families.add(drawn.family)
        again = onnx_io.read_network(onnx_io.to_onnx(drawn.network, None))
        assert drawn.kernel <= {node.name for node in again.nodes}
        assert {n: again.types[n] for n in again.outputs} == {
            n: drawn.network.types[n] for n in drawn.network.outputs
        }
        assert drawn.network.weight_bytes < MOST_BYTES
    assert families == set(chosen)


def test_kernels_are_distinct_and_in_contexts_that_can_hold_them() -> None:
    drawn = list(sweep(FakeBackend(fuses=True), 200, seed=1))
    assert len(drawn) == len({h for h, _ in drawn}) == 200
    for hash_, cell in drawn[:50]:
        assert sign(cell).hash == hash_
        assert len(cell.nodes) == 1
    assert [h for h, _ in sweep(FakeBackend(fuses=True), 50, seed=1)] == [h for h, _ in drawn[:50]]
    backend = FakeBackend(fuses=True)
    backend.contexts = {"small": 1e6, "": math.inf}
    cells = [cell for _, cell in sweep(backend, 300)]
    assert {cell.context for cell in cells} == set(backend.contexts)
    assert all(2 * cell.weight_bytes < backend.contexts[cell.context] for cell in cells)


def test_onnx_runtime_shows_them_in_its_own_layout() -> None:
    backend = registry.open_backend("onnxruntime", {"threads": 1})
    drawn = [cell for _, cell in sweep(backend, 60)]
    assert len(drawn) == 60
    blocked = sum(cell.nodes[0].domain == "com.microsoft.nchwc" for cell in drawn)
    assert blocked > 30
