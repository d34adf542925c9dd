"""The worker process: requests and answers are lines of JSON; the engine lives and dies here."""

import json
import os
import sys
from typing import IO, Any, Dict, List

from . import BoardError, DeviceLost, NoDevice
from .engines import Engine, Request, open_engine
from .visits import visit


def serve(engine_name: str, options: Dict[str, str]) -> int:
    """Answer requests from standard input until it ends.

    The engine may print: file descriptor 1 is turned over to standard error, and the answers go
    to a copy of the original.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        engine = open_engine(engine_name, options)
    except NoDevice as error:
        _answer(answers, {"ok": False, "error": str(error), "kind": "NoDevice"})
        return 3
    _answer(
        answers,
        {
            "ok": True,
            "engine": engine.name,
            "version": engine.version,
            "settings": engine.settings(),
            "board": engine.board(),
            "python": sys.version.split()[0],
        },
    )
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if request["do"] == "quit":
            break
        try:
            answer = _do(engine, request)
            answer["ok"] = True
        except DeviceLost as error:  # every later request would fail because of this model
            _answer(answers, {"ok": False, "error": str(error), "kind": "DeviceLost"})
            return 1
        except BoardError as error:
            answer = {"ok": False, "error": str(error), "kind": type(error).__name__}
        except MemoryError:
            answer = {"ok": False, "error": "the board is out of memory", "kind": "EngineError"}
        except Exception as error:  # noqa: BLE001 - one model must not end the run
            text = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
            answer = {"ok": False, "error": text, "kind": "EngineError"}
            if "CUDA error" in text and "out of memory" not in text:  # PyTorch's way to say it
                _answer(answers, dict(answer, kind="DeviceLost"))
                return 1
        _answer(answers, answer)
    return 0


def _do(engine: Engine, request: Dict[str, Any]) -> Dict[str, Any]:
    what = request["do"]
    if what == "build":
        return engine.build(
            Request(
                request["key"],
                request["path"],
                request.get("typed_path") or "",
                request["precision"],
                int(request.get("copies", 1)),
                bool(request.get("alone", False)),
            )
        )
    if what == "visit":
        keys: List[str] = request["keys"]
        return visit(
            engine, keys, request["samples"], request["warm_s"], request["limit_s"],
            request.get("reference") or "",
        )  # fmt: skip
    if what == "layers":
        return {"layers": engine.layers(request["key"])}
    if what == "drop":
        engine.drop(request["key"])
        return {}
    raise BoardError("the worker does not know the request %r" % what)


def _answer(sink: "IO[str]", answer: Dict[str, Any]) -> None:
    sink.write(json.dumps(answer) + "\n")
    sink.flush()
