"""A store of which only whole networks are recorded, whose latencies follow a known law."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from hybridlat.engines import device_sheets
from hybridlat.graph.signature import sign
from hybridlat.model.family.observations import kernel_set
from hybridlat.model.family.physics import table_of_texts
from hybridlat.model.family.shipped import copies_of
from hybridlat.model.family.tasks import Task
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.model.family.worlds import true_us
from tests.networks import conv_relu

HERE = Target("t4", "tensorrt-8.6", "fp16")
THERE = Target("v100", "tensorrt-8.6", "fp16")
FAMILIES = ("resnet", "densenet", "vgg", "inception", "mobilenetv2", "regnet", "xception")


def networks(count: int) -> dict[str, list[tuple[str, int]]]:
    """Name → its cells (texts and counts); names are variants of a few families."""
    draw = np.random.default_rng(0)
    result = {}
    for i in range(count):
        cells: Counter[str] = Counter()
        for _ in range(5):
            channels, size = int(draw.choice([8, 16, 32, 64])), int(draw.choice([14, 28, 56]))
            network = conv_relu(channels, size, int(draw.choice([1, 3])))
            cells[sign(network).text] += int(draw.integers(1, 4))
        result[f"{FAMILIES[i % len(FAMILIES)]}{i}"] = sorted(cells.items())
    return result


def with_twins(nets: Mapping[str, list[tuple[str, int]]]) -> dict[str, list[tuple[str, int]]]:
    """The networks, and deeper ones of the same cells under other names."""
    deeper = {
        f"{name}_deeper": [(text, count + 1) for text, count in cells]
        for name, cells in nets.items()
    }
    return {**nets, **deeper}


def fill(
    store: Store,
    targets: Sequence[Target],
    nets: Mapping[str, list[tuple[str, int]]],
    layers: bool = True,
) -> None:
    """Record every network on every target, twice the first of them, one more as suspect."""
    draw = np.random.default_rng(1)
    for target in targets:
        task = Task(target.device, target.runtime, target.precision, "", copies_of(target))
        device = device_sheets.load(target.device)
        for place, (name, cells) in enumerate(nets.items()):
            texts, counts = zip(*cells, strict=True)
            store.add_signatures({hash_of(text): text for text in texts})
            pairs = tuple((hash_of(text), count) for text, count in cells)
            labels, whole = {"batch": "1", "copied_bytes": "600000"}, hash_of(name)
            parts = (pairs, pairs if layers else ())
            store.add_breakdowns([Breakdown(target, name, whole, *parts, labels=labels)])
            kernels = kernel_set(table_of_texts(texts, counts), device, target.precision)
            us = true_us(kernels, task)
            for source in "ab" if place == 0 else "a":
                noisy_us = us * float(np.exp(0.02 * draw.standard_normal()))
                labels = {"network": name, "source": source}
                store.add([Measurement(target, whole, "network", noisy_us, labels=labels)])
        labels = {"network": name, "source": "c"}
        suspect = Measurement(target, whole, "network", 50 * us, labels=labels, suspect=True)
        store.add([suspect])


def hash_of(text: str) -> str:
    """32 hex digits that name a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
