"""A made-up driver and TensorRT module that have only the names a version has, and record calls.

``tests/golden/tensorrt_api.json`` lists, for every version, which of the names that hybridlat asks
for exist there. Anything else raises AttributeError, as the real module would.
"""

import ctypes
import json
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import NonCallableMock

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tensorrt_api.json"
ENUMS = """BuilderFlag NetworkDefinitionCreationFlag MemoryPoolType DataType TensorIOMode
ProfilingVerbosity TacticSource PreviewFeature LayerInformationFormat TensorFormat"""


class FakeDriver:
    """libcuda.so.1 with a device whose every event lies 50 µs after the one before."""

    def __init__(self, devices: int = 1, broken: str = "") -> None:
        self.calls: list[str] = []
        self._devices, self._broken = devices, broken
        self._next = 4096
        self.live: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self._broken:
                return 700
            self._answer(name, arguments)
            return 0

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> None:
        out: Any = getattr(arguments[0], "_obj", None) if arguments else None
        if name == "cuDeviceGetCount":
            out.value = self._devices
        elif name == "cuEventElapsedTime":
            out.value = 0.05
        elif name == "cuDriverGetVersion":
            out.value = 12040
        elif name == "cuDeviceGetName":
            arguments[0].value = b"NVIDIA H100 80GB HBM3"
        elif name == "cuDeviceGetPCIBusId":
            arguments[0].value = b"0000:01:00.0"
        elif name == "cuStreamEndCapture":
            arguments[1]._obj.value = 77
        elif name == "cuMemAlloc_v2":
            self._next += 4096
            out.value = self._next
            self.live.add(self._next)
        elif name == "cuMemFree_v2":
            self.live.remove(arguments[0].value)
        elif out is not None and hasattr(out, "value"):
            self._next += 1
            out.value = self._next


def _enum(trt: types.ModuleType, name: str, members: list[str]) -> None:
    holder = type(name, (), {})
    for place, member in enumerate(sorted(members)):
        setattr(holder, member, type(name, (int,), {"name": member})(place))
    setattr(trt, name, holder)


def make_module(version: str) -> Any:
    """A ``tensorrt`` module of ``version``; ``module.recorded`` holds what was set and built."""
    api = json.loads(GOLDEN.read_text())[version]
    trt: Any = types.ModuleType("tensorrt")
    trt.__version__ = api["__version__"]
    recorded: dict[str, Any] = {"flags": [], "cleared": [], "network": None, "parsed": []}
    trt.recorded = recorded
    for name, members in api.items():
        if name in ENUMS.split():
            _enum(trt, name, members)

    def strict(kind: str, **values: Any) -> NonCallableMock:
        """An object that has what the golden list gives its class, and nothing else."""
        names = api.get(kind, [])
        return NonCallableMock(spec_set=names, **{k: v for k, v in values.items() if k in names})

    class Logger:
        ERROR, INTERNAL_ERROR = 1, 0

    trt.ILogger = Logger

    def config() -> Any:
        def set_cache(cache: Any, ignore: bool) -> bool:
            recorded["cache"] = cache
            return True

        def new_cache(data: bytes) -> Any:
            return strict("ITimingCache", serialize=lambda: data + b"+")

        made = strict(
            "IBuilderConfig",
            set_memory_pool_limit=lambda pool, size: None,
            set_flag=lambda flag: recorded["flags"].append(flag.name),
            clear_flag=lambda flag: recorded["cleared"].append(flag.name),
            get_tactic_sources=lambda: 31,
            set_tactic_sources=lambda mask: recorded.update(tactics=mask) or True,
            set_preview_feature=lambda feature, on: recorded.update(preview=feature.name),
            create_timing_cache=new_cache,
            set_timing_cache=set_cache,
            get_timing_cache=lambda: recorded["cache"],
            profiling_verbosity=None,
            max_aux_streams=None,
        )
        recorded["config"] = made
        return made

    def parse(path: str) -> bool:
        recorded["parsed"].append(path)
        return "refused" not in path

    def parser(network: Any, logger: Any) -> Any:
        error = strict("ParserError", desc=lambda: "no importer for Op")
        how = {"parse_from_file": parse, "num_errors": 1, "get_error": lambda i: error}
        return strict("OnnxParser", **how)

    def network(flags: int) -> object:
        recorded["network"] = flags
        kinds, image = trt.DataType, (1, 3, 8, 8)
        tensors = ((kinds.FLOAT, image), (kinds.INT32, image), (kinds.FLOAT, (1, 10)))
        ends = [
            strict("ITensor", dtype=dtype, shape=shape, allowed_formats=None)
            for dtype, shape in tensors
        ]
        recorded["ends"] = ends
        inputs = {"num_inputs": 2, "get_input": ends.__getitem__}
        outputs = {"num_outputs": 1, "get_output": lambda i: ends[2 + i]}
        return strict("INetworkDefinition", **inputs, **outputs)

    def build(network: Any, made: Any) -> bytes | None:
        return None if "unbuildable" in recorded["parsed"][-1] else b"plan"

    def context() -> Any:
        calls = {"set_tensor_address": lambda *_: True, "execute_async_v3": lambda _: True}
        return strict("IExecutionContext", **calls)

    def engine(plan: bytes) -> Any:
        shapes = {"x": (1, 3, 8, 8), "y": (1, 10)}
        layers = '{"Layers": [{"Name": "a\x1eb"}]}'
        inspector = strict("EngineInspector", get_engine_information=lambda kind: layers)
        return strict(
            "ICudaEngine",
            num_io_tensors=len(shapes),
            get_tensor_name=list(shapes).__getitem__,
            get_tensor_dtype=lambda name: trt.DataType.FLOAT,
            get_tensor_shape=shapes.get,
            get_tensor_vectorized_dim=lambda name: 1 if name == "x" else -1,
            get_tensor_components_per_element=lambda name: 8,
            get_tensor_mode=lambda name: trt.TensorIOMode.INPUT if name == "x" else 99,
            create_execution_context=context,
            create_engine_inspector=lambda: inspector,
        )

    builds = {"create_network": network, "build_serialized_network": build}
    trt.Builder = lambda logger: strict("Builder", create_builder_config=config, **builds)
    trt.OnnxParser = parser
    trt.Runtime = lambda logger: strict("Runtime", deserialize_cuda_engine=engine)
    return trt


def install(version: str, driver: FakeDriver, refusal: str = "") -> Any:
    """Put the module and the driver where this process will find them; the module.

    ``refusal`` is what its builder logs where CUDA does not start, and its runtime then crashes.
    """
    module = make_module(version)
    if refusal:

        def builder(logger: Any) -> None:
            logger.log(module.ILogger.ERROR, refusal)
            raise TypeError("pybind11::init(): factory function returned nullptr")

        module.Builder, module.Runtime = builder, lambda _: os.abort()
    sys.modules["tensorrt"] = module
    real = ctypes.CDLL

    def load(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "libcuda.so.1":
            return driver
        if str(name).startswith(("libnvidia-ml", "libcudnn", "libcublas")):
            raise OSError(name)
        return real(name, *arguments, **more)

    ctypes.CDLL = load  # type: ignore[assignment,misc]
    return module


def shim(folder: Path, version: str) -> Path:
    """A file that stands in for worker.py, with TensorRT of ``version``."""
    path = folder / f"worker_{version}.py"
    path.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from hybridlat import board\nfrom tests.board import fake_tensorrt\n"
        f"fake_tensorrt.install({version!r}, fake_tensorrt.FakeDriver())\n"
        "launcher = board.__path__[0] + '/worker.py'\n"
        "runpy.run_path(launcher, run_name='__main__')\n"
    )
    return path
