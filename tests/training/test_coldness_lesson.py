"""Before the first cells of a machine: how cold they are, where there is time to find out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hybridlat.errors import BackendUnavailable
from hybridlat.measuring.coldness import Coldness, Sample
from hybridlat.measuring.isolated import MeasurementConfig
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training import coldness_lesson, onboarding
from hybridlat.training.coldness_lesson import LEAST_MEASURING_S, wants_coldness
from tests.fakes.fake_backend import FakeBackend, FakeDifferentialBackend, Machine
from tests.networks import residual_block

QUICK = MeasurementConfig(
    rounds=1, processes=1, max_processes=1, visit_ms=1.0, network_visit_ms=1.0
)
DEVICE = Device("fake", "cpu", {"fp32": 1e11}, 1e10, 1, 0.0, (32768, 1 << 20), "made up", "fake")
FOUND = Coldness(0.7, ("a", "b"), ((0.01, -0.01), (0.04, -0.04), (0.09, 0.08)))


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    folder.mkdir()
    for blocks in range(1, 7):
        network = residual_block(channels=8 * blocks, blocks=blocks)
        (folder / f"blocks{blocks}.onnx").write_bytes(to_onnx(network, seed=None))
    return folder


class Asked:
    """Stands for the search: keeps what it was asked for, and answers ``FOUND``."""

    def __init__(self, answer: Coldness | Exception = FOUND) -> None:
        self.answer = answer
        self.samples: list[Sequence[Sample]] = []

    def __call__(
        self, backend: object, options: object, samples: Sequence[Sample], *_: Any
    ) -> Coldness:
        self.samples.append(samples)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def run(nets: Path, tmp_path: Path, budget_s: float = 900.0) -> onboarding.Onboarded:
    return onboarding.onboard_target(
        FakeBackend(Machine(noise_share=0.0)), {}, budget_s, store=str(tmp_path / "s.db"),
        nets=nets, device=DEVICE, track=False, settings=QUICK, most_kernels=3,
    )  # fmt: skip


def test_what_was_found_is_a_note_and_every_cell_is_measured_with_it(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked()
    monkeypatch.setattr(coldness_lesson, "find_coldness", asked)
    found = run(nets, tmp_path)
    assert [note for note in found.notes if note.startswith("cells are measured with 0.7 times")]
    [samples] = asked.samples
    assert {s.name for s in samples} <= {p.stem for p in nets.iterdir()} and len(samples) >= 5
    assert all(count >= 1 for s in samples for _, count in s.cells)
    with Store(str(tmp_path / "s.db")) as store:
        records = [r for r in store.measurements() if not r.labels.get("role")]
    assert records and {r.environment["coldness"] for r in records} == {"0.70"}
    again = run(nets, tmp_path)  # cells are known: it stays, and nobody asks
    assert len(asked.samples) == 1 and not any("replicas" in note for note in again.notes)


def test_an_engine_that_does_not_start_leaves_it_to_what_measures_next(
    nets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        coldness_lesson, "find_coldness", Asked(BackendUnavailable("the engine is away"))
    )
    found = run(nets, tmp_path)
    assert found.networks == 6 and not any("replicas" in note for note in found.notes)


def test_who_has_little_time_or_known_cells_or_no_replicas_does_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybridlat.measuring.measurer import measurer_of

    store = Store(str(tmp_path / "s.db"))
    replicas = measurer_of(FakeBackend(), {})
    assert wants_coldness(replicas, store, LEAST_MEASURING_S)
    assert not wants_coldness(replicas, store, LEAST_MEASURING_S - 1)
    differential = measurer_of(FakeDifferentialBackend(), {})
    assert not wants_coldness(differential, store, LEAST_MEASURING_S)
    shipped = FakeBackend(target=Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t"))
    assert not wants_coldness(measurer_of(shipped, {}), store, LEAST_MEASURING_S)
