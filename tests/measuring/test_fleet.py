"""A fleet of fakes: the work is shared, survives a killed device, and is done once."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.api.measure import measure_on_fleet
from hybridlat.errors import BackendUnavailable, InputError
from hybridlat.measuring.fleet import Fleet, SchedulerLost, _answer
from hybridlat.measuring.fleet_device import read_fleet, shares
from hybridlat.measuring.measurer import MeasureRequest
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.progress import Progress
from hybridlat.store import Store
from tests.fakes.fake_backend import QUICK
from tests.networks import classifier

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("distributed"), reason="distributed (Dask) is not installed"
)
TARGET, OTHER = "fake/fake-1.0/fp32/1t", "other/fake-1.0/fp32"


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
        f'[[device]]\ntarget = "{TARGET}"\nlocal = true\nenv = {{NUMBER = "{n}"}}\n'
        for n in range(count)
    ]
    path.write_text(more + "\n".join(devices))
    return path


def known(store: Store) -> list[tuple[str, ...]]:
    """Everything recorded of networks, by what it is."""
    records = [record for record in store.measurements() if not record.labels.get("role")]
    assert all(record.latency_us for record in records)
    return [(str(r.target), r.kind, r.signature, r.labels["network"]) for r in records]


@pytest.fixture(scope="module")
def alone(nets: list[Path], tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, ...]]:
    """The same by one device."""
    url = str(tmp_path_factory.mktemp("alone") / "s.db")
    with Predictor(TARGET, store=url, settings=QUICK) as predictor:
        for path in nets:
            predictor.measure(path)
        return set(known(predictor.store))


class Killer:
    """Kills a device while units are measured, once."""

    def __init__(self) -> None:
        self.pids: Mapping[str, int] = {}
        self.killed = ""
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


def pages_of(fleet: Fleet) -> list[str]:
    """Pages of Dask's own that answer whoever asks."""
    info = fleet.client.scheduler_info(n_workers=-1)
    services = [info["services"], *(worker["services"] for worker in info["workers"].values())]
    ports = [port for each in services for port in each.values()]
    assert len(ports) == 1 + len(info["workers"])
    found = []
    for port, page in itertools.product(ports, ("health", "info/main/workers.html", "metrics",
                                                "sitemap.json", "json/counts.json")):  # fmt: skip
        with contextlib.suppress(urllib.error.URLError):
            found.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=9).url)
    return found


def test_three_devices_one_of_them_killed_measure_what_one_does(
    nets: list[Path], alone: set[tuple[str, ...]], tmp_path: Path
) -> None:
    killer = Killer()
    with Store(str(tmp_path / "fleet.db")) as store:
        file = read_fleet(fleet_file(tmp_path, 3))
        with Fleet(file, killer) as fleet:
            killer.pids = pids_of(fleet)
            assert pages_of(fleet) == []
            reports, problems = measure_on_fleet(fleet, nets, store, settings=QUICK)
            again, _ = measure_on_fleet(fleet, nets, store, settings=QUICK)
        assert killer.killed
        assert problems == [] and not any(one.failures for one in reports)
        found = known(store)
        assert len(list(store.breakdowns())) == len(nets)
    # What a device had measured in the moment it was killed is measured again: both are kept.
    assert set(found) == alone
    devices = fleet.reports.values()
    assert sum(d.cells + d.networks for d in devices) == len(found)
    assert sum(d.cells > 0 for d in devices) >= 2
    assert killer.last is not None and killer.last.done == killer.last.total == len(found)
    # All is known now, whole networks too.
    assert [one.records for one in again] == [()] * len(nets)
    # The sum is that of the store, whichever device measured the cells.
    assert all(one.sum_of_cells_us for one in reports)


SCHEDULER = f"""\
import time
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(2, 2, resources={{{TARGET!r}: 1}}, dashboard_address=None,
                      scheduler_kwargs={{"dashboard_address": "127.0.0.1:0"}}) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Somebody's Dask cluster, which cannot see the store; its file is written."""
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "scheduler.py")], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
        env={**os.environ, "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "2s"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        head = f'scheduler = "{process.stdout.readline().strip()}"\n'
        device = f'[[device]]\ntarget = ["{TARGET}", "{OTHER}"]\ndask = true\n'
        (tmp_path / "fleet.toml").write_text(head + device)
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_workers_of_dask_with_the_resource_measure_and_others_are_waited_for(
    nets: list[Path], alone: set[tuple[str, ...]], tmp_path: Path,
    scheduler: subprocess.Popen[str],
) -> None:  # fmt: skip
    said: list[str] = []
    file = read_fleet(tmp_path / "fleet.toml")
    with Store("sqlite://") as store, Fleet(file, None, said.append) as fleet:
        _, problems = measure_on_fleet(fleet, nets, store, settings=QUICK)
        assert sorted(known(store)) == sorted(alone)
        # The pace of the machine, from the workers themselves.
        assert "reference" in {record.labels.get("role") for record in store.measurements()}
    assert len(problems) == len(nets)
    assert all(code == 3 and f"no device of {OTHER} is there" in text for text, code in problems)
    assert any(f'--resources "{OTHER}=1"' in line for line in said)
    assert len(fleet.reports) == 2 and all(device.cells for device in fleet.reports.values())


def test_a_scheduler_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.measuring.fleet.CONNECT_S", 1.0)
    path = tmp_path / "fleet.toml"
    head = 'scheduler = "tcp://127.0.0.1:9"\n'
    path.write_text(f'{head}[[device]]\ntarget = "{TARGET}"\ndask = true\n')
    with pytest.raises(BackendUnavailable, match=r"no scheduler of Dask answers at tcp://127"):
        Fleet(read_fleet(path)).__enter__()


def test_a_scheduler_that_dies_ends_it_with_a_sentence(
    nets: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    scheduler: subprocess.Popen[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("hybridlat.measuring.fleet.CONNECT_S", 3.0)

    def kill(progress: Progress) -> None:
        if progress.label and scheduler.poll() is None:
            os.killpg(scheduler.pid, signal.SIGKILL)

    with (
        Store(str(tmp_path / "s.db")) as store,
        pytest.raises(BackendUnavailable, match="connection to Dask's scheduler was lost"),
        Fleet(read_fleet(tmp_path / "fleet.toml"), kill) as fleet,
    ):
        measure_on_fleet(fleet, nets, store, settings=QUICK)


def test_a_scheduler_may_die_while_an_answer_is_on_its_way() -> None:
    class Task:
        status = "finished"

        def result(self) -> None:
            raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(SchedulerLost, match="connection to Dask's scheduler was lost"):
        _answer(Task(), "t")


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


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


ORIN = 'target = "orin/tensorrt-8.6/fp16"\n'
FAKE = f'target = "{TARGET}"\n'


def test_every_kind_of_device(tmp_path: Path) -> None:
    text = f"""\
scheduler = "tcp://server:8786"

[[device]]
target = ["orin/tensorrt-8.6/fp16", "orin/tensorrt-8.6/fp32"]
host = "user@left"

[[device]]
{FAKE}local = true
env = {{ CUDA_VISIBLE_DEVICES = "1" }}

[[device]]
{FAKE}dask = true
"""
    fleet = read_fleet(write(tmp_path, text))
    left, here = fleet.own
    assert fleet.scheduler == "tcp://server:8786"
    assert (left.name, here.name) == ("user@left", "local CUDA_VISIBLE_DEVICES=1")
    assert left.resources == {"orin/tensorrt-8.6/fp16": 1.0, "orin/tensorrt-8.6/fp32": 1.0}
    assert list(map(str, fleet.targets)) == [*left.resources, TARGET]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing required field `device`"),
        ("[[device]\n", "Expected"),
        (f"[[device]]\n{ORIN}\nhots = 'a'", "unknown field `hots` - at `$.device[0]`"),
        (f"[[device]]\n{ORIN}", "it has none of host, local and dask"),
        (f"[[device]]\n{ORIN}local = true\nhost = 'a'", "it has host and local: write one of"),
        ("[[device]]\ntarget = 'orin'\nlocal = true", "'orin' is not a target"),
        ("[[device]]\ntarget = 'orin/tensorrt/fp16'\nhost = 'a'", "write orin/tensorrt-8.6/fp16"),
        ("[[device]]\ntarget = 'orin/tensorrt-99/fp16'\nhost = 'a'", "tensorrt-99 names no"),
        (f"[[device]]\n{FAKE}host = 'a'", "plans are for tensorrt"),
        (f"[[device]]\n{ORIN}host = '-oProxyCommand=x'", "'-oProxyCommand=x' is no host"),
        (f"[[device]]\n{ORIN}host = 'a'\nenv = {{A = '1'}}", "env goes with local alone"),
        (f"[[device]]\n{ORIN}dask = true", "dask = true needs the scheduler"),
        (f"scheduler = 'server'\n[[device]]\n{ORIN}local = true", "at `$.scheduler`"),
        (f"[[device]]\n{ORIN}host = 'a'\n" * 2, "a stands there twice"),
        (f"[[device]]\n{FAKE}local = true\n" * 2, "local devices differ by env"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_fleet(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
