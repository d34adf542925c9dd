"""One visit: warm up until the clock is steady, then samples of one model or of a pair in turn."""

import time
from typing import Any, Dict, List

from .engines import Engine
from .nvml import Reading, summary

_BATCH_US = 15000.0
_MOST_PER_BATCH = 200
_OF_REFERENCE = 30
_COMPANY = 10


def visit(
    engine: Engine,
    keys: List[str],
    samples: int,
    warm_s: float,
    limit_s: float,
    reference: str = "",
) -> Dict[str, Any]:
    """``samples`` inferences of each key, batches of the keys alternating.

    A pair is taken in turn so that clock and heat are the same for both, and their difference is
    the model's. Warm-up goes on for up to three times ``warm_s`` while the SM clock still moves.
    ``limit_s`` ends the visit early, with whatever has been taken. The model ``reference`` takes
    its turns among them, so that it sees the clock that they see: ``reference_us`` is its median.
    """
    asked = keys
    if reference and reference not in keys:
        keys = keys + [reference]
    counts = {key: _warm(engine, key, warm_s / len(keys)) for key in keys}
    taken: Dict[str, List[float]] = {key: [] for key in keys}
    readings: Dict[str, List[Reading]] = {key: [] for key in keys}
    batches: Dict[str, List[int]] = {key: [] for key in keys}
    end = time.time() + limit_s
    enough = {key: samples if key in asked else min(samples, _OF_REFERENCE) for key in keys}
    while any(len(taken[key]) < enough[key] for key in keys):
        for key in keys:
            seen = readings[key]
            count = counts[key]
            if len(taken[key]) >= enough[key]:  # it goes on only to keep the others company
                count = min(count, _COMPANY)
            batch = engine.run_us(
                key,
                count + 1,
                lambda seen=seen: seen.append(engine.read_sensors()),  # type: ignore[misc]
            )
            taken[key].extend(batch[1:])  # the first fills the pipeline
            batches[key].append(len(batch) - 1)
        if time.time() > end:
            break
    result = {
        "samples_us": {k: [round(t, 3) for t in taken[k]] for k in asked},
        "sensors": {k: summary(readings[k]) for k in asked},
        "clocks": {
            k: [
                [n, r.get("sm_mhz"), r.get("temperature_c")]
                for n, r in zip(batches[k], readings[k])
            ]
            for k in asked
        },
    }  # type: Dict[str, Any]
    if reference:
        ordered = sorted(taken[reference])
        result["reference_us"] = round(ordered[len(ordered) // 2], 3)
    return result


def _warm(engine: Engine, key: str, seconds: float) -> int:
    """Run for a while; how many inferences make one batch."""
    begin = time.time()
    last = engine.run_us(key, 3)
    clock = 0.0
    while True:
        typical = max(0.5, sorted(last)[len(last) // 2])
        count = max(1, min(_MOST_PER_BATCH, int(_BATCH_US / typical)))
        spent = time.time() - begin
        if spent >= seconds:
            now = engine.read_sensors().get("sm_mhz", 0.0)
            if spent >= 3 * seconds or abs(now - clock) <= 0.01 * now:
                return count
            clock = now
        last = engine.run_us(key, count)
