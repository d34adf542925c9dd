"""The contract of a backend, which builds a cell or a network and times it; the tools beside it."""

import abc
import enum
import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from hybridlat.graph.network import Lowered, Network, Shapes
from hybridlat.schema.target import Target

_TRTEXEC = {"fp32": "", "tf32": "", "fp32-strict": " --noTF32", "int8": " --int8 --fp16"}
_TRTEXEC |= {"fp16": " --fp16", "bf16": " --bf16"}
_OPENVINO = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int8": "f32"}


class Method(enum.Enum):
    """How an engine's cells are measured.

    REPLICAS: the lowered graph can be cut and its parts run. DIFFERENTIAL: a cell is timed with its
    predecessor. PLAN: the same by a plan, which ``run_plan`` measures.
    """

    REPLICAS = "replicas"
    DIFFERENTIAL = "differential"
    PLAN = "plan"


class Session(AbstractContextManager["Session"]):
    """One built cell or network with its own weights, inputs and buffers, ready to run."""

    lost_share: float = 0.0
    """What others took of the CPU time of its runs, as far as it is known."""

    @abc.abstractmethod
    def run_us(self, count: int) -> list[float]:
        """Microseconds of each of ``count`` inferences, one after another.

        Samples that the operating system disturbed (involuntary context switches) are left out, so
        there may be fewer. Raises MeasurementError when a run fails.
        """

    def close(self) -> None:
        """Give back memory; the session is not used afterwards."""

    def __exit__(self, *_: object) -> None:
        self.close()


class Backend(abc.ABC):
    """An engine on this machine, for one precision (and thread count on a CPU).

    Measurements belong to ``target``: device, runtime with version, precision and threads.
    """

    name: ClassVar[str]
    method: ClassVar[Method]
    target: Target
    options: Mapping[str, int | str] = MappingProxyType({})
    """The arguments that it was started with, and is anew in a measuring process."""
    contexts: Mapping[str, float] = MappingProxyType({"": math.inf})
    """Contexts of cells, and the bytes of weights that a network of each holds less than."""

    @classmethod
    def options_for(cls, target: Target | None, threads: int | None) -> Mapping[str, int | str]:
        """Arguments that start this backend for ``target``, or for its default."""
        del target, threads
        return {}

    def environment(self) -> Mapping[str, str]:
        """What a record must know of engine, driver, CPU and threads; a plan's results say it."""
        return {}

    @abc.abstractmethod
    def lower(self, network: Network) -> Lowered:
        """The graph that this engine runs for the network of a file; MeasurementError."""

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        """Build a network with seeded random weights and inputs; MeasurementError where it fails.

        A ``lowered`` one, which backends of ``REPLICAS`` get, must run as it is; a file's network
        is optimised as the engine always does.
        """
        raise NotImplementedError(f"{self.name} is measured by plans")

    def close(self) -> None:
        """End what this backend has started; it may start again when it is used again."""

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        """Measure the plan in ``folder`` on this machine; results lie in it afterwards.

        ``progress`` gets done, total and a label. A run goes on where an earlier one was cut off.
        Raises MeasurementError when nothing can be measured.
        """
        raise NotImplementedError(f"{self.name} measures no plans")

    def build_replicas(self, network: Network, *, count: int, seed: int) -> list[Session]:
        """``count`` sessions of a lowered network, to be run in turn, with weights of their own.

        An engine overrides this where they can share the memory of activations, as cells of a
        network do.
        """
        one = partial(self.build, network, lowered=True)
        return build_all(partial(one, seed=seed + replica) for replica in range(count))


def build_all(builds: Iterable[Callable[[], Session]]) -> list[Session]:
    """The sessions of all these calls; where one fails, those before it are closed."""
    sessions: list[Session] = []
    with ExitStack() as built:
        for build in builds:
            sessions.append(built.enter_context(build()))
        built.pop_all()
    return sessions


def check_of(target: Target, path: str, shapes: Shapes, graphs: bool) -> tuple[str, str]:
    """The command of an engine's own tool, and the figure in its output; empty where it has none.

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
