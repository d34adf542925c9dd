#!/usr/bin/env python3
"""Stands in for trtexec: the flags, messages and exports of the version in FAKE_TRTEXEC.

Latencies follow from the model's bytes. FAKE_TRTEXEC_DIE names a file: while it holds a number
above zero the number is lowered, and at zero the stand-in kills its caller, as a power cut would.
After the calls in the file FAKE_TRTEXEC_LOST every call finds no GPU.
"""

import os
import sys
from zlib import crc32  # a plan is hundreds of calls, and hashlib takes longer than all of one

COMMON = (
    "onnx saveEngine loadEngine fp16 noTF32 warmUp duration iterations avgRuns useCudaGraph "
    "useSpinWait noDataTransfers exportTimes exportLayerInfo timingCacheFile help"
)
DIALECTS = {  # the code of a version, and the flags that not all have
    "8.2": ("v8201", "workspace nvtxMode"),
    "8.5": ("v8502", "workspace memPoolSize profilingVerbosity nvtxMode"),
    "8.6": ("v8601", "workspace memPoolSize profilingVerbosity maxAuxStreams"),
    "10": ("v100200", "memPoolSize profilingVerbosity bf16 maxAuxStreams"),
    "11": ("v110401", "memPoolSize profilingVerbosity maxAuxStreams"),
}
# What the version understands and its help does not tell.
UNTOLD = {"8.5": {"nvtxMode", "workspace"}, "8.6": {"workspace"}}
STAMP = "[11/21/2026-10:00:00]"


def main() -> int:
    version = os.environ.get("FAKE_TRTEXEC", "8.6")
    code, more = DIALECTS[version]
    known = {*COMMON.split(), *more.split()} - ({"fp16"} if version == "11" else set())
    lies = set(os.environ.get("FAKE_TRTEXEC_LIES", "").split())  # named by the help, not understood
    line = f"TensorRT.trtexec [TensorRT {code}] # {' '.join(sys.argv)}"
    print(f"&&&& RUNNING {line}")
    flags = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if "--help" in flags:
        for flag in sorted((known | lies) - UNTOLD.get(version, set())):
            print(f"  --{flag}={'N' if flag in ('warmUp', 'duration') else '<spec>'}   text")
        return 0
    unknown = [flag for flag in flags if flag.removeprefix("--") not in known - lies]
    if unknown:
        print(f"{STAMP} [E] Unknown option: {unknown[0]} {flags[unknown[0]]}")
    failed = unknown or not run(version, flags)
    print(f"&&&& {'FAILED' if failed else 'PASSED'} {line}")
    return 1 if failed else 0


def run(version: str, flags: dict[str, str]) -> bool:
    """Whether the model could be built."""
    _die_if_asked()
    if built := os.environ.get("FAKE_TRTEXEC_BUILT"):
        print(f"{STAMP} [I] Precision: {built}")
    if _is_lost():
        print(f"{STAMP} [E] Error[1]: [defaultAllocator.cpp] Cuda failure: unknown error")
        return False
    path = flags.get("--loadEngine") or flags["--onnx"]
    with open(path, "rb") as source:
        data = source.read()
    if "--loadEngine" in flags and not data.startswith(b"plan "):
        print(f"{STAMP} [E] Error[1]: the engine is damaged")
        return False
    if log := os.environ.get("FAKE_TRTEXEC_LOG"):
        with open(log, "a") as sink:
            sink.write(" ".join(sys.argv) + "\n")
    bad = os.environ.get("FAKE_TRTEXEC_BAD")
    if bad and bad in path:
        print(f'{STAMP} [E] Error[2]: could not find any implementation for "{"é" * 200}"')
        return False
    engine = data if "--loadEngine" in flags else b"plan %d" % crc32(data)
    if "--saveEngine" in flags:
        with open(flags["--saveEngine"], "wb") as sink_:
            sink_.write(engine)
    base_ms = 0.02 + 2.0 * (crc32(engine) % 256) / 256.0
    if "--fp16" in flags:
        base_ms /= 2
    times = [base_ms * (1 + 1e-4 * (37 * i % 100)) for i in range(400)]
    if "--exportTimes" in flags:
        export_times(version, flags["--exportTimes"], times)
    if "--exportLayerInfo" in flags:
        export_layers(version, flags)
    print(f"{STAMP} [I] GPU Compute Time: min = {min(times):g} ms, median = {base_ms:g} ms")
    return True


def export_times(version: str, path: str, times: list[float]) -> None:
    # The versions up to 8.6 export the warm-up too, slower than the rest here.
    warm = [(10.0 * i, 9.9) for i in range(30)] if version.startswith("8") else []
    rows = [*warm, *((400.0 + i, t) for i, t in enumerate(times))]
    with open(path, "w") as sink:  # laid out as trtexec does it, not as json.dump does
        sink.write("[\n")
        for place, (start, compute) in enumerate(rows):
            row = dict.fromkeys(("startEnqMs", "endEnqMs", "startComputeMs"), start)
            row |= {"endComputeMs": start + compute, "h2dMs": 0.0, "computeMs": compute}
            row |= {"d2hMs": 0.0, "latencyMs": compute}
            inner = ", ".join(f'"{key}" : {value:g}' for key, value in row.items())
            sink.write(("  " if place == 0 else ", ") + "{ " + inner + " }\n")
        sink.write("]\n")


def export_layers(version: str, flags: dict[str, str]) -> None:
    import json

    layers: list[object] = ["conv1 + relu1", "Reformatting CopyNode for Output"]
    if flags.get("--profilingVerbosity") == "detailed" or "--nvtxMode" in flags:
        conv = {"Name": "conv1 + relu1", "LayerType": "CaskConvolution", "Inputs": []}
        if version in ("8.6", "10", "11"):
            conv["Metadata"] = "[ONNX Layer: conv1]\x1e[ONNX Layer: relu1]"
        layers = [conv, {"Name": "Reformatting CopyNode for Output", "LayerType": "Reformat"}]
    text = json.dumps({"Layers": layers, "Bindings": ["x", "y"]})
    if version == "8.6":  # which leaves control characters as they are
        text = text.replace("\\u001e", "\x1e")
    with open(flags["--exportLayerInfo"], "w") as sink:
        sink.write(text)


def _is_lost() -> bool:
    path = os.environ.get("FAKE_TRTEXEC_LOST")
    if not path:
        return False
    with open(path, "r+") as file:
        left = int(file.read())
        file.seek(0)
        file.write(f"{max(0, left - 1):3}")
    return left == 0


def _die_if_asked() -> None:
    path = os.environ.get("FAKE_TRTEXEC_DIE")
    if not path or not os.path.exists(path):
        return
    with open(path) as source:
        left = int(source.read())
    with open(path, "w") as sink:
        sink.write(str(left - 1))
    if left == 0:
        import signal

        os.remove(path)
        os.kill(os.getsid(0), signal.SIGKILL)  # the runner started a session of its own


if __name__ == "__main__":
    sys.exit(main())
