"""Measurements that take as little time as they can, for tests of what is made of them."""

import dataclasses
from collections.abc import Callable
from typing import Any


def shorten(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """What is measured without settings is measured once, for a short time; ``put`` sets that."""
    from hybridlat.api import measure
    from hybridlat.measuring import schedule

    short = schedule.MeasurementConfig(
        rounds=1, processes=1, max_processes=1, visit_ms=2.0, network_visit_ms=20.0,
        network_visits=1,
    )  # fmt: skip
    put(schedule.MeasurementConfig.__init__, "__defaults__", dataclasses.astuple(short))
    put(measure, "ON_DEMAND", short)
    put(schedule, "_PROBE_VISITS", 1)
    put(schedule, "REPLICAS", dict.fromkeys(schedule.REPLICAS, (2, 2, 0)))
