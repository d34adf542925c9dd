"""Lowering by TensorRT-RTX's own compiler, which needs no GPU: extra ``[rtx]``.

The compiler prints the layers of the engine it makes, each with the ONNX operators inside. It
stands in for the grouping of classic TensorRT, not for its choice of tactics.
"""

import importlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hybridlat import onnx_io
from hybridlat.engines.fusion.groups import Claimed, Groups, lowered_of, numbered
from hybridlat.engines.fusion.precision import in_precision, narrow_weights
from hybridlat.errors import MeasurementError, MissingExtra
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import named
from hybridlat.schema.target import Target

ENGINE = "tensorrt-rtx"
_LAYER = re.compile(r"^Name: (\S+), LayerType: (\w+)", re.MULTILINE)
_ORIGIN = re.compile(r"\[ONNX Layer: n(\d+)\]")
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_REDUCTIONS = frozenset({"GlobalAveragePool", "ReduceMean", "ReduceSum", "ReduceL2", "ReduceMax"})
_FILL = "__myl_Move_"
_COPIES = frozenset({"kgen", "runtime_function"})
_TELLS_ITS_EPILOGUE = re.compile(r"__myl_Fc[A-Z]")
_EPILOGUE = named(
    "Add BatchNormalization Clip Div Erf Gelu HardSigmoid HardSwish LeakyRelu Mul Pow Relu Sigmoid "
    "Sub Sum Tanh"
)


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """A layer of an engine: its name, its kind, and positions of the operators in it."""

    name: str
    kind: str
    nodes: tuple[int, ...]


def _bindings() -> Any:
    for name in ("tensorrt_rtx_bindings", "tensorrt_rtx"):
        with suppress(ImportError):
            return importlib.import_module(name)
    needs = "Asking TensorRT-RTX which operators it fuses"
    raise MissingExtra("tensorrt-rtx-cu13-bindings", "rtx", needs)


def installed() -> bool:
    """Whether the compiler is on this machine."""
    with suppress(MissingExtra):
        return bool(_bindings())
    return False


def version() -> str:
    """Version of the compiler; MissingExtra where there is none."""
    return str(_bindings().__version__)


def lower(network: Network, target: Target) -> Lowered:
    """The kernels that TensorRT-RTX makes; MissingExtra, MeasurementError, NetworkError."""
    warnings = narrow_weights(network, target.precision == "int8")
    groups, by = groups_of(network, target.precision)
    return lowered_of(network, groups, by, warnings)


def identity(target: Target) -> str:
    """The compiler and the precision."""
    return f"{ENGINE}-{version()}/{target.precision}"


def groups_of(network: Network, precision: str = "fp32") -> tuple[Groups, str]:
    """The operators of each engine layer, and who says so; errors as for :func:`lower`."""
    typed = in_precision(network, "float16") if precision == "fp16" else network
    return groups_of_layers(typed, engine_layers(typed)), f"{ENGINE} {version()}"


def engine_layers(network: Network) -> tuple[EngineLayer, ...]:
    """The layers that the compiler prints, without auxiliary streams: one branch after another."""
    trt = _bindings()
    messages, errors = list[str](), list[str]()

    class CompilerLog(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                errors.append(message)
            if message.startswith("Layers:"):
                messages.append(message)

    log = CompilerLog()
    builder = trt.Builder(log)
    definition = builder.create_network(0)
    parser = trt.OnnxParser(definition, log)
    if not parser.parse(onnx_io.to_onnx(numbered(network), seed=0)):
        complaints = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise MeasurementError(f"TensorRT-RTX cannot read {network.name}: {complaints[:300]}")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.max_aux_streams = 0
    if builder.build_serialized_network(definition, config) is None:
        detail = "; ".join(errors) or "no reason given"
        raise MeasurementError(f"TensorRT-RTX cannot build {network.name}: {detail[:300]}")
    return parse_layers("\n".join(messages))


def parse_layers(text: str) -> tuple[EngineLayer, ...]:
    """The layers in the compiler's log, in the order in which they run."""
    _, *parts = _LAYER.split(text)
    layers = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return tuple(
        EngineLayer(name, kind, tuple(dict.fromkeys(map(int, _ORIGIN.findall(about)))))
        for name, kind, about in layers
    )


def groups_of_layers(network: Network, layers: tuple[EngineLayer, ...]) -> Groups:
    """Each operator in exactly one group: that of the first layer that holds it, or none.

    A Split has a layer for each slice, and two layers may compute one activation. Behind a matrix
    product the log leaves out the operators of the epilogue, though the layer's name tells of them.
    They belong to the layer that makes their input; where that is the bare product, to the one that
    reads them. What only products read (a scale by one) belongs to the layer before.
    """
    prepared = _prepared(network, layers)
    computes = [[n for n in layer.nodes if n not in prepared[i]] for i, layer in enumerate(layers)]
    claimed = Claimed(network, computes)
    lost = [i for i, n in enumerate(network.nodes) if i not in claimed.by and n.op in _EPILOGUE]
    for position in lost:
        makers = claimed.makers(position)
        if makers and _TELLS_ITS_EPILOGUE.match(layers[max(makers)].name):
            claimed.by[position] = max(makers)
    for position in [i for i in reversed(lost) if i not in claimed.by]:
        outputs = network.nodes[position].outputs
        ops = {network.nodes[r].op for out in outputs for r in network.consumers.get(out, ())}
        if (makers := claimed.makers(position)) and ops <= _PRODUCTS:
            claimed.by[position] = max(makers)
        elif readers := claimed.readers(position):
            claimed.by[position] = min(readers)
    return claimed.groups()


def _prepared(network: Network, layers: tuple[EngineLayer, ...]) -> list[frozenset[int]]:
    """The operators that each layer names and only prepares, by a copy or a fill."""
    inputs: list[frozenset[int]] = []
    for index, layer in enumerate(layers):
        ops = {node: network.nodes[node].op for node in layer.nodes}
        fills = layer.name.startswith(_FILL) and set(ops.values()) <= _REDUCTIONS
        copied = {node for node, op in ops.items() if op in _PRODUCTS}
        later: set[int] = set()
        for other in layers[index + 1 :] if layer.kind in _COPIES and (fills or copied) else ():
            computes = fills or other.kind not in _COPIES
            if computes and (set(ops) if fills else copied) & set(other.nodes):
                later |= set(other.nodes)
        inputs.append(frozenset(later))
    return inputs
