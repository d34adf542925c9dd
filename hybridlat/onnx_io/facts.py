"""What answering for a file takes of it where its cells are known: little, and told without onnx.

Loading onnx and parsing a file cost more than all the rest of such an answer, so these facts are
remembered by the hash of the file's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

FACTS_FORMAT = 2
"""To be raised with every change of how a fact is found: what is remembered is then found anew."""


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
        """Read ``to_text``; None for another format."""
        body = json.loads(text)
        if not isinstance(body, list) or body[0] != FACTS_FORMAT:
            return None
        _, structure, written, inputs, names, ops, paths, constants, counts = body
        return cls(
            bytes.fromhex(structure), bytes.fromhex(written), tuple(inputs), tuple(names),
            tuple(ops), tuple(paths), frozenset(constants), FilePrecision(counts),
        )  # fmt: skip
