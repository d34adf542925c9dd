"""Devices and networks that are known, and the numbers of estimates that have them."""

from pathlib import Path

from hybridlat.estimate.partition import Partitioner
from hybridlat.onnx_io import load
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store


def make_known(device: str, store: str) -> None:
    """Keep one record of the device under an engine that no test asks for."""
    target = Target(device, "openvino-2024.1", "fp32", 1)
    with Store(store) as opened:
        opened.add([Measurement(target, "0" * 32, "cell", 1.0, 0.01)])


def keep_network(store: Store, target: Target, source: Path | bytes, latency_us: float) -> None:
    """Keep a network's latency with its cells, as measuring it does."""
    partition = Partitioner(target, store).partition(load(source))
    store.add_signatures(partition.texts)
    store.add_breakdowns([partition.breakdown(target, partition.whole)])
    store.add([Measurement(target, partition.whole, "network", latency_us, 0.01)])


def ends(estimate: Estimate) -> tuple[float, float, float]:
    """The lower end, the latency and the upper end, in µs."""
    assert estimate.latency_us is not None and estimate.interval_us is not None
    return estimate.interval_us[0], estimate.latency_us, estimate.interval_us[1]
