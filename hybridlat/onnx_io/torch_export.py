"""A ``torch.nn.Module`` as an ONNX model without weights, exported in memory.

PyTorch is imported when a module is exported and never before: that something is a module is told
by the names of its classes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from hybridlat.errors import InputError, MissingExtra, NetworkError
from hybridlat.onnx_io.module_paths import SCOPES, scopes_of

if TYPE_CHECKING:
    import onnx
    import torch

Example: TypeAlias = "torch.Tensor | Sequence[Any] | Mapping[str, Any]"
"""What a module is called with: a tensor, a shape, a sequence of either, or either by keyword."""

_LEAST_ELEMENTS = 17  # what is smaller may decide shapes, and keeps its values
_SAID = 200


def is_module(source: object) -> TypeGuard[torch.nn.Module]:
    """Whether ``source`` is a ``torch.nn.Module``; imports nothing."""
    return any(
        kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module"
        for kind in type(source).__mro__
    )


def export(module: torch.nn.Module, example: Example, batch: int | None = None) -> onnx.ModelProto:
    """The ONNX model that ``torch.onnx.export`` makes of ``module`` for this input, less weights.

    ``example`` is a tensor, a shape such as ``(1, 3, 224, 224)``, a sequence of either (one for
    each input) or a mapping from keyword to either. A shape stands for a tensor of the module's own
    number type. ``batch`` replaces the first size of every tensor. The module is exported as it
    is deployed, in evaluation mode, and left in the mode it was in.

    Raises MissingExtra without PyTorch, InputError for an example that makes no sense, NetworkError
    where neither exporter can make anything of the module.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "torch", "a torch.nn.Module as a network") from error
    positional, named = _arguments(module, example, batch)
    with _as_deployed(module), torch.no_grad(), _quietly():
        return _exported(module, positional, named)


def _exported(
    module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> onnx.ModelProto:
    """By the exporter that PyTorch takes by default, else by the older one."""
    said = []
    for exporter in _exporters():
        try:
            return exporter(module, positional, named)
        except Exception as error:  # noqa: BLE001  what a module raises is anybody's guess
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            sentence = f"{type(error).__name__}: {lines[0] if lines else ''}"[:_SAID]
            if sentence not in said:
                said.append(sentence)
    raise NetworkError(
        f"torch.onnx.export cannot export {type(module).__name__} with this input "
        f"({'; then '.join(said)}): try the input on the module itself"
    )


def _exporters() -> list[Callable[..., onnx.ModelProto]]:
    import inspect

    import torch

    known = inspect.signature(torch.onnx.export).parameters
    exporters: list[Callable[..., onnx.ModelProto]] = []
    # The newer one is written in onnxscript, which PyTorch does not bring along.
    if "dynamo" in known and "dynamic_shapes" in known and importlib.util.find_spec("onnxscript"):
        exporters.append(_by_graph_capture)
    if "export_params" in known:
        exporters.append(_by_tracing)
    return exporters


def _by_graph_capture(
    module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> onnx.ModelProto:
    """``torch.export`` and onnxscript, the default since PyTorch 2.9."""
    import onnx_ir
    import torch

    program = torch.onnx.export(module, positional, kwargs=named, dynamo=True, verbose=False)
    model = program.model
    for value in model.graph.initializers.values():
        tensor = value.const_value
        has_many = tensor is not None and tensor.size >= _LEAST_ELEMENTS
        if has_many and tensor.dtype.is_floating_point():
            value.const_value = onnx_ir.ExternalTensor(
                "weights", None, None, tensor.dtype, shape=tensor.shape, name=tensor.name or ""
            )
    for node in model.graph:
        scopes = scopes_of(node.metadata_props.get(SCOPES, ""))
        node.name = "/".join([*scopes[:-1], node.op_type]) if scopes else node.name
        node.metadata_props.clear()
    proto: onnx.ModelProto = onnx_ir.to_proto(model)
    return proto


def _by_tracing(
    module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> onnx.ModelProto:
    """The older exporter, which runs the module once; its parameters come out as inputs."""
    import inspect

    import onnx
    import torch

    target = io.BytesIO()
    known = inspect.signature(torch.onnx.export).parameters
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in known else {}
    if named and "kwargs" in known:
        options["kwargs"] = named
    elif named:  # before there was such a keyword, a dictionary behind the other arguments
        positional = (*positional, named)
    torch.onnx.export(module, positional, target, export_params=False, **options)
    model: onnx.ModelProto = onnx.ModelProto.FromString(target.getvalue())
    _part_weights(model.graph, module, _tensors_in([*positional, *named.values()]))
    return model


def _part_weights(
    graph: onnx.GraphProto, module: torch.nn.Module, given: Sequence[torch.Tensor]
) -> None:
    """Make initializers without values of the graph's inputs that are no arguments.

    Arguments come first and in order, those that nothing reads are left out; a parameter keeps its
    name unless it was folded with others.
    """
    import onnx

    named = set(module.state_dict())
    left = [tuple(tensor.shape) for tensor in given]
    weights = []
    for info in graph.input:
        shape = tuple(size.dim_value for size in info.type.tensor_type.shape.dim)
        if info.name not in named and shape in left:
            del left[: left.index(shape) + 1]
        else:
            weights.append(info)
    arguments = [info for info in graph.input if info not in weights]
    for info in weights:
        type_ = info.type.tensor_type
        dims = [size.dim_value for size in type_.shape.dim]
        graph.initializer.append(
            onnx.TensorProto(name=info.name, data_type=type_.elem_type, dims=dims)
        )
    del graph.input[:]
    graph.input.extend(arguments)


def _tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors in (nested) arguments, in order."""
    import torch

    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, Mapping):
            tensors += _tensors_in(list(value.values()))
        elif isinstance(value, list | tuple):
            tensors += _tensors_in(value)
    return tensors


# ---- what the module is called with ------------------------------------------------------------


def _arguments(
    module: torch.nn.Module, example: Example, batch: int | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the module, shapes made tensors."""
    make = _maker(module, batch)
    if isinstance(example, Mapping):
        return (), {str(name): make(value) for name, value in example.items()}
    if _is_shape(example) or not isinstance(example, list | tuple):
        return (make(example),), {}
    return tuple(make(value) for value in example), {}


def _is_shape(value: object) -> bool:
    """A sequence of whole numbers, as a shape is written; ``torch.Size`` too."""
    return (
        isinstance(value, list | tuple)
        and len(value) > 0
        and all(isinstance(size, int) and not isinstance(size, bool) for size in value)
    )


def _maker(module: torch.nn.Module, batch: int | None) -> Callable[[Any], Any]:
    import torch

    own = next(
        (p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()),
        torch.empty(0),
    )

    def make(value: Any) -> Any:
        if _is_shape(value):
            if min(value) < 1:
                raise InputError(f"{tuple(value)} is no shape: every size must be at least 1")
            value = torch.zeros(tuple(value), dtype=own.dtype, device=own.device)
        if isinstance(value, Mapping):
            return {name: make(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return tuple(make(item) for item in value)
        if not isinstance(value, torch.Tensor):
            if value is None or isinstance(value, bool | int | float):
                return value
            raise InputError(
                f"a {type(value).__name__} is no example input: give a tensor, a shape such as "
                "(1, 3, 224, 224), or a tuple with one of them for each input"
            )
        if batch is not None and value.dim() > 0:
            return value[:1].expand(batch, *value.shape[1:]).contiguous()
        return value

    return make


# ---- around the export -------------------------------------------------------------------------


@contextlib.contextmanager
def _as_deployed(module: torch.nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and every part of it back in its own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Nothing of what exporters warn and print: tracing hints, deprecations, progress."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
