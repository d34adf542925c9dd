"""The command of an engine's own tool that measures what an estimate says, and what to compare."""

from __future__ import annotations

import shlex

from hybridlat.graph.network import Shapes
from hybridlat.schema.target import Target

_TRTEXEC = {"fp32": "", "tf32": "", "fp32-strict": " --noTF32", "int8": " --int8 --fp16"}
_TRTEXEC |= {"fp16": " --fp16", "bf16": " --bf16"}
_OPENVINO = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int8": "f32"}


def check_of(target: Target, path: str, shapes: Shapes, graphs: bool) -> tuple[str, str]:
    """The command, and the figure in its output; both empty where no tool measures the same.

    ``shapes`` are of inputs whose sizes the caller bound, ``graphs`` says whether a CUDA graph
    replays the network. PyTorch has no tool: a statement stands for the command.
    """
    file, threads = shlex.quote(path), target.threads or 1
    sizes = ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
    if target.engine == "tensorrt" and target.precision in _TRTEXEC:
        bound = f" --shapes={shlex.quote(sizes)}" if sizes else ""
        graph = " --useCudaGraph" if graphs else ""
        command = f"trtexec --onnx={file}{_TRTEXEC[target.precision]}{bound}{graph}"
        return f"{command} --noDataTransfers --useSpinWait", "GPU Compute Time: median"
    if target.engine == "onnxruntime" and not sizes:
        return f"onnxruntime_perf_test -e cpu -x {threads} -m times -r 200 -I {file}", "P50 Latency"
    if target.engine == "openvino" and target.precision in _OPENVINO:
        listed = ",".join(f"{n}[{','.join(map(str, shape))}]" for n, shape in shapes.items())
        bound = f" -shape {shlex.quote(listed)}" if sizes else ""
        form = f"-infer_precision {_OPENVINO[target.precision]}"
        command = f"benchmark_app -m {file}{bound} -d CPU -api sync -hint none {form}"
        return f"{command} -nstreams 1 -nthreads {threads}", "Latency: Median"
    if target.engine in ("torch", "torch-compile") and target.precision in ("fp32", "fp16", "amp"):
        model = "torch.compile(model)" if target.engine == "torch-compile" else "model"
        mixed = ', torch.autocast("cuda", torch.float16)' if target.precision == "amp" else ""
        timer = f'torch.utils.benchmark.Timer("f(x)", globals={{"f": {model}, "x": x}})'
        form = "fp16" if target.precision == "fp16" else "fp32"
        return (
            f"with torch.inference_mode(){mixed}: print({timer}.blocked_autorange(min_run_time=2))",
            f"median, with model and x on the GPU in {form}",
        )
    return "", ""
