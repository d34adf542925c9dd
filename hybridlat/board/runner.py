"""The worker process from its parent's side, and a run: a plan's tasks one by one, a line each."""

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from . import BoardError, EngineError, NoDevice, WorkerLost
from .journal import Journal, board_id, system_facts
from .lock import hold, let_go, machine_lock
from .plan import KEPT, Plan, in_order, make_files

_START_S = 120.0
_GRACE_S = 20.0  # what is being done when the budget ends may take so much longer


def _say(form: str, *values: object) -> None:
    sys.stderr.write(form % values + "\n")
    sys.stderr.flush()


class Worker(object):
    """One worker process with one engine; ``hello`` is its first answer, NoDevice without one."""

    def __init__(
        self, launcher: str, engine: str, options: Dict[str, str], python: str = "", log: str = ""
    ) -> None:
        command = [python or sys.executable, launcher, "serve", "--engine", engine]
        for key, value in sorted(options.items()):
            command += ["--option", "%s=%s" % (key, value)]
        self._log = open(log or os.devnull, "ab")
        pipe = subprocess.PIPE
        streams = {"stdin": pipe, "stdout": pipe, "stderr": self._log}  # type: Dict[str, Any]
        try:  # it inherits the board's lock as well
            self._process: Any = subprocess.Popen(
                command, universal_newlines=True, close_fds=False, **streams
            )
        except OSError as error:
            self._log.close()
            raise NoDevice("%s cannot be started: %s" % (command[0], error))
        self._answers = select.poll()
        self._answers.register(self._process.stdout, select.POLLIN)  # type: ignore[arg-type]
        self.hello = self._wait(_START_S, "start")

    def _wait(self, seconds: float, what: str) -> Any:
        if not self._answers.poll(max(10.0, 1e3 * seconds)):
            self.kill()
            lost = WorkerLost("no answer in %.0f s (%s)" % (seconds, what))
            lost.timed_out = True
            raise lost
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            code = self._process.wait()
            self.kill()
            raise WorkerLost("the worker process ended with status %s (%s)" % (code, what))
        answer = json.loads(line)
        if "error" in answer:
            kinds = {"NoDevice": NoDevice, "DeviceLost": WorkerLost}
            kind = kinds.get(answer["kind"], EngineError)
            if kind is not EngineError:
                self.kill()
            raise kind(answer["error"])
        return answer["result"]

    def ask(self, seconds: float, do: str, **request: Any) -> Any:
        """What comes of one request; EngineError when the engine refuses."""
        try:
            print(json.dumps(dict(request, do=do)), file=self._process.stdin, flush=True)
        except (OSError, ValueError):
            self.kill()
            raise WorkerLost("the worker process is gone (%s)" % do)
        return self._wait(seconds, do)

    def close(self) -> None:
        with suppress(OSError, ValueError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(timeout=10)
        self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):
                pipe.close()


class PlanRun(object):
    """One run over a plan with one engine, within a budget of seconds."""

    def __init__(
        self,
        plan: Plan,
        start: Callable[[], Worker],
        results: str = "results.jsonl",
        budget_s: float = 1e9,
        progress: Optional[Callable[[int, int, str], None]] = None,
    ) -> None:
        self._plan, self._make = plan, start
        self._progress = progress or partial(_say, "%d of %d  %s")
        self._worker: Optional[Worker] = None
        self._loaded: List[str] = []
        self._processes = 0
        plan.check_files()
        waiting = "another run measures on this board (%s): waiting for it"
        self._lock = hold(machine_lock(), partial(_say, waiting))
        os.set_inheritable(self._lock, True)
        self._end = time.monotonic() + budget_s
        try:
            hello = self._start().hello
            runtime, own = plan.content["runtime"], "%(engine)s-%(version)s" % hello
            if runtime.startswith(hello["engine"] + "-") and runtime != own:
                raise BoardError(  # how the plan's cells are cut is that version's
                    "the plan is for %s and this board has %s: make one for %s"
                    % (runtime, own, own)
                )
            settings = json.dumps(hello["settings"], sort_keys=True)
            facts = dict(system_facts(), **hello["board"], runner="worker", settings=settings)
            facts.update(engine=hello["engine"], engine_version=hello["version"])
            self._journal = Journal(plan.file(results), plan.name, board_id(facts), facts)
            self._processes += self._journal.processes
            make_files(plan.file("blocks"), plan.file("models"), plan.noise)
            os.makedirs(plan.file("layers"), exist_ok=True)
        except BaseException:
            self._close(at_once=True)
            raise

    def _start(self) -> Worker:
        self._worker = self._make()
        self._processes += 1
        self._loaded = []
        return self._worker

    def _close(self, at_once: bool = False) -> None:
        """Let the worker end, and give the board back once it has."""
        if self._worker is not None:
            (self._worker.kill if at_once else self._worker.close)()
            self._worker = None
        let_go(self._lock)

    def run(self) -> Dict[str, int]:
        """Do what is not done yet; counts of what was measured, failed, and left undone."""
        visits = in_order(self._plan.tasks)
        todo = [(n, task) for n, task in visits if (task["task"], n) not in self._journal.done]
        counts = {"measured": 0, "failed": 0, "done before": len(visits) - len(todo), "left": 0}
        try:
            for done, (number, task) in enumerate(todo):
                if time.monotonic() > self._end:
                    counts["left"] += len(todo) - done
                    break
                outcome = self._do(task, number)
                counts[outcome] += 1
                if outcome == "left":
                    continue
                label = "%s %s" % (task.get("title", ""), task.get("label", ""))
                self._progress(done + 1, len(todo), label.strip())
        except BaseException as error:
            self._close(at_once=True)
            if isinstance(error, NoDevice):  # not the model's fault: the rest is left undone
                raise BoardError("the run ends (%s): the next one goes on from here" % error)
            raise
        self._close()
        return counts

    def _do(self, task: Dict[str, Any], number: int) -> str:
        """One task: "measured", "failed", or "left" where the budget cut it off."""
        about = {"task": task["task"], "round": number}
        failure = dict(about, kind="failure", items=task["items"])
        for _ in range(2):  # a worker that is lost gets one more try with a fresh process
            try:
                self._journal.write(dict(about, kind="visit", **self._measure_with_room(task)))
                return "measured"
            except EngineError as error:
                self._journal.write(dict(failure, error=str(error)))
                return "failed"
            except WorkerLost as error:
                self._worker = None
                if time.monotonic() > self._end:
                    return "left"  # not the model's fault: the next run begins it anew
                if error.timed_out:  # to wait for it a second time is not worth the time
                    self._journal.write(dict(failure, error=str(error)))
                    return "failed"
                self._journal.write(dict(failure, error=str(error), lost=True))
        return "failed"

    def _measure_with_room(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Loaded models, which wait for their pairs, are dropped where they take the memory."""
        try:
            return self._measure(task)
        except EngineError as error:
            if "memory" not in str(error).lower() or set(self._loaded) <= set(task["items"]):
                raise
        self._drop(list(self._loaded))
        return self._measure(task)

    def _drop(self, keys: List[str]) -> None:
        for key in keys:
            self._ask(60, "drop", key=key)
            self._loaded.remove(key)

    def _ask(self, seconds: float, do: str, **request: Any) -> Any:
        assert self._worker is not None
        return self._worker.ask(seconds, do, **request)

    def _measure(self, task: Dict[str, Any]) -> Dict[str, Any]:
        if self._worker is None:  # before all else: what the lost one had loaded is gone
            self._start()
        settings = {key: self._plan.settings[key] for key in ("samples", "warm_s", "limit_s")}
        built = {item: self._load(item, set(task["items"])) for item in task["items"]}
        built = {item: about for item, about in built.items() if about is not None}
        if self._plan.reference:
            try:
                self._load(self._plan.reference, set(task["items"]))
            except EngineError as error:
                _say("without its reference: %s", error)
                self._plan.reference = ""
        limit_s = 4 * settings["warm_s"] + 2 * settings["limit_s"] + 60
        request = dict(settings, keys=task["items"], reference=self._plan.reference)
        visit = self._ask(limit_s, "visit", **request)
        return dict(visit, process=self._processes, built=built)

    def _load(self, item: str, needed: "set[str]") -> Optional[Dict[str, Any]]:
        if item in self._loaded:
            return None
        keep = needed | {self._plan.reference}
        others = [key for key in self._loaded if key not in keep]
        self._drop(others[: max(0, len(self._loaded) - KEPT + 1)])
        spec, file = self._plan.items[item], self._plan.file
        left_s = self._end + _GRACE_S - time.monotonic()
        limit_s = max(1.0, min(self._plan.settings["build_s"], left_s))
        paths = {"path": file(spec["file"]), "typed_path": file(spec.get("typed_file", ""))}
        usual = {"copies": spec.get("copies", 1), "alone": spec.get("alone", False)}
        request = dict(paths, key=item, precision=spec["precision"], **usual)
        about: Dict[str, Any] = self._ask(limit_s, "build", **request)
        self._loaded.append(item)
        self._keep_layers(item)
        return about

    def _keep_layers(self, item: str) -> None:
        path = self._plan.file(os.path.join("layers", item + ".json"))
        if os.path.exists(path):
            return
        try:
            layers = self._ask(60, "layers", key=item)
        except EngineError as error:  # a latency without a dump is worth more than none
            _say("no layers of %s: %s", item, error)
            return
        if layers is not None:
            with open(path + ".part", "w") as sink:
                json.dump(layers, sink)
            os.replace(path + ".part", path)
