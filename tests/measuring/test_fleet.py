"""A fleet of fakes: the work is shared, survives a killed device, and is done once."""

from __future__ import annotations

import importlib.util
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.api.fleet import FleetReport, FleetRequest, measure_on_fleet
from hybridlat.errors import BackendUnavailable
from hybridlat.measuring.fleet import Fleet
from hybridlat.measuring.fleet_device import read_fleet, shares
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.progress import Progress
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.fakes.fake_backend import QUICK
from tests.networks import classifier

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("distributed"), reason="distributed (Dask) is not installed"
)
TARGET = "fake/fake-1.0/fp32/1t"


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three networks, of which two share nearly all cells."""
    paths = [tmp_path_factory.mktemp("nets") / f"net{place}.onnx" for place in range(3)]
    for place, path in enumerate(paths):
        network = classifier(8 * max(place, 1), classes=10 + place)
        path.write_bytes(to_onnx(network, seed=1))
    return paths


def fleet_file(folder: Path, count: int, more: str = "") -> Path:
    """``count`` processes of this machine, and what else is asked for."""
    path = folder / "fleet.toml"
    devices = [
        f'[[device]]\nname = "d{n}"\ntarget = "{TARGET}"\nlocal = true\nenv = {{NUMBER = "{n}"}}\n'
        for n in range(count)
    ]
    path.write_text(more + "\n".join(devices))
    return path


def known(records: Iterable[Measurement], once: bool = True) -> dict[tuple[str, ...], float]:
    """The latency of everything recorded of networks, by what it is; each is there ``once``.

    What a device had measured in the moment it was killed is measured again: both are kept.
    """
    found: dict[tuple[str, ...], float] = {}
    for record in records:
        if not record.labels.get("role"):
            key = (str(record.target), record.kind, record.signature, record.labels["network"])
            assert record.latency_us is not None and not (once and key in found)
            found[key] = record.latency_us
    return found


def typical_ratio(
    latencies: Mapping[tuple[str, ...], float], others: Mapping[tuple[str, ...], float]
) -> float:
    """The median over all that was measured: a single visit of the made-up engine is noisy."""
    return statistics.median(latencies[key] / others[key] for key in others)


@pytest.fixture(scope="module")
def alone(
    nets: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, ...], float]:
    """The same by one device."""
    url = str(tmp_path_factory.mktemp("alone") / "s.db")
    with Predictor(TARGET, store=url, settings=QUICK) as predictor:
        for path in nets:
            predictor.measure(path)
        return known(predictor.store.measurements())


class Killer:
    """Kills a device while units are measured, once."""

    def __init__(self) -> None:
        self.pids: Mapping[str, int] = {}
        self.killed = ""
        self.said: list[str] = []
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.last = progress
        if not self.killed:
            self.killed = next(iter(self.pids))
            os.kill(self.pids[self.killed], signal.SIGKILL)


def pids_of(fleet: Fleet) -> dict[str, int]:
    client = fleet.client
    names = {a: w["name"] for a, w in client.scheduler_info(n_workers=-1)["workers"].items()}
    return {names[address]: pid for address, pid in client.run(os.getpid).items()}


def test_three_devices_one_of_them_killed_measure_what_one_does(
    nets: list[Path], alone: dict[tuple[str, ...], float], tmp_path: Path
) -> None:
    killer = Killer()
    request = FleetRequest(nets, settings=QUICK)
    with Store(str(tmp_path / "fleet.db")) as store:
        file = read_fleet(fleet_file(tmp_path, 3))
        with Fleet(file, killer, killer.said.append) as fleet:
            killer.pids = pids_of(fleet)
            report = measure_on_fleet(request, fleet, store)
            again = measure_on_fleet(request, fleet, store)
        assert killer.killed
        assert report.problems == [] and not any(one.failures for one in report.reports)
        found = known(store.measurements(), once=False)
        assert len(list(store.breakdowns())) == len(nets)
    assert found.keys() == alone.keys()
    assert typical_ratio(found, alone) == pytest.approx(1, rel=0.05)
    devices = {one.name: one for one in report.devices}
    assert sum(d.cells + d.networks for d in devices.values()) == len(found)
    assert sum(d.cells > 0 for d in devices.values()) >= 2
    assert any(f"{killer.killed} is away" in line for line in killer.said)
    assert devices[killer.killed].lost == 1
    assert killer.last is not None and killer.last.done == killer.last.total == len(found)
    # All is known now, whole networks too.
    assert [one.records for one in again.reports] == [()] * len(nets)
    # The sum is that of the store, whichever device measured the cells.
    assert all(one.sum_of_cells_us for one in report.reports)


def on_dask(
    nets: list[Path], folder: Path, said: list[str], resources: Mapping[str, int]
) -> tuple[FleetReport, list[Measurement]]:
    """Measured by workers of somebody's Dask cluster, into a store that they cannot see."""
    distributed = importlib.import_module("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        local_directory=str(folder), resources=resources,
    ) as cluster:  # fmt: skip
        head = f'scheduler = "{cluster.scheduler_address}"\npatience_s = 2\n\n'
        text = f'{head}[[device]]\ntarget = "{TARGET}"\ndask = true\n'
        (folder / "fleet.toml").write_text(text)
        file = read_fleet(folder / "fleet.toml")
        with Store("sqlite://") as store, Fleet(file, None, said.append) as fleet:
            report = measure_on_fleet(FleetRequest(nets, settings=QUICK), fleet, store)
            return report, list(store.measurements())


def test_workers_of_dask_with_the_resource_measure(
    nets: list[Path], alone: dict[tuple[str, ...], float], tmp_path: Path
) -> None:
    report, records = on_dask(nets, tmp_path, [], {TARGET: 1})
    assert report.problems == []
    assert len(report.devices) == 2 and all(device.cells for device in report.devices)
    assert known(records).keys() == alone.keys()
    assert typical_ratio(known(records), alone) == pytest.approx(1, rel=0.05)
    # The pace of the machine, from the workers themselves.
    assert {record.labels.get("role") for record in records} >= {"reference"}


def test_workers_without_the_resource_are_not_asked_and_patience_ends(
    nets: list[Path], tmp_path: Path
) -> None:
    said: list[str] = []
    report, records = on_dask(nets[:1], tmp_path, said, {"other/fake-1.0/fp32": 1})
    ((problem, code),) = report.problems
    assert code == 3 and f"no device of {TARGET} is there" in problem and not records
    assert f'--resources "{TARGET}=1"' in problem


def test_a_device_that_is_another_machine_is_left_out(nets: list[Path], tmp_path: Path) -> None:
    wrong = TARGET.replace("fake-1.0", "fake-2.0")
    file = fleet_file(tmp_path, 1)
    file.write_text(file.read_text().replace(TARGET, wrong))
    said: list[str] = []
    with (
        Store(str(tmp_path / "s.db")) as store,
        Fleet(read_fleet(file), None, said.append) as fleet,
    ):
        report = measure_on_fleet(FleetRequest(nets[:1], settings=QUICK), fleet, store)
    ((problem, code),) = report.problems
    assert code == 3 and "this machine is fake/fake-1.0/fp32/1t" in problem
    assert report.devices[0].problem and any("d0 is left out" in line for line in said)


def test_a_scheduler_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.measuring.fleet.CONNECT_S", 1.0)
    path = tmp_path / "fleet.toml"
    head = 'scheduler = "tcp://127.0.0.1:9"\n'
    path.write_text(f'{head}[[device]]\ntarget = "{TARGET}"\ndask = true\n')
    with pytest.raises(BackendUnavailable, match=r"no scheduler of Dask answers at tcp://127"):
        Fleet(read_fleet(path)).__enter__()


SCHEDULER = f"""\
import time
from distributed import LocalCluster

if __name__ == "__main__":
    options = {{"dashboard_address": "127.0.0.1:0"}}
    with LocalCluster(1, 1, resources={{{TARGET!r}: 1}}, dashboard_address=None,
                      scheduler_kwargs=options) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
"""


def test_a_scheduler_that_dies_ends_it_with_a_sentence(
    nets: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.measuring.fleet.CONNECT_S", 3.0)
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "scheduler.py")], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            head = f'scheduler = "{process.stdout.readline().strip()}"\n'
            (tmp_path / "fleet.toml").write_text(
                f'{head}[[device]]\ntarget = "{TARGET}"\ndask = true\n'
            )
            file = read_fleet(tmp_path / "fleet.toml")

            def kill(progress: Progress) -> None:
                if progress.label and process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

            with (
                Store(str(tmp_path / "s.db")) as store,
                pytest.raises(BackendUnavailable, match="connection to Dask's scheduler was lost"),
                Fleet(file, kill) as fleet,
            ):
                measure_on_fleet(FleetRequest(nets, settings=QUICK), fleet, store)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_shares_are_even_and_whole() -> None:
    network = classifier()
    cells = {f"{n:032x}": network for n in range(5)}
    requests = [MeasureRequest("a", network, cells, True), MeasureRequest("b", network, {}, True)]
    dealt = shares(requests, 3)
    sizes = [sum(len(r.cells) + r.whole for r in hand) for hand in dealt]
    assert sizes == [3, 2, 2]
    assert {h for hand in dealt for r in hand for h in r.cells} == set(cells)
    assert sorted(r.name for hand in dealt for r in hand if r.whole) == ["a", "b"]
    assert shares(requests[1:], 3) == [(requests[1],)]


def test_a_target_of_none_of_the_devices_is_named(tmp_path: Path) -> None:
    fleet = Fleet(read_fleet(fleet_file(tmp_path, 1)))
    with pytest.raises(Exception, match=f"choose from {TARGET}"):
        fleet.ask(repr, Target.parse("other/fake-1.0/fp32"))
