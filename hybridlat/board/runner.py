"""Work through a plan's tasks: build, visit, write a line; go on where an earlier run stopped."""

import json
import os
import sys
import time
from typing import Any, Dict, List, Optional

from .client import Worker
from .errors import BoardError, EngineError, WorkerLost
from .fill import make_files
from .identity import board_id, system_facts
from .journal import Journal

_BUILD_S = 600.0
_KEPT = 48  # models that stay on the device, so that a pair's second half is not built again


class Plan(object):
    """A plan folder's manifest."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        path = os.path.join(self.folder, "manifest.json")
        try:
            with open(path) as source:
                content = json.load(source)
        except (OSError, ValueError) as error:
            raise BoardError("%s is no plan: %s" % (folder, error))
        if content.get("format") != 1:
            raise BoardError(
                "%s is of format %r; this worker reads 1" % (path, content.get("format"))
            )
        self.name = str(content["plan"])
        self.items: Dict[str, Dict[str, Any]] = content["items"]
        self.tasks: List[Dict[str, Any]] = content["tasks"]
        self.noise: Dict[str, int] = content["noise"]
        self.reference = content.get("reference") or ""
        self.settings: Dict[str, Any] = content.get("settings", {})

    def file(self, name: str) -> str:
        """Absolute path of a file in the plan."""
        return os.path.join(self.folder, name) if name else ""


class Runner(object):
    """One run over a plan with one engine, within a budget of seconds."""

    def __init__(
        self, plan: Plan, launcher: str, engine: str, options: Dict[str, str],
        python: str, results: str, budget_s: float,
    ) -> None:  # fmt: skip
        self._plan, self._launcher, self._engine = plan, launcher, engine
        self._options, self._python = dict(options), python
        if engine == "tensorrt":
            self._options.setdefault("timing_cache", plan.file("timing.cache"))
        self._end = time.time() + budget_s
        self._worker: Optional[Worker] = None
        self._loaded: List[str] = []
        self._processes = 0
        self._typical_s = 5.0
        hello = self._start().hello
        facts = dict(system_facts())
        facts.update(hello["board"])
        facts.update(
            {"runner": "worker", "engine": hello["engine"], "engine_version": hello["version"]}
        )
        facts.update({"settings": json.dumps(hello["settings"], sort_keys=True)})
        self.facts = facts
        self._journal = Journal(results, plan.name, board_id(facts), facts)
        make_files(plan.file("blocks"), plan.file("models"), plan.noise)
        os.makedirs(plan.file("layers"), exist_ok=True)

    def _start(self) -> Worker:
        log = self._plan.file("worker.log")
        self._worker = Worker(self._launcher, self._engine, self._options, self._python, log)
        self._processes += 1
        self._loaded = []
        return self._worker

    def run(self) -> Dict[str, int]:
        """Do what is not done yet; counts of what was measured, failed, and left undone."""
        counts = {"measured": 0, "failed": 0, "done before": 0, "left": 0}
        todo = []
        for task in self._plan.tasks:
            for number in range(int(task.get("rounds", 1))):
                if (task["task"], number) in self._journal.done:
                    counts["done before"] += 1
                else:
                    todo.append((number, task))
        todo.sort(key=lambda pair: (pair[1].get("stage", 0), pair[0]))  # stable: worth keeps order
        for place, (number, task) in enumerate(todo):
            if time.time() + self._typical_s > self._end:
                counts["left"] = len(todo) - place
                break
            begin = time.time()
            outcome = self._do(task, number)
            counts[outcome] += 1
            self._typical_s = 0.8 * self._typical_s + 0.2 * (time.time() - begin)
            _say("%d of %d  %-8s %s" % (place + 1, len(todo), outcome, task.get("label", "")))
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        return counts

    def _do(self, task: Dict[str, Any], number: int) -> str:
        line: Dict[str, Any] = {"task": task["task"], "round": number}
        for _ in range(2):  # a worker that is lost gets one more try with a fresh process
            try:
                line.update(self._measure(task))
                line["kind"] = "visit"
                self._journal.write(line)
                return "measured"
            except EngineError as error:
                line.update({"kind": "failure", "error": str(error), "items": task["items"]})
                self._journal.write(line)
                return "failed"
            except WorkerLost as error:
                self._worker = None
                line.update(
                    {"kind": "failure", "error": str(error), "items": task["items"], "lost": True}
                )
                self._journal.write(line)
                line = {"task": task["task"], "round": number}
        return "failed"

    def _measure(self, task: Dict[str, Any]) -> Dict[str, Any]:
        worker = self._worker or self._start()
        settings = self._plan.settings
        built = {}
        for item in task["items"]:
            about = self._load(item, set(task["items"]))
            if about is not None:
                built[item] = about
        found = {"process": self._processes, "built": built}
        if self._plan.reference:
            self._load(self._plan.reference, set(task["items"]))
            visit = worker.visit([self._plan.reference], 50, 0.02, 1.0)
            found["reference_us"] = _median(visit["samples_us"][self._plan.reference])
        found.update(
            worker.visit(
                list(task["items"]),
                int(settings.get("samples", 200)),
                float(settings.get("warm_s", 0.3)),
                float(settings.get("limit_s", 2.0)),
            )
        )
        return found

    def _load(self, item: str, needed: "set[str]") -> Optional[Dict[str, Any]]:
        if item in self._loaded:
            return None
        worker = self._worker
        assert worker is not None
        while len(self._loaded) >= _KEPT:
            keep = needed | {self._plan.reference}
            oldest = [key for key in self._loaded if key not in keep][:1]
            if not oldest:
                break
            worker.ask(60, "drop", key=oldest[0])
            self._loaded.remove(oldest[0])
        spec = self._plan.items[item]
        limit = max(20.0, min(_BUILD_S, self._end + 30.0 - time.time()))
        about = worker.build(
            limit, item, self._plan.file(spec["file"]), spec["precision"],
            typed_path=self._plan.file(spec.get("typed_file", "")),
            copies=spec.get("copies", 1), alone=spec.get("alone", False),
        )  # fmt: skip
        self._loaded.append(item)
        path = self._plan.file(os.path.join("layers", item + ".json"))
        if not os.path.exists(path):
            layers = worker.ask(60, "layers", key=item)["layers"]
            if layers is not None:
                with open(path + ".part", "w") as sink:
                    json.dump(layers, sink)
                os.replace(path + ".part", path)
        assert isinstance(about, dict)
        return about


def _median(values: List[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
