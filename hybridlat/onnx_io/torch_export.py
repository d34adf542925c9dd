"""A ``torch.nn.Module`` as an ONNX model without weights, exported in memory."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from hybridlat.errors import InputError, MissingExtra, NetworkError

if TYPE_CHECKING:
    import onnx
    import torch

Example: TypeAlias = "torch.Tensor | Sequence[Any] | Mapping[str, Any]"
"""What a module is called with: a tensor, a shape such as ``(1, 3, 224, 224)``, a sequence of
either (one for each input), or a mapping from keyword to either."""

SCOPES = "pkg.torch.onnx.name_scopes"
"""The key under which PyTorch writes the modules that an operator comes from."""
_STACK = "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_NAME = re.compile(r"'([^'\\]*)'")  # of a list of texts, as Python prints it
_LIST = re.compile(r"\[(?:'[^'\\]*'(?:, (?=')|(?=\])))*\]")
_LEAST_ELEMENTS = 17  # what is smaller may decide shapes, and keeps its values
_DISTINCT_ROWS = 16  # of every parameter: enough to be neither even nor equal to another
_LONGEST_REASON = 200
_locks: dict[int, threading.Lock] = {}  # by process: a fork has none of the threads


def is_module(source: object) -> TypeGuard[torch.nn.Module]:
    """Whether ``source`` is a ``torch.nn.Module``; imports nothing."""
    kinds = [(kind.__module__, kind.__name__) for kind in type(source).__mro__]
    return ("torch.nn.modules.module", "Module") in kinds


def export(module: torch.nn.Module, example: Example, batch: int | None = None) -> onnx.ModelProto:
    """The ONNX model that ``torch.onnx.export`` makes of ``module`` for this input, less weights.

    A shape in ``example`` stands for a tensor of the module's own number type; ``batch`` replaces
    the first size of every tensor. The module is exported in evaluation mode and with values that
    differ, and left as it was. Raises MissingExtra without PyTorch or onnxscript, InputError for an
    example that makes no sense, NetworkError where the exporter fails.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "torch", "a torch.nn.Module as a network") from error
    if importlib.util.find_spec("onnxscript") is None:  # PyTorch does not bring it along
        raise MissingExtra("onnxscript", "torch", "a torch.nn.Module as a network")
    positional, by_keyword = _arguments(module, example, batch)
    with as_deployed(module), torch.no_grad(), distinct_values(module):
        return _exported(module, positional, by_keyword)


def scopes_of(text: str) -> list[str]:
    """The modules around an operator and the operator, as PyTorch writes them: ``['', 'fc']``."""
    return _NAME.findall(text) if isinstance(text, str) and _LIST.fullmatch(text) else []


def source_line(stack: str, library: str) -> str:
    """The innermost line of a stack trace outside the folder ``library``: ``resnet.py:147``."""
    frames = [(file, line) for file, line in _FRAME.findall(stack) if not file.startswith(library)]
    return f"{Path(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""


def _exported(
    module: torch.nn.Module, positional: tuple[Any, ...], by_keyword: dict[str, Any]
) -> onnx.ModelProto:
    """The model by PyTorch's default exporter since 2.9, without large tensors.

    Operators are named by the modules around them and the line of source that called them.
    """
    import onnx_ir
    import torch

    try:
        program = torch.onnx.export(
            module, positional, kwargs=by_keyword, dynamo=True, verbose=False
        )
    except Exception as error:  # what a module raises may be anything
        cause: BaseException = error
        while cause.__cause__ is not None:  # the exporter's own words name its steps alone
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        reason = f"{type(cause).__name__}: {lines[0] if lines else ''}"[:_LONGEST_REASON]
        why = f"torch.onnx.export cannot export {type(module).__name__} with this input ({reason})"
        fix = "try the input on the module itself, then its export"
        if isinstance(module, torch.jit.ScriptModule):
            fix = "give the module that this one was scripted or traced from"
        raise NetworkError(f"{why}: {fix}") from error
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
        line = source_line(node.metadata_props.get(_STACK, ""), str(Path(torch.__file__).parent))
        name = "/".join([*scopes[:-1], node.op_type]) if scopes else node.name
        node.name = f"{name} ({line})" if line else name
        node.metadata_props.clear()
    proto: onnx.ModelProto = onnx_ir.to_proto(model)
    return proto


def _arguments(
    module: torch.nn.Module, example: Example, batch: int | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, those by keyword apart: shapes have become tensors."""
    import torch

    every = (*module.parameters(), *module.buffers())
    own = next((p for p in every if p.is_floating_point()), torch.empty(0))

    def make(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: make(item) for name, item in value.items()}
        sizes = value if isinstance(value, list | tuple) else ()  # torch.Size is one too
        if sizes and all(isinstance(s, int) and not isinstance(s, bool) for s in sizes):
            if min(value) < 1:
                raise InputError(f"{tuple(value)} is no shape: every size must be at least 1")
            value = torch.zeros(tuple(value), dtype=own.dtype, device=own.device)
        elif isinstance(value, list | tuple):
            return tuple(make(item) for item in value)
        elif value is None or isinstance(value, bool | int | float):
            return value
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"a {type(value).__name__} is no example input: give a tensor, a shape such as "
                "(1, 3, 224, 224), or a tuple with one of them for each input"
            )
        if batch is not None and value.dim() > 0:
            return value[:1].expand(batch, *value.shape[1:]).contiguous()
        return value

    made = make(example)
    if isinstance(made, dict):
        return (), {str(name): value for name, value in made.items()}
    return (made if isinstance(made, tuple) else (made,)), {}


@contextlib.contextmanager
def as_deployed(module: torch.nn.Module) -> Iterator[None]:
    """A block with the module in evaluation mode; every part is in its own mode afterwards.

    One thread at a time: a second one would take the first one's mode for the module's own. What
    exporters warn of and log meanwhile (tracing hints, deprecations) is not shown.
    """
    one_at_a_time = _locks.setdefault(os.getpid(), threading.Lock())
    with one_at_a_time, warnings.catch_warnings(), contextlib.ExitStack() as afterwards:
        warnings.simplefilter("ignore")
        for logger in map(logging.getLogger, ("torch.onnx", "onnxscript", "onnx_ir")):
            afterwards.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        for part in module.modules():
            afterwards.callback(setattr, part, "training", part.training)
        with contextlib.suppress(NotImplementedError):  # of an exported program, which has no mode
            module.eval()
        yield


@contextlib.contextmanager
def distinct_values(module: torch.nn.Module) -> Iterator[None]:
    """A block in which each float parameter and buffer begins with values like no other's.

    Exporters drop zeros and ones and merge equal tensors, so that an untrained module would become
    another network than a trained one. Positive values in the first rows are enough against that,
    and only those rows are kept to be written back. What has no values of its own (meta tensors,
    broadcast ones) stays as it is.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for value in (*module.parameters(), *module.buffers()):
            plain = type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_meta
            if not plain or value.layout is not torch.strided or value.is_inference():
                continue
            if not value.is_floating_point() or 0 in value.stride():
                continue
            # ``data`` has no version that a backward pass under way would find changed.
            rows = value.data[:_DISTINCT_ROWS] if value.dim() else value.data
            kept.append((rows, rows.clone()))
            rows.copy_(torch.rand(rows.shape, generator=generator) * 0.09 + 0.01)
        yield
    finally:
        for rows, before in reversed(kept):  # tensors may share their memory
            rows.copy_(before)
