"""The worker process, where the engine lives and dies, and a visit in it; one file per engine.

Requests and answers are lines of JSON. ``take_turns`` is the one loop of all protocols: those of
other rooms use it too.
"""

import importlib
import json
import os
import sys
import time
from functools import partial
from typing import Any, Callable, Dict, Hashable, List, Mapping, Optional, TypeVar

from . import BoardError, NoDevice

_BATCH_US = 15000.0
_MOST_PER_BATCH = 200
_OF_REFERENCE = 30
_COMPANY = 10
Reading = Dict[str, float]  # of sensors, with the unit in each name
Key = TypeVar("Key", bound=Hashable)


class Engine(object):
    """An engine that builds models and times them."""

    name = ""
    version = ""

    def settings(self) -> Dict[str, str]:
        """What decides how models are built and run, for the record."""
        return {}

    def board(self) -> Dict[str, str]:
        return {}

    def read_sensors(self) -> Reading:
        return {}

    def build(
        self, key: str, path: str, typed_path: str, precision: str, copies: int, alone: bool
    ) -> Dict[str, Any]:
        """Make a model ready; ``alone``: it is too short to be timed launch by launch."""
        raise NotImplementedError

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        """Microseconds per inference, ``count`` samples taken back to back."""
        raise NotImplementedError

    def layers(self, key: str) -> Any:
        """What the engine made of the model, as JSON; None where it does not say."""
        return None

    def drop(self, key: str) -> None:
        """Forget a model and give back its memory."""


def open_engine(name: str, options: Dict[str, str]) -> Engine:
    """The engine of the file ``engine_NAME.py`` here; NoDevice where this machine lacks it."""
    try:
        module = importlib.import_module(".engine_" + name, __package__)
    except ImportError as error:
        raise NoDevice("this worker has no engine %r (%s)" % (name, error))
    engine: Engine = module.open_engine(options)
    return engine


def take_turns(
    runs: Mapping[Key, Callable[[], List[float]]],
    goes_on: Callable[[Dict[Key, List[float]], int, float], bool],
    warm_passes: int = 1,
) -> Dict[Key, List[float]]:
    """The samples in microseconds of each key: every pass runs each key once, in order.

    The first ``warm_passes`` are dropped. ``goes_on`` gets, before every pass, the samples, the
    number of passes, and the seconds since the warm ones.
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
    """``samples`` inferences of each key, in batches that take turns, so that all see one clock.

    Warm-up goes on for up to three times ``warm_s`` while the SM clock still moves; ``limit_s``
    ends the visit early. ``reference_us`` is the median of the model ``reference`` among them.
    """
    timed = keys
    if reference and reference not in keys:
        keys = keys + [reference]
    counts = {key: _warm(engine, key, warm_s / len(keys)) for key in keys}
    readings: Dict[str, List[Reading]] = {key: [] for key in keys}
    missing = {key: samples if key in timed else min(samples, _OF_REFERENCE) for key in keys}

    def run(key: str) -> List[float]:
        count = counts[key]
        if missing[key] <= 0:  # it only takes its turn among the others
            count = min(count, _COMPANY)
        _first, *batch = engine.run_us(  # the first fills the pipeline
            key, count + 1, lambda: readings[key].append(engine.read_sensors())
        )
        missing[key] -= len(batch)
        return batch

    def goes_on(taken: Dict[str, List[float]], passes: int, spent_s: float) -> bool:
        return any(count > 0 for count in missing.values()) and (not passes or spent_s <= limit_s)

    taken = take_turns({key: partial(run, key) for key in keys}, goes_on, warm_passes=0)
    result = {
        "samples_us": {key: [round(us, 3) for us in taken[key]] for key in timed},
        "sensors": {key: _summary(readings[key]) for key in timed},
    }  # type: Dict[str, Any]
    if reference:
        ordered = sorted(taken[reference])
        result["reference_us"] = round(ordered[len(ordered) // 2], 3)
    return result


def _summary(readings: List[Reading]) -> Dict[str, float]:
    means: Dict[str, float] = {}
    for key in sorted(set().union(*readings)):
        values = [reading[key] for reading in readings if key in reading]
        means[key] = round(sum(values) / len(values), 2)
        means[key + "_min"], means[key + "_max"] = min(values), max(values)
    return means


def _warm(engine: Engine, key: str, seconds: float) -> int:
    """Run for a while; how many inferences make one batch."""
    begin = time.monotonic()
    last = engine.run_us(key, 3)
    clock = 0.0
    while True:
        typical = max(0.5, sorted(last)[len(last) // 2])
        count = max(1, min(_MOST_PER_BATCH, int(_BATCH_US / typical)))
        spent = time.monotonic() - begin
        if spent >= seconds:
            now = engine.read_sensors().get("sm_mhz", 0.0)
            if spent >= 3 * seconds or abs(now - clock) <= 0.01 * now:
                return count
            clock = now
        last = engine.run_us(key, count)


def serve(engine_name: str, options: Dict[str, str]) -> int:
    """Answer requests from standard input until it ends: a result each, or an error of a kind."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints goes to standard error
    say = partial(print, file=answers, flush=True)
    try:
        engine = open_engine(engine_name, options)
    except (NoDevice, OSError) as error:
        say(json.dumps({"error": str(error), "kind": "NoDevice"}))
        return 3
    hello = {"engine": engine.name, "version": engine.version, "settings": engine.settings()}
    hello.update(board=engine.board(), python=sys.version.split()[0])
    say(json.dumps({"result": hello}))
    calls: Dict[str, Callable[..., Any]] = {"build": engine.build, "visit": partial(visit, engine)}
    calls.update(layers=engine.layers, drop=engine.drop)
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        try:
            answer = {"result": calls[request.pop("do")](**request)}
        except BoardError as error:
            answer = {"error": str(error), "kind": type(error).__name__}
        except OSError as error:  # a full disk is the board's, and fails no model
            answer = {"error": str(error), "kind": "NoDevice"}
        except Exception as error:  # noqa: BLE001 - one model must not end the run
            text = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
            answer = {"error": text, "kind": "EngineError"}
        say(json.dumps(answer))
        if answer.get("kind") == "DeviceLost":  # all later requests would fail as well
            return 1
    return 0
