"""Is the memory of a network what ONNX Runtime takes for it?

    python experiments/network_memory.py [--batch 1,8] [NAME ...]

Each network of ``data/nets`` runs in a process of its own, with random weights and one thread. What
the engine reports: the initializers of the graph that it saves after optimising, and the extension
of its arena in the third run, which is the block that its planner lays all activations out in. The
arena grows as requested and shrinks after every run, so nothing of loading is left in it. Beside it
stands what the process grew by (anonymous pages, trimmed), inputs and outputs included.
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat.engines.registry import lower
from hybridlat.estimate.memory import footprint
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.schema.target import Target

HERE = Target("here", "onnxruntime", "fp32", 1)
JUDGED = (
    "bvlc_alexnet convnext_tiny cspresnet50 darknet53 deeplab_resnet18 densenet169 dla34 "
    "efficientnet_lite0 ese_vovnet19b_dw fasternet_t0 fbnetc_100 fpn_resnet18 ghostnet_100 "
    "inception_v4 mixnet_s mobilenetv3_large_100 regnety_008 resnest14d ssdlite_mobilenetv2 vgg19"
)
"""Twenty networks that nobody looked at while the rules were written: those were
``squeezenet resnet18 mobilenetv2_100 inception_v3 densenet121 unet yolo_cross_stage convnext_atto
efficientnet_b0 hrnet_w18_small dpn68 shufflenet``."""


def anonymous_bytes() -> int:
    """Private memory of this process, less what malloc keeps free."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"RssAnon:\s+(\d+)", status)[0]) << 10


def run(path: str) -> None:
    """In a process of its own: prints the bytes of initializers and of growth, logs the arena."""
    import onnx
    import onnxruntime as ort

    before = anonymous_bytes()
    ort.set_default_logger_severity(0)
    cpu = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0,
                            ort.OrtMemType.DEFAULT)  # fmt: skip
    ort.create_and_register_allocator(cpu, ort.OrtArenaCfg({"arena_extend_strategy": 1}))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {i.name: random.random(i.shape, np.float32) for i in session.get_inputs()}
    shrinks = ort.RunOptions()
    shrinks.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    for number in range(3):
        print("RUN", number, file=sys.stderr, flush=True)
        results = session.run(None, feeds, shrinks)
    grown = anonymous_bytes() - before
    results = session.run(None, feeds)  # the arena as it is in use
    held = anonymous_bytes() - before
    del results
    options.optimized_model_filepath = f"{path}.optimised"
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    graph = onnx.load(options.optimized_model_filepath).graph
    weights = sum(onnx.numpy_helper.to_array(one).nbytes for one in graph.initializer)
    callers = sum(value.nbytes for value in feeds.values())
    print(weights, callers, grown, held)


def judge(name: str, batch: int, folder: Path) -> tuple[float, ...]:
    """Megabytes: our weights and activations; ONNX Runtime's weights and arena; the process."""
    network = read_network(ROOT / "data" / "nets" / f"{name}.onnx", batch)
    path = folder / f"{name}.onnx"
    path.write_bytes(to_onnx(network, 0))
    weights, activations = footprint(lower(network, HERE), HERE, network)
    done = subprocess.run(
        [sys.executable, __file__, "--run", str(path)], capture_output=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    told, _, _, held = map(int, done.stdout.split())
    third = done.stderr.decode(errors="replace").split("RUN 2")[1]
    arena = next(iter(re.findall(r"Extended allocation by (\d+) bytes", third)), "0")
    ends = {*network.inputs, *network.outputs}
    callers = sum(network.type_of(end).bytes for end in ends)
    return tuple(
        size / 1e6 for size in (weights, activations - callers, told, int(arena), callers, held)
    )


def main() -> None:
    """Print a table of all networks, and how many are within 15 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=JUDGED.split())
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--run", metavar="FILE")
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return
    print("| network | batch | weights | ORT | activations | ORT | sum | process | sum / ORT |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for batch in map(int, options.batch.split(",")):
            for name in options.names:
                own, live, weights, arena, callers, held = judge(name, batch, Path(folder))
                ratios.append((own + live) / (weights + arena))
                print(f"| {name} | {batch} | {own:.1f} | {weights:.1f} | {live:.2f} | {arena:.2f} "
                      f"| {own + live + callers:.1f} | {held:.1f} | {ratios[-1]:.3f} |",
                      flush=True)  # fmt: skip
    within = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
    ends = f"from {min(ratios):.3f} to {max(ratios):.3f}, median {np.median(ratios):.3f}"
    print(f"\n{within} of {len(ratios)} within 15 %, {ends}")


if __name__ == "__main__":
    main()
