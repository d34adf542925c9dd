"""Whole networks of public data sets, drawn kernel by kernel so that they sign like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hybridlat.graph.builder import NetworkBuilder, Shape, conv_attributes
from hybridlat.graph.network import AttributeValue, Network
from hybridlat.graph.signature import Signature, sign
from hybridlat.schema.target import Target
from hybridlat.store.importers import base

Attributes = tuple[tuple[str, AttributeValue], ...]


def read_choices(
    path: Path,
    choices: Sequence[str],
    known: Container[object],
    unknown: str,
    draw: Callable[[tuple[Any, ...], int], tuple[str, list[tuple[Signature, int]]]],
    watch: base.Watch | None,
) -> base.ImportedRecords:
    """Networks of ``networks.parquet``: one row a network, a latency column per device and batch.

    The columns ``choices`` say what each network consists of; a row with one that is not ``known``
    is left out and counted as ``unknown``. ``draw`` gives of the choices and a batch size the
    network's signature hash and its kernels.
    """
    result = base.ImportedRecords()
    for file, frame in base.tables(path, "networks.parquet"):
        base.need_columns(file, frame, "arch_str", *choices)
        columns = base.latency_columns(file, frame)
        batches = sorted({batch for _, _, batch in columns})
        names = [column for column, _, _ in columns]
        for row in base.rows(frame, "arch_str", *choices, *names, watch=watch):
            chosen, latencies = row[1 : 1 + len(choices)], row[1 + len(choices) :]
            if any(choice not in known for choice in chosen):
                result.skipped[unknown] += len(names)
                continue
            drawn = {batch: draw(chosen, batch) for batch in batches}
            for (_, device, batch), latency in zip(columns, latencies, strict=True):
                network, kernels = drawn[batch]
                target = Target(device, "pytorch-1.8", "fp32")
                name = f"{row[0]} batch {batch}"
                result.add_network(target, network, kernels, name, latency, protocol="help")
    return result


@lru_cache(maxsize=100_000)
def _kernel(
    op: str, sources: tuple[Shape, ...], weights: tuple[Shape, ...], result: Shape, more: Attributes
) -> Signature:
    drawing = Drawing()
    drawing.add(op, [drawing.input(shape) for shape in sources], result, weights, more)
    return sign(drawing.network("kernel"))


class Drawing:
    """A network in the making; ``add`` appends a kernel and gives the tensor it makes."""

    def __init__(self) -> None:
        self._net = NetworkBuilder()
        self.input, self.shape = self._net.input, self._net.shape
        self._kernels: Counter[tuple[object, ...]] = Counter()

    def add(
        self,
        op: str,
        inputs: list[str],
        result: Shape,
        weights: tuple[Shape, ...] = (),
        attributes: Attributes = (),
    ) -> str:
        """A kernel that reads ``inputs`` and weights of these shapes; ``A+B`` is a fused one."""
        attributes = tuple(sorted(attributes))
        self._kernels[op, tuple(map(self.shape, inputs)), weights, result, attributes] += 1
        operands = [*inputs, *map(self._net.constant, weights)]
        domain = "fused" if "+" in op else ""
        return self._net.op(op, operands, result, 1, dict(attributes), domain)

    def conv(
        self, op: str, tensor: str, c_out: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution with "same" padding and a bias, square in all."""
        batch, c_in, height, width = self.shape(tensor)
        result = (batch, c_out, -(-height // stride), -(-width // stride))
        attributes = conv_attributes((kernel, kernel), ((kernel - 1) // 2,) * 4, stride, groups)
        weights = ((c_out, c_in // groups, kernel, kernel), (c_out,))
        return self.add(op, [tensor], result, weights, tuple(attributes.items()))

    def network(self, name: str) -> Network:
        """What was drawn; tensors that nobody reads are its outputs."""
        return replace(self._net.network(), name=name)

    def kernels(self) -> list[tuple[Signature, int]]:
        """Every distinct kernel with its count."""
        return [(_kernel(*key), count) for key, count in self._kernels.items()]
