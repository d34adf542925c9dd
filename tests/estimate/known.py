"""A CPU that is known, of which nothing is that helps."""

from __future__ import annotations

from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store


def make_known(device: str, store: str) -> None:
    """Keep one record of the device under an engine that no test asks for."""
    target = Target(device, "openvino-2024.1", "fp32", 1)
    with Store(store) as opened:
        opened.add([Measurement(target, "0" * 32, "cell", 1.0, 0.01)])
