"""How busy the machine was with other work: read, kept, and what follows for its constants."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from hybridlat.engines import host
from hybridlat.measuring.machine import constant_us, is_overhead_known
from hybridlat.schema.measurement import MachineLoad, busiest, load_of, mean_load, was_busy
from hybridlat.store import Store
from tests.fakes.fake_backend import FakeBackend

QUIET, BUSY = MachineLoad(0.4, 0.0, 2), MachineLoad(9.7, 0.0, 2)


def write(proc: Path, running: int, stolen: int, idle: int) -> None:
    (proc / "loadavg").write_text(f"0.10 0.20 0.30 {running}/200 77\n", encoding="utf-8")
    (proc / "stat").write_text(f"cpu  50 0 50 {idle} 0 0 0 {stolen} 0 0\n", encoding="utf-8")


def test_tasks_and_stolen_time_are_counted_but_not_the_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.PROC_VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    write(tmp_path, 3, 0, 100)
    meter = host.LoadMeter(own_threads=1, cores=4)
    write(tmp_path, 9, 100, 1000)
    meter.sample()
    # (2 + 8) / 2 other tasks on eight cores, of which four may be used.
    assert meter.load() == MachineLoad(2.5, 0.1, 4)
    assert host.LoadMeter(own_threads=9, cores=4).load() == MachineLoad(0.0, 0.0, 4)


@pytest.mark.parametrize("text", ["", "0.00 0.00 0.00 0/0 0\n", "nonsense\n"])
def test_a_system_that_does_not_tell_counts_as_unknown(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.PROC_VARIABLE, str(tmp_path))
    assert host.LoadMeter().load() is None
    (tmp_path / "loadavg").write_text(text, encoding="utf-8")
    assert host.LoadMeter().load() is None


def test_the_load_stands_in_an_environment_and_says_who_was_busy() -> None:
    for load in (QUIET, BUSY, MachineLoad(0.0, 0.12, 1)):
        assert load_of(load.environment()) == load
    busy = (BUSY, replace(QUIET, steal_share=0.06), *(MachineLoad(1.0, 0.0, n) for n in (1, 2)))
    assert all(load.is_busy for load in busy)
    assert not (QUIET.is_busy or MachineLoad(1.0, 0.0, 8).is_busy)
    assert load_of({}) is None and not was_busy({"load": "many", "load_cores": "2"})
    assert mean_load([]) is None and mean_load([None, QUIET, BUSY]) == MachineLoad(5.05, 0.0, 2)
    assert busiest([QUIET.environment(), {}]) is None
    assert busiest([QUIET.environment(), BUSY.environment()]) == BUSY
    assert "(9.7 other tasks on 2 cores)" in BUSY.sentence
    assert "12 % of the CPU time taken by others" in MachineLoad(0.0, 0.12, 1).sentence


def test_what_a_busy_machine_recorded_of_itself_holds_until_it_is_quiet(tmp_path: Path) -> None:
    store, backend = Store(tmp_path / "store.db"), FakeBackend()
    overhead_us = partial(constant_us, store, backend, "entry cost")
    assert overhead_us(9.0, BUSY) == 9.0
    assert not is_overhead_known(store, backend)
    assert overhead_us(8.0, BUSY) == 9.0
    assert overhead_us(3.0, QUIET) == 3.0
    assert is_overhead_known(store, backend)
    assert overhead_us(7.0, BUSY) == 3.0
