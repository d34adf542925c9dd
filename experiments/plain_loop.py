"""Latency by a plain loop around ONNX Runtime: it shares nothing with how the product measures."""

import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime

from hybridlat.engines.host import pin
from hybridlat.onnx_io import read_network, to_onnx

_LOOP_S = 0.6
_WARM_UP_RUNS, _LEAST_RUNS = 5, 15


def loop_us(path: Path, as_it_is: bool = False) -> float:
    """The median of a network's runs with one thread, in a session of its own.

    The file itself runs, ``as_it_is``, or the same network with made-up weights.
    """
    pin(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = str(path) if as_it_is else to_onnx(read_network(path), seed=3)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feed = {each.name: rng.random(each.shape, np.float32) for each in session.get_inputs()}
    for _ in range(_WARM_UP_RUNS):
        session.run(None, feed)
    samples: list[float] = []
    end = time.perf_counter() + _LOOP_S
    while len(samples) < _LEAST_RUNS or time.perf_counter() < end:
        began = time.perf_counter()
        session.run(None, feed)
        samples.append(1e6 * (time.perf_counter() - began))
    return statistics.median(samples)
