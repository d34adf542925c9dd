"""``hybridlat doctor``: what is here, how steady it is, what is in the way."""

import json
import math
from pathlib import Path

import pytest

from hybridlat.cli import doctor as checkup
from hybridlat.engines import registry
from hybridlat.engines.host import PROC_VARIABLE
from hybridlat.engines.registry import ResolvedEngine
from hybridlat.errors import BackendUnavailable
from hybridlat.measuring.machine import of_levels
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.cli.shell import run
from tests.fakes.fake_backend import FakeBackend

FAKE = Target.parse("fake/fake-1.0/fp32/1t")


@pytest.fixture
def fake_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine in the place of this machine's CPU."""
    engine = ResolvedEngine(FAKE, FakeBackend())
    monkeypatch.setattr(registry, "resolve", lambda _: engine)


@pytest.mark.usefixtures("fake_default")
def test_it_says_what_is_here_where_things_lie_and_what_is_held(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        visits = tuple(Visit((5.0,), 1.0 + 0.2 * process, process) for process in (0, 0, 1, 1))
        at = "2026-11-01T10:00:00+00:00"
        store.add([Measurement(FAKE, "0" * 32, "network", 5.0, 0.01, visits, measured_at=at)])
    result = run(checkup.doctor, "--time-limit", "0.2s", "--json", "--store", str(path))
    found = json.loads(result.stdout)
    assert found["can_measure"] and found["format"] == 1
    engines = {engine["name"]: engine for engine in found["engines"]}
    assert engines["onnxruntime"]["target"] and engines["onnxruntime"]["version"]
    assert engines["torch-compile"]["why_not"] and not engines["torch-compile"]["measures"]
    [held] = found["held"]
    assert (held["target"], held["networks"], held["last"]) == (str(FAKE), 1, at)
    assert held["wander_share"] > 0.02
    assert str(path) in found["store"]
    assert found["machine"]["device"] and int(found["machine"]["cores"]) >= 1
    timed = found["steadiness"]
    assert timed["processes"] == 2 and timed["visits"] >= 6 and timed["latency_us"] > 0
    assert not result.stderr  # a program reads it


@pytest.mark.usefixtures("fake_default")
def test_people_are_shown_the_same_and_progress_goes_to_standard_error(tmp_path: Path) -> None:
    result = run(checkup.doctor, "--time-limit", "0", "--store", str(tmp_path / "none.db"))
    for words in ("onnxruntime", "not made yet", "This machine can measure"):
        assert words in result.stdout
    assert "looking for engines" in result.stderr
    assert not (tmp_path / "none.db").exists()


def test_without_an_engine_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> ResolvedEngine:
        raise BackendUnavailable("onnxruntime cannot be imported")

    monkeypatch.setattr(registry, "resolve", refuse)
    result = run(checkup.doctor, "--store", str(tmp_path / "none.db"), code=3)
    for words in ("onnxruntime cannot be imported", "cannot measure as it is"):
        assert words in result.stdout


@pytest.mark.usefixtures("fake_default")
def test_a_store_that_cannot_be_read_is_a_problem_and_no_end(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"no database at all, but long enough to be read as one" * 40)
    result = run(checkup.doctor, "--time-limit", "0", "--json", "--store", str(path), code=3)
    [problem] = [p for p in json.loads(result.stdout)["problems"] if p["severity"] == "error"]
    assert "store" in problem["what"] and "store check" in problem["fix"]


@pytest.mark.usefixtures("fake_default")
def test_an_unsteady_busy_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    governor, quota = tmp_path / "governor", tmp_path / "quota"
    governor.write_text("powersave\n")
    quota.write_text("150000 100000\n")
    monkeypatch.setattr(checkup, "_SYSTEM_FILES", {"governor": governor, "cpu_quota": quota})
    (tmp_path / "loadavg").write_text("900.0 900.0 900.0 901/2000 77\n")
    monkeypatch.setenv(PROC_VARIABLE, str(tmp_path))
    swinging = of_levels(str(FAKE), 1.0, [[100.0, 110.0] * 20, [130.0, 100.0] * 20])
    monkeypatch.setattr(checkup, "steadiness", lambda *_: swinging)
    found = json.loads(run(checkup.doctor, "--json", "--store", str(tmp_path / "none.db")).stdout)
    said = " ".join(p["what"] for p in found["problems"])
    for words in ("powersave", "150000 100000", "busy: a load of", "visits differ", "wandered"):
        assert words in said
    assert found["can_measure"]
    shown = run(checkup.doctor, "--time-limit", "0", "--store", str(tmp_path / "none.db")).stdout
    last = "This machine can measure, but less surely while the warnings last."
    assert shown.splitlines()[-1] == last


def test_noise_is_from_visit_to_visit_and_pace_is_over_all() -> None:
    still = of_levels("t", 1.0, [[100.0] * 10, [100.0] * 10])
    assert still.noise_share == still.wander_share == 0.0 and still.latency_us == 100.0
    apart = of_levels("t", 1.0, [[100.0] * 10, [110.0] * 10])
    assert apart.noise_share == 0.0
    assert apart.wander_share == pytest.approx(math.log(1.1) / math.sqrt(2))
    assert apart.slowest_share == pytest.approx(0.1)
    noisy = of_levels("t", 1.0, [[100.0, 104.0] * 10])
    assert noisy.noise_share == pytest.approx(0.04, rel=0.1)
