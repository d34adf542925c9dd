#!/usr/bin/env python3
"""Stands in for trtexec: the flags, messages and exports of the version in FAKE_TRTEXEC.

Latencies follow from the model's bytes. FAKE_TRTEXEC_DIE names a file: while it holds a number
above zero the number is lowered, and at zero the stand-in kills its caller, as a power cut would.
"""

import hashlib
import json
import os
import random
import signal
import sys

COMMON = {
    "onnx",
    "saveEngine",
    "loadEngine",
    "fp16",
    "int8",
    "noTF32",
    "best",
    "warmUp",
    "duration",
    "iterations",
    "avgRuns",
    "useCudaGraph",
    "useSpinWait",
    "noDataTransfers",
    "exportTimes",
    "exportProfile",
    "dumpProfile",
    "separateProfileRun",
    "timingCacheFile",
    "verbose",
    "device",
    "shapes",
    "help",
    "percentile",
}
DIALECTS = {
    "8.2": ("v8201", COMMON | {"workspace", "nvtxMode", "buildOnly", "exportLayerInfo",
                               "explicitBatch", "tacticSources", "streams", "minTiming"}),
    "8.5": ("v8502", COMMON | {"workspace", "memPoolSize", "profilingVerbosity", "nvtxMode",
                               "buildOnly", "exportLayerInfo", "explicitBatch", "tacticSources",
                               "streams", "idleTime", "preview"}),
    "8.6": ("v8601", COMMON | {"memPoolSize", "profilingVerbosity", "skipInference", "workspace",
                               "exportLayerInfo", "explicitBatch", "tacticSources", "infStreams",
                               "idleTime", "preview", "maxAuxStreams", "builderOptimizationLevel"}),
    "10": ("v100200", (COMMON | {"memPoolSize", "profilingVerbosity", "skipInference", "bf16",
                                 "exportLayerInfo", "tacticSources", "infStreams", "idleTime",
                                 "stronglyTyped", "maxAuxStreams"})),
    "11": ("v110401", (COMMON | {"memPoolSize", "profilingVerbosity", "skipInference",
                                 "exportLayerInfo", "infStreams", "idleTime", "maxAuxStreams"})
           - {"fp16", "int8", "best"}),
}  # fmt: skip
# What the version understands and its help does not tell.
UNTOLD = {"8.2": {"explicitBatch"}, "8.5": {"nvtxMode", "explicitBatch", "workspace"},
          "8.6": {"workspace", "explicitBatch"}}  # fmt: skip


def main() -> int:
    version = os.environ.get("FAKE_TRTEXEC", "8.6")
    code, known = DIALECTS[version]
    lies = set(os.environ.get("FAKE_TRTEXEC_LIES", "").split())  # told in the help, not understood
    line = " ".join(sys.argv)
    print(f"&&&& RUNNING TensorRT.trtexec [TensorRT {code}] # {line}")
    flags = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if "--help" in flags or "-h" in flags:
        for flag in sorted((known | lies) - UNTOLD.get(version, set())):
            print(f"  --{flag}={'N' if flag in ('warmUp', 'duration') else '<spec>'}   text")
        return 0
    for flag, value in flags.items():
        if flag.removeprefix("--") not in known - lies:
            print(f"[11/21/2026-10:00:00] [E] Unknown option: {flag} {value}")
            print(f"&&&& FAILED TensorRT.trtexec [TensorRT {code}] # {line}")
            return 1
    return run(version, code, flags, line)


def run(version: str, code: str, flags: dict[str, str], line: str) -> int:
    _die_if_asked()
    path = flags.get("--loadEngine") or flags["--onnx"]
    with open(path, "rb") as source:
        data = source.read()
    log = os.environ.get("FAKE_TRTEXEC_LOG")
    if log:
        with open(log, "a") as sink:
            sink.write(line + "\n")
    bad = os.environ.get("FAKE_TRTEXEC_BAD")
    if bad and bad in path:
        print('[11/21/2026-10:00:01] [E] Error[2]: could not find any implementation for "node"')
        print(f"&&&& FAILED TensorRT.trtexec [TensorRT {code}] # {line}")
        return 1
    engine = data if "--loadEngine" in flags else b"plan " + hashlib.sha256(data).digest()
    if "--saveEngine" in flags:
        with open(flags["--saveEngine"], "wb") as sink:
            sink.write(engine)
    base_ms = 0.02 + 2.0 * hashlib.sha256(engine).digest()[0] / 256.0
    if "--fp16" in flags:
        base_ms /= 2
    draw = random.Random(len(data))
    times = [base_ms * (1 + 0.01 * draw.random()) for _ in range(400)]
    if "--exportTimes" in flags:
        export_times(version, flags["--exportTimes"], times)
    if "--exportProfile" in flags:
        export_profile(version, flags["--exportProfile"], base_ms)
    if "--exportLayerInfo" in flags:
        export_layers(version, flags)
    ordered = sorted(times)
    print("[11/21/2026-10:00:02] [I] === Performance summary ===")
    print(
        f"[11/21/2026-10:00:02] [I] GPU Compute Time: min = {ordered[0]:g} ms, max = "
        f"{ordered[-1]:g} ms, mean = {sum(times) / len(times):g} ms, median = "
        f"{ordered[len(ordered) // 2]:g} ms, percentile(99%) = {ordered[-4]:g} ms"
    )
    print(f"&&&& PASSED TensorRT.trtexec [TensorRT {code}] # {line}")
    return 0


def export_times(version: str, path: str, times: list[float]) -> None:
    begin, rows = 0.0, []
    # The versions up to 8.6 export the warm-up too, slower than the rest here.
    warm = [(10.0 * i, 9.9) for i in range(30)] if version.startswith("8") else []
    begin = 400.0
    for start, compute in [*warm, *((begin + i, t) for i, t in enumerate(times))]:
        row = {"startEnqMs": start, "endEnqMs": start, "startComputeMs": start,
               "endComputeMs": start + compute, "h2dMs": 0.0, "computeMs": compute, "d2hMs": 0.0,
               "latencyMs": compute}  # fmt: skip
        if version.startswith("8"):
            row["endToEndMs"] = compute
        rows.append(row)
    with open(path, "w") as sink:  # laid out as trtexec does it, not as json.dump does
        sink.write("[\n")
        for place, row in enumerate(rows):
            inner = ", ".join(f'"{key}" : {value:g}' for key, value in row.items())
            sink.write(("  " if place == 0 else ", ") + "{ " + inner + " }\n")
        sink.write("]\n")


def export_profile(version: str, path: str, base_ms: float) -> None:
    with open(path, "w") as sink:
        sink.write('[\n  { "count" : 20 }\n')
        for name, share in (("conv1 + relu1", 0.7), ("Reformatting CopyNode for Output", 0.3)):
            mean = base_ms * share + 0.003
            row = {"name": name, "timeMs": mean * 20, "averageMs": mean}
            if version not in ("8.2",):
                row["medianMs"] = mean
            row["percentage"] = 100 * share
            inner = ", ".join(f'"{key}" : {json.dumps(value)}' for key, value in row.items())
            sink.write(", { " + inner + " }\n")
        sink.write("]\n")


def export_layers(version: str, flags: dict[str, str]) -> None:
    detailed = flags.get("--profilingVerbosity") == "detailed" or "--nvtxMode" in flags
    if not detailed:
        layers: list[object] = ["conv1 + relu1", "Reformatting CopyNode for Output"]
    else:
        layers = [
            {"Name": "conv1 + relu1", "LayerType": "CaskConvolution", "Inputs": [], "Outputs": [],
             "TacticName": "sm80_xmma_fprop", "StreamId": 0},
            {"Name": "Reformatting CopyNode for Output", "LayerType": "Reformat"},
        ]  # fmt: skip
        if version in ("8.6", "10", "11"):
            assert isinstance(layers[0], dict)
            layers[0]["Metadata"] = "[ONNX Layer: conv1]\x1e[ONNX Layer: relu1]"
    tensors: dict[str, object] = {"Bindings": ["x", "y"]}
    if version == "11":
        tensors = {"I/O Tensors": [{"Name": "x", "IOMode": "Input", "DataType": "Float"}]}
    text = json.dumps({"Layers": layers, **tensors})
    if version == "8.6":  # which leaves control characters as they are
        text = text.replace("\\u001e", "\x1e")
    with open(flags["--exportLayerInfo"], "w") as sink:
        sink.write(text)


def _die_if_asked() -> None:
    path = os.environ.get("FAKE_TRTEXEC_DIE")
    if not path or not os.path.exists(path):
        return
    with open(path) as source:
        left = int(source.read())
    with open(path, "w") as sink:
        sink.write(str(left - 1))
    if left == 0:
        os.remove(path)
        os.kill(os.getsid(0), signal.SIGKILL)  # the runner started a session of its own


if __name__ == "__main__":
    sys.exit(main())
