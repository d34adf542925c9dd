"""What answering for a file takes of it where its cells are known: little, and told without onnx.

Loading onnx and parsing a file cost more than all the rest of such an answer, so these facts are
remembered by the hash of the file's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hybridlat.schema import wire

FACTS_FORMAT = 2
"""To be raised with every change of how a fact is found: what is remembered is then found anew."""


class _Document(NamedTuple):
    """What ``FileFacts.to_text`` writes."""

    format: int
    structure: str
    written: str
    inputs: tuple[str, ...]
    node_names: tuple[str, ...]
    op_types: tuple[str, ...]
    module_paths: tuple[str, ...]
    constant_nodes: frozenset[int]
    precisions: dict[str, int]


@dataclass(frozen=True)
class FilePrecision:
    """How many convolutions and products of a file compute in each precision of a target.

    ``name`` is the precision of most of them; ``fp32`` where there is none.
    """

    counts: Mapping[str, int]

    @property
    def name(self) -> str:
        return max(self.counts, key=lambda p: (self.counts[p], p)) if self.counts else "fp32"

    @property
    def is_mixed(self) -> bool:
        return len(self.counts) > 1

    def __str__(self) -> str:
        """``int8``, or ``mixed: 20 of 21 convolutions and products in int8, 1 in fp32``."""
        if not self.is_mixed:
            return self.name
        ordered = sorted(self.counts.items(), key=lambda item: (item[0] != self.name, item[0]))
        first, *others = [f"{count} in {name}" for name, count in ordered]
        count, _, rest = first.partition(" ")
        total = sum(self.counts.values())
        told = ", ".join([f"{count} of {total} convolutions and products {rest}", *others])
        return f"mixed: {told}"


@dataclass(frozen=True)
class FileFacts:
    """See the properties of ``OnnxFile`` of the same names.

    ``structure`` is the digest that ``OnnxFile.key`` starts from, ``inputs`` are the names of the
    graph's inputs, weights that stand among them too.
    """

    structure: bytes
    written: bytes
    inputs: tuple[str, ...]
    node_names: tuple[str, ...]
    op_types: tuple[str, ...]
    module_paths: tuple[str, ...]
    constant_nodes: frozenset[int]
    precision: FilePrecision

    def to_text(self) -> str:
        """JSON for a cache."""
        body = [
            FACTS_FORMAT, self.structure.hex(), self.written.hex(), self.inputs, self.node_names,
            self.op_types, self.module_paths, sorted(self.constant_nodes),
            dict(self.precision.counts),
        ]  # fmt: skip
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> FileFacts | None:
        """Read ``to_text``; None for another format, and for what is damaged."""
        body = wire.decode_or_none(text, _Document)
        if body is None or body.format != FACTS_FORMAT:
            return None
        try:
            structure, written = bytes.fromhex(body.structure), bytes.fromhex(body.written)
        except ValueError:
            return None
        precision = FilePrecision(body.precisions)
        return cls(
            structure, written, body.inputs, body.node_names, body.op_types, body.module_paths,
            body.constant_nodes, precision,
        )  # fmt: skip
