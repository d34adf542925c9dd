"""One visit: who gets how many samples, and the reference among them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hybridlat.board.visits import Engine, Reading, visit


class Steady(Engine):
    """Each model takes the time that its key says, in microseconds."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def run_us(self, key: str, count: int, during: Callable[[], None] | None = None) -> list[float]:
        self.order.append(key)
        if during is not None:
            during()
        return [float(key)] * count

    def read_sensors(self) -> Reading:
        return {"sm_mhz": 1500.0}


def test_a_pair_alternates_and_the_slow_one_gets_its_samples() -> None:
    engine = Steady()
    visited = visit(engine, ["5000", "20"], 60, 0.0, 30.0, "10")
    assert set(visited["samples_us"]) == {"5000", "20"}
    assert 60 <= len(visited["samples_us"]["5000"]) < 70
    assert 200 <= len(visited["samples_us"]["20"]) < 500  # and the quick one not thousands
    assert visited["reference_us"] == 10.0
    taking = engine.order[-9:]
    assert taking == ["5000", "20", "10"] * 3
    assert visited["sensors"]["20"]["sm_mhz"] == 1500.0


def test_a_limit_ends_it_with_what_there_is() -> None:
    visited = visit(Steady(), ["5000"], 10_000_000, 0.0, 0.05)
    assert visited["samples_us"]["5000"]
    assert "reference_us" not in visited
    visited = visit(Steady(), ["10"], 20, 0.0, 5.0, "10")  # a reference is measured as well
    assert visited["reference_us"] == pytest.approx(10.0)
    assert len(visited["samples_us"]["10"]) >= 20
