#!/usr/bin/env python3
"""Measure a plan on this board: ``python3 worker.py run``, with nothing installed but an engine.

    python3 worker.py run [--plan DIR] [--engine tensorrt] [--time-limit 8m] [--results FILE]
    python3 worker.py check          what this board has; measures nothing

It goes on where an earlier run stopped. Needs Python 3.6 or newer; TensorRT's own Python module
must be there for ``--engine tensorrt``, else use run.sh.
"""

import argparse
import functools
import importlib
import os
import re
import signal
import sys
from typing import Any, Dict, List

_HERE = os.path.dirname(os.path.abspath(__file__))


def _load(name: str) -> Any:
    """The code beside this file: a folder in a plan, this file's own folder in an installation."""
    in_plan = os.path.join(_HERE, "hybridlat_board")
    parent, package = os.path.split(in_plan if os.path.isdir(in_plan) else _HERE)
    sys.path.insert(0, parent)
    try:
        return importlib.import_module(package + name)
    finally:
        sys.path.remove(parent)  # an installation's has modules that are nobody's business here


def _seconds(text: str) -> float:
    """``90``, ``90s``, ``8m`` or ``2h`` in seconds."""
    parts = re.match(r"([0-9]*[.]?[0-9]+)([smh]?)\Z", text)
    value = float(parts.group(1)) if parts else 0.0
    if not parts or not value:
        raise argparse.ArgumentTypeError("%r is no time: write 90s, 8m or 2h" % text)
    return value * {"m": 60.0, "h": 3600.0}.get(parts.group(2), 1.0)


def _arguments(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure a plan of hybridlat on this board.")
    parser.add_argument("what", choices=("run", "check", "serve"))
    option = parser.add_argument
    option("--plan", default=_HERE, help="the plan's folder (default: beside this file)")
    option("--engine", default="tensorrt", help="default: tensorrt")
    option("--option", action="append", default=[], metavar="KEY=VALUE", help="of the engine")
    option("--time-limit", "--budget", type=_seconds, default="24h", help="90s, 8m or 2h")
    option("--results", default="results.jsonl", help="a file of the plan (%(default)s)")
    return parser.parse_args(arguments)


def main(arguments: List[str]) -> int:
    """Run a command; 0 done, 2 bad input, 3 no engine or device, 4 time ran out before the end."""
    command = _arguments(arguments)
    options: Dict[str, str] = dict(pair.partition("=")[::2] for pair in command.option)
    errors = _load("")
    try:
        if command.what == "serve":
            return int(_load(".visits").serve(command.engine, options))
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda at, _: sys.exit(128 + at))  # ends the worker as well
        launcher = os.path.abspath(__file__)
        start = functools.partial(_load(".runner").Worker, launcher, command.engine, options)
        if command.what == "check":
            worker = start()
            for key, value in sorted(worker.hello.items()):
                sys.stdout.write("%s: %s\n" % (key, value))
            worker.close()
            return 0
        plan = _load(".plan").Plan(command.plan)
        options.setdefault("timing_cache", plan.file("timing.cache"))
        start = functools.partial(start, log=plan.file("worker.log"))
        counts = _load(".runner").PlanRun(plan, start, command.results, command.time_limit).run()
        sys.stderr.write(", ".join("%s %d" % pair for pair in sorted(counts.items())) + "\n")
        return 4 if counts["left"] else 0
    except errors.BoardError as error:
        sys.stderr.write("worker.py: %s\n" % error)
        return 3 if isinstance(error, errors.NoDevice) else 2
    except OSError as error:
        sys.stderr.write("worker.py: %s: %s\n" % (error.filename, error.strerror))
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
