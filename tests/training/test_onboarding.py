"""A new device is made known: networks, then random kernels, then a model; twice goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hybridlat.errors import InputError, MeasurementError, MissingExtra
from hybridlat.measuring.isolated import MeasurementConfig
from hybridlat.measuring.measurer import Measurer, MeasureRequest, measurer_of
from hybridlat.measuring.schedule import is_wanted
from hybridlat.model.fit import fit_model
from hybridlat.model.training_problem import FitConfig
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.device import Device
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.progress import OnProgress
from hybridlat.store import Store
from hybridlat.training import onboarding
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend, Machine
from tests.networks import classifier, conv_relu, residual_block
from tests.slow import slow

QUICK = MeasurementConfig(
    rounds=1, processes=1, max_processes=1, visit_ms=1.0, network_visit_ms=1.0
)
DEVICE = Device("fake", "cpu", {"fp32": 1e11}, 1e10, 1, 0.0, (32768, 1 << 20), "made up", "fake")


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    folder.mkdir()
    for name, network in (
        ("classifier", classifier()), ("conv", conv_relu()), ("blocks", residual_block(blocks=2)),
    ):  # fmt: skip
        (folder / f"{name}.onnx").write_bytes(to_onnx(network, seed=None))
    return folder


def run(backend: FakeBackend, nets: Path, tmp_path: Path, kernels: int) -> onboarding.Onboarded:
    return onboarding.onboard_target(
        backend, {}, 900.0, store=str(tmp_path / "s.db"), nets=nets, out=tmp_path / "models",
        device=DEVICE, track=False, settings=QUICK, most_kernels=kernels,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [FakeBackend, pytest.param(FakeDifferentialBackend, marks=slow)])
def test_networks_kernels_and_a_model(kind: type[FakeBackend], nets: Path, tmp_path: Path) -> None:
    backend = kind(Machine(noise_share=0.0))
    outcome = run(backend, nets, tmp_path, 70)
    assert outcome.networks == 3 and outcome.kernels >= 70
    assert outcome.trained is not None and outcome.trained.accepted
    with Store(str(tmp_path / "s.db")) as store:
        protocols = {
            r.protocol for r in store.measurements(kind="cell") if not r.labels.get("role")
        }
        assert len(list(store.breakdowns())) == 3
        before = len(list(store.measurements()))
    assert "isolated" not in protocols
    assert run(backend, nets, tmp_path, 0).kernels == 0
    with Store(str(tmp_path / "s.db")) as store:
        assert len(list(store.measurements())) == before  # nothing is measured twice


def test_too_little_is_no_model_but_a_note(nets: Path, tmp_path: Path) -> None:
    outcome = run(FakeBackend(Machine(noise_share=0.0)), nets, tmp_path, 0)
    assert outcome.trained is None
    assert any("too few to train on" in note for note in outcome.notes)


def test_what_is_learned_is_told_and_what_is_refused_is_a_note(nets: Path, tmp_path: Path) -> None:
    told: list[str] = []
    backend = FakeBackend(Machine(noise_share=0.0), refused_ops={"GlobalAveragePool"})
    found = onboarding.onboard_target(
        backend, {}, 900.0, store=str(tmp_path / "s.db"), nets=nets, device=DEVICE, track=False,
        settings=QUICK, most_kernels=5, on_message=told.append,
    )  # fmt: skip
    assert found.networks == 2 and found.kernels == 5
    assert any("classifier is left out" in note for note in found.notes)
    assert any("expected to be off by" in line and "conv" in line for line in told)
    with Store(str(tmp_path / "s.db")) as store:
        visits = [
            len(r.visits) for r in store.measurements(kind="cell") if not r.labels.get("role")
        ]
    assert visits and set(visits) == {1}  # each thing once


class Refusing:
    """A measurer whose engine refuses one network, and with it every run that holds it."""

    def __init__(self, real: Measurer, name: str) -> None:
        self.real, self.name, self.runs = real, name, 0

    @property
    def needs_network(self) -> bool:
        return self.real.needs_network

    @property
    def devices(self) -> int:
        return self.real.devices

    def measure(
        self, requests: Sequence[MeasureRequest], store: Store, settings: MeasurementConfig,
        on_progress: OnProgress | None = None,
    ) -> list[Measurement]:  # fmt: skip
        self.runs += 1
        if any(request.name == self.name for request in requests):
            raise MeasurementError(f"no kernel for {self.name}")
        return self.real.measure(requests, store, settings, on_progress)


def test_what_an_engine_refuses_costs_only_itself(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend(Machine(noise_share=0.0))
    refusing = Refusing(measurer_of(backend, {}), "conv")
    monkeypatch.setattr(onboarding, "measurer_of", lambda *_: refusing)
    found = run(backend, nets, tmp_path, 4)
    assert found.networks == 2 and found.kernels == 4 and refusing.runs < 20
    assert [note for note in found.notes if "conv was not measured: no kernel" in note]
    with Store(str(tmp_path / "s.db")) as store:
        assert len(list(store.measurements(kind="network"))) == 2


def test_what_was_disturbed_is_looked_at_again() -> None:
    calm, disturbed = Visit((100.0, 101.0, 102.0)), Visit((100.0, 400.0, 90.0))
    assert not is_wanted(onboarding.ONBOARDING, 1, [calm])
    assert is_wanted(onboarding.ONBOARDING, 1, [disturbed])
    assert is_wanted(onboarding.ONBOARDING, 2, [calm, Visit((250.0, 251.0), process=1)])
    assert not is_wanted(onboarding.ONBOARDING, 2, [calm, Visit((103.0, 104.0), process=1)])


def test_what_cannot_be_trained_on_is_not_measured_first(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.model.fit_trees.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install \"hybridlat\[train\]\""):
        run(FakeBackend(), nets, tmp_path, 4)
    with Store(str(tmp_path / "s.db")) as store:
        assert not list(store.measurements())
    with pytest.raises(MissingExtra, match="scikit-learn"):
        fit_model([], [], [], FitConfig(DEVICE))


def test_a_budget_of_nothing_is_refused(nets: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measures nothing"):
        onboarding.onboard_target(FakeBackend(), {}, 0.0, store=str(tmp_path / "s.db"), nets=nets)
