"""onnx's inference and ONNX Runtime, each in a process beside this one.

Both are native code, and on some files they abort, never come to an end, or take all memory. The
process that asks lives on. This file is also the script of such a process, which loads no package:
a value comes in and one goes out.
"""

import atexit
import importlib.util
import marshal
import os
import resource
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

MOST_CPU_SECONDS = {"onnx": 4.0, "onnxruntime": 20.0}
MOST_ADDRESS_BYTES = 6 << 30
UNANSWERED = "{} aborts, or takes too much time, memory or room for temporary files"
_locks: dict[int, threading.Lock] = {}  # by process: a fork has none of the threads
_processes: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
"""By the process that asks, which may be a fork of one that asked, and the package."""


def ask(package: str, *question: Any) -> Any:
    """What ``onnx`` or ``onnxruntime`` answers; None where it is brought to an end."""
    key, answer = (os.getpid(), package), None
    with _locks.setdefault(key[0], threading.Lock()):
        process = _processes.get(key)
        if process is None or process.poll() is not None:
            process = _processes[key] = _started(package)
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(marshal.dumps(question))
            process.stdin.flush()
            answer = marshal.load(process.stdout)
        except (OSError, EOFError, ValueError, TypeError):
            pass
        finally:  # also where the wait is interrupted: the next answer would be this one's
            if answer is None:
                _end(key)
    return answer


def _started(package: str) -> subprocess.Popen[bytes]:
    spec = importlib.util.find_spec(package)
    folder = ((spec and spec.submodule_search_locations) or [""])[0]
    alone = ("-I", "-S") if package == "onnx" else ("-P",)
    command = [sys.executable, *alone, __file__, package, folder]
    atexit.register(_end, (os.getpid(), package))
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null)


def _end(key: tuple[int, str]) -> None:
    process = _processes.pop(key, None) if key[0] == os.getpid() else None
    if process is not None:
        process.kill()
        with suppress(OSError):
            process.communicate()


def _onnx(folder: str) -> Callable[..., Any]:
    package = types.ModuleType("onnx")
    package.__path__ = [folder]  # its native library alone, which loads in milliseconds
    sys.modules["onnx"] = package
    from onnx import onnx_cpp2py_export as native

    infer, checker = native.shape_inference.infer_shapes, native.checker
    scope = checker.LexicalScopeContext()

    def types_of_results(
        data: bytes, node: bytes, opsets: dict[str, int]
    ) -> tuple[bytes, str, str]:
        """The model with types; what its only operator lacks, and what inference objects to."""
        objection = ""
        if node:
            context = checker.CheckerContext()
            context.ir_version, context.opset_imports = 8, opsets
            try:
                checker.check_node(node, context, scope)
            except Exception as error:  # noqa: BLE001
                objection = str(error)
                if "is deprecated in" not in objection:  # else the engine decides
                    return b"", objection, ""
            try:
                return infer(data, True, True, False), "", ""
            except Exception as error:  # noqa: BLE001
                objection = str(error) or type(error).__name__
        with suppress(Exception):
            data = infer(data, False, False, False)
        return data, "", objection

    return types_of_results


def _onnxruntime(_: str) -> Callable[..., Any]:
    import numpy as np
    import onnxruntime

    def session(
        model: bytes | str, optimised: str, weights: str, threads: int, feeds: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Types of inputs and outputs, and of results for ``feeds`` of zeros and of others.

        An error is one of loading, or of all feeds.
        """
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.optimized_model_filepath = optimised
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        elif weights:
            prefix = "session.optimized_model_external_initializers_"
            options.add_session_config_entry(f"{prefix}file_name", weights)
            options.add_session_config_entry(f"{prefix}min_size_in_bytes", "1024")
        made, errors = [], []
        try:
            providers = ["CPUExecutionProvider"]
            running = onnxruntime.InferenceSession(model, options, providers=providers)
        except Exception as error:  # noqa: BLE001  it raises many kinds
            return {"error": str(error) or type(error).__name__}
        for step in (0, 1) if feeds else ():
            arrays = {}
            for name, (dtype, shape) in feeds.items():
                numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) * step % 99 + step
                arrays[name] = np.asarray(numbers, dtype)
            try:
                made.append([(str(a.dtype), a.shape) for a in running.run(None, arrays)])
            except Exception as error:  # noqa: BLE001
                errors.append(str(error))
        if errors and not made:
            return {"error": errors[0]}
        infos = (*running.get_inputs(), *running.get_outputs())
        return {"types": [(info.name, info.type, info.shape) for info in infos], "made": made}

    return session


def _serve(package: str, folder: str) -> None:
    for limit, most in ((resource.RLIMIT_AS, MOST_ADDRESS_BYTES), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    answer = {"onnx": _onnx, "onnxruntime": _onnxruntime}[package](folder)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print
    with suppress(EOFError):
        while question := marshal.load(sys.stdin.buffer):
            signal.setitimer(signal.ITIMER_PROF, MOST_CPU_SECONDS[package])  # its signal ends this
            made = marshal.dumps(answer(*question))
            signal.setitimer(signal.ITIMER_PROF, 0)
            answers.write(made)
            answers.flush()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
