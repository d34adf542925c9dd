"""One visit: warm up until the clock is steady, then samples of one model or of a pair in turn.

``take_turns`` is the one loop of all protocols: those of other rooms use it too.
"""

import time
from functools import partial
from typing import Any, Callable, Dict, Hashable, List, Mapping, TypeVar

from .engines import Engine
from .nvml import Reading, summary

_BATCH_US = 15000.0
_MOST_PER_BATCH = 200
_OF_REFERENCE = 30
_COMPANY = 10
Key = TypeVar("Key", bound=Hashable)


def take_turns(
    runs: Mapping[Key, Callable[[], List[float]]],
    goes_on: Callable[[Dict[Key, List[float]], int, float], bool],
    warm_passes: int = 1,
) -> Dict[Key, List[float]]:
    """The samples in microseconds of each key: every pass runs each key once, in order.

    Samples of the first ``warm_passes`` are dropped. ``goes_on`` is called before every pass with
    the samples so far, the number of passes made, and the seconds since the warm ones.
    """
    samples = {key: [] for key in runs}  # type: Dict[Key, List[float]]
    passes, began = 0, time.perf_counter()
    while goes_on(samples, passes, time.perf_counter() - began):
        for key, run in runs.items():
            taken = run()
            if passes >= warm_passes:
                samples[key].extend(taken)
        passes += 1
        if passes == warm_passes:
            began = time.perf_counter()
    return samples


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
    wanted = keys
    if reference and reference not in keys:
        keys = keys + [reference]
    counts = {key: _warm(engine, key, warm_s / len(keys)) for key in keys}
    readings: Dict[str, List[Reading]] = {key: [] for key in keys}
    batches: Dict[str, List[int]] = {key: [] for key in keys}
    enough = {key: samples if key in wanted else min(samples, _OF_REFERENCE) for key in keys}

    def run(key: str) -> List[float]:
        count = counts[key]
        if sum(batches[key]) >= enough[key]:  # it only takes its turn among the others
            count = min(count, _COMPANY)
        batch = engine.run_us(key, count + 1, lambda: readings[key].append(engine.read_sensors()))[
            1:
        ]  # the first fills the pipeline
        batches[key].append(len(batch))
        return batch

    def goes_on(taken: Dict[str, List[float]], passes: int, spent_s: float) -> bool:
        short = any(len(taken[key]) < enough[key] for key in keys)
        return short and (not passes or spent_s <= limit_s)

    runs = {key: partial(run, key) for key in keys}
    taken = take_turns(runs, goes_on, warm_passes=0)
    result = {
        "samples_us": {k: [round(t, 3) for t in taken[k]] for k in wanted},
        "sensors": {k: summary(readings[k]) for k in wanted},
        "clocks": {
            k: [
                [n, r.get("sm_mhz"), r.get("temperature_c")]
                for n, r in zip(batches[k], readings[k])
            ]
            for k in wanted
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
