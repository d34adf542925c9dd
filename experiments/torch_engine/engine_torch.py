"""PyTorch with cuDNN under CUDA graphs: the second engine, for where TensorRT cannot start.

Operators run one by one as eager PyTorch runs them; nothing is fused. Without a GPU it runs on the
CPU, which serves rehearsals only.
"""

import importlib
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import EngineError, NoDevice, onnx_graph, torch_ops, torch_shapes, wire
from .engines import Engine, Request
from .nvml import Reading, Sensors

_CODES = {1: "float32", 10: "float16", 7: "int64", 6: "int32", 9: "bool", 11: "float64"}

_Model = NamedTuple("_Model", [("replay", Callable[[], Any]), ("inferences", int), ("keep", Any)])


class TorchEngine(Engine):
    """The installed PyTorch on its first GPU."""

    name = "torch"

    def __init__(self) -> None:
        try:
            self._torch = torch = importlib.import_module("torch")
        except ImportError as error:
            raise NoDevice("PyTorch is not installed here (%s)" % error)
        self.version = ".".join(str(torch.__version__).split("+")[0].split(".")[:2])
        self._gpu = bool(torch.cuda.is_available())
        self._device = "cuda" if self._gpu else "cpu"
        self._sensors = Sensors()
        self._models: Dict[str, _Model] = {}
        torch.backends.cudnn.benchmark = True
        if not self._gpu:
            torch.set_num_threads(1)

    def settings(self) -> Dict[str, str]:
        return {"torch": str(self._torch.__version__), "cudnn_benchmark": "yes"}

    def board(self) -> Dict[str, str]:
        if not self._gpu:
            return {"gpu": "none: this is the CPU"}
        result = {"gpu": str(self._torch.cuda.get_device_name(0))}
        result.update(self._sensors.describe())
        return result

    def read_sensors(self) -> Reading:
        return self._sensors.read() if self._gpu else {}

    def build(self, request: Request) -> Dict[str, Any]:
        torch = self._torch
        begin = time.time()
        if request.precision not in ("fp32", "tf32", "fp16"):
            raise EngineError("the PyTorch engine cannot run %s" % request.precision)
        tf32 = request.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        with open(request.path, "rb") as source:
            data = source.read()
        model = onnx_graph.Model(data)
        half = request.precision == "fp16"
        folder = os.path.dirname(request.path)
        lacks = torch_ops.missing(model.nodes)
        if lacks:
            raise EngineError("the PyTorch engine has no %s" % ", ".join(lacks))
        copies = []
        read_here = torch_shapes.parameters(model.nodes)
        for _ in range(max(1, request.copies)):
            values = {
                name: self._tensor(tensor, folder, half, name in read_here)
                for name, tensor in model.initializers.items()
            }
            values.update(self._inputs(model, half))
            copies.append(values)
        replay, inferences = self._capture(model, copies, request.alone)
        self._models[request.key] = _Model(replay, inferences, copies)
        return {"build_s": round(time.time() - begin, 3), "copies": len(copies),
                "inferences_per_launch": inferences}  # fmt: skip

    def _capture(self, model: Any, copies: List[Any], alone: bool) -> Any:
        torch, nodes = self._torch, model.nodes

        def once() -> None:
            for values in copies if alone else copies[:1]:
                torch_ops.run(torch, nodes, values)

        count = len(copies) if alone else 1
        with torch.no_grad():
            if not self._gpu:
                once()
                return once, count
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):  # cuDNN's choice of algorithms must not be captured
                for _ in range(3):
                    once()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                once()
        return graph.replay, count

    def _tensor(self, fields: List[wire.Field], folder: str, half: bool, stays: bool) -> Any:
        torch = self._torch
        code = wire.integer(fields, 2)
        kind = getattr(torch, _CODES.get(code, "float32"))
        shape = wire.integers(fields, 1)
        entries = [wire.read(raw) for raw in wire.all_bytes(fields, 13)]
        if entries:
            about = {wire.text(e, 1): wire.text(e, 2) for e in entries}
            with open(os.path.join(folder, about["location"]), "rb") as source:
                source.seek(int(about["offset"]))
                raw = source.read(int(about["length"]))
        else:
            raws = wire.all_bytes(fields, 9)
            raw = raws[-1] if raws else b""
        if raw:
            tensor = torch.frombuffer(bytearray(raw), dtype=kind).reshape(shape)
        elif code == 7:
            tensor = torch.tensor(wire.integers(fields, 7), dtype=kind).reshape(shape)
        else:
            tensor = torch.tensor(wire.floats(fields, 4), dtype=kind).reshape(shape)
        if tensor.numel() > torch_shapes.MOST_PARAMETERS and not tensor.is_floating_point():
            return tensor.to(self._device)
        if tensor.is_floating_point() and not stays:  # shapes and axes are read by Python
            tensor = tensor.to(self._device)
            tensor = tensor.half() if half else tensor
        return tensor

    def _inputs(self, model: Any, half: bool) -> Dict[str, Any]:
        torch = self._torch
        torch.manual_seed(0)
        made = {}
        for name, shape in model.inputs():
            tensor = torch.randn(shape, device=self._device)
            made[name] = tensor.half() if half else tensor
        return made

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        torch, model = self._torch, self._models[key]
        result = []
        if not self._gpu:
            with torch.no_grad():
                for _ in range(count):
                    begin = time.perf_counter()
                    model.replay()
                    result.append((time.perf_counter() - begin) * 1e6 / model.inferences)
            return result
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            model.replay()
            event.record()
        if during is not None:
            during()
        events[-1].synchronize()
        return [a.elapsed_time(b) * 1e3 / model.inferences for a, b in zip(events, events[1:])]

    def drop(self, key: str) -> None:
        self._models.pop(key, None)


def open_engine(options: Dict[str, str]) -> Engine:
    """PyTorch; it takes no options."""
    return TorchEngine()
