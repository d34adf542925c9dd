"""A device made known by a fleet: its portions are shared out, and the store has all of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from hybridlat.measuring.fleet import Fleet, FleetMeasurer
from hybridlat.measuring.fleet_device import read_fleet
from hybridlat.onnx_io import to_onnx
from hybridlat.store import Store
from hybridlat.training.onboarding import OnboardingOptions, measure_target, onboard_fleet
from hybridlat.training.train import TrainingOptions
from tests.networks import classifier, residual_block
from tests.slow import slow
from tests.training.test_onboarding import DEVICE, QUICK

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("distributed"), reason="distributed (Dask) is not installed"
)
TARGET = "fake/fake-1.0/fp32/1t"


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    folder.mkdir()
    for name, network in (("classifier", classifier()), ("blocks", residual_block(blocks=2))):
        (folder / f"{name}.onnx").write_bytes(to_onnx(network, seed=None))
    return folder


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    device = '[[device]]\ntarget = "{}"\nlocal = true\nenv = {{NUMBER = "{}"}}\n'
    path.write_text(device.format(TARGET, 1) + device.format(TARGET, 2))
    return path


def test_two_devices_learn_together(nets: Path, fleet_file: Path, tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    with Fleet(read_fleet(fleet_file)) as fleet:
        (target,) = fleet.file.targets
        measurer = FleetMeasurer(fleet, target)
        assert not measurer.needs_network
        chosen = OnboardingOptions(900.0, url, nets, DEVICE, settings=QUICK, most_kernels=12)
        measured = measure_target(measurer, measurer, chosen)
        cells = [report.cells for report in fleet.reports]
    assert measured.networks == 2 and measured.kernels >= 12
    assert len(cells) == 2 and min(cells) > 0 and sum(cells) == measured.cells - 2
    with Store(url) as store:
        assert len(list(store.breakdowns())) == 2
        assert all(record.failure is None for record in store.measurements())


@slow
def test_every_target_is_trained_or_says_why_not(
    nets: Path, fleet_file: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    options = TrainingOptions(out=tmp_path / "models", device=DEVICE, track=False)
    with Fleet(read_fleet(fleet_file)) as fleet:
        chosen = OnboardingOptions(60.0, str(tmp_path / "s.db"), nets, DEVICE)
        (onboarded,) = onboard_fleet(fleet, chosen, options, said.append)
    assert onboarded.problem is None
    assert onboarded.trained is not None and onboarded.networks == 2
    assert any("training on" in line for line in said)
