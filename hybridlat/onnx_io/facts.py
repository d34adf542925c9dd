"""What an answer needs of a file whose cells are known: little, and read without onnx."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hybridlat.schema.files import decode_or_none
from hybridlat.schema.target import PRECISIONS

FACTS_FORMAT = 4
"""Goes up with every change of how a fact is written: caches of another format are not read."""
MAX_INLINE_BYTES = 2_000_000_000  # a protobuf message cannot be larger
# Exporters name what they fold: onnx::Conv_123 (TorchScript), conv1.weight_bias (dynamo, which has
# results of calls with several, such as a norm), and after it (TensorFlow's), the result or bias.
# So do simplifiers: by the norm's result (onnxslim), or by what they do (ONNX Runtime).
_FOLDED = re.compile(
    r"onnx::Conv(Transpose)?_\d+$|.*(\bweight_bias|_bias_fused_bn)$|getitem(_\d+)?(_bias)?$|"
    r".*/(FusedBatchNorm|batchnorm/|BatchNormalization(_\d+)?_output_\d)|ConvBnFusion_"
)
# What TensorFlow Lite puts where a layer has no bias, and PyTorch's exporter before it optimises.
_ZEROS = re.compile(r"(arith\.constant\d*|val_\d+)$")
_OWN = re.compile(r"(.*[./])?bias$|.*/BiasAdd\b")
# onnxslim names the weight after the product that it folds, and keeps the operator's own name.
_SCALED_WEIGHT = re.compile(r"(.*/)?mul(_\d+)?(_output_\d+)?_weight$", re.IGNORECASE)
# So does ONNX Runtime; exporters name numbers by their places.
_SCALED_BIAS = re.compile(r"ConvMulFusion_Mul_B_(val_\d+(_|$)|.*/Constant(_\d+)?_output_\d)?")
# onnxsim names weights anew that it changes, and leaves a norm that the exporter folded.
_CHANGED = re.compile(r"_v_\d+$")


def bias_origin(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """``folded`` (from a norm), ``zeros`` or ``own``, as names tell of a bias; else empty."""
    if _ZEROS.match("".join(inputs[2:3])):
        return "zeros"
    is_scaled = simplified(inputs, outputs) in ("scaled", "multiplied")
    names = "".join(inputs[2:3]), name if is_scaled else "".join(outputs[:1])
    is_folded, is_own = (any(map(form.match, names)) for form in (_FOLDED, _OWN))
    return "folded" if is_folded else "own" * is_own


def simplified(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """What names tell of a weight: ``scaled`` by what follows, ``changed`` (``without bias``).

    ``multiplied`` are those that a number scales.
    """
    weight, result = "".join(inputs[1:2]), "".join(outputs[:1])
    is_named = weight == f"{result}_weight" and _SCALED_WEIGHT.match(weight) is not None
    if is_named or weight.endswith("_weight_fused"):
        return "scaled"
    if (scaled := _SCALED_BIAS.match("".join(inputs[2:3]))) is not None:
        return "multiplied" if scaled[1] else "scaled"
    changed = tuple([_CHANGED.match(name) is not None for name in inputs[1:]])
    words = {(True,): "changed", (True, True): "changed", (True, False): "without bias"}
    return words.get(changed, "")


@dataclass(frozen=True)
class FilePrecision:
    """How many convolutions and products of a file compute in each precision.

    ``name`` is that precision of targets which most of them have; ``fp32`` where there is none, as
    for ``fp8``, ``fp4`` and ``int4``.
    """

    counts: Mapping[str, int]

    @property
    def name(self) -> str:
        most = max(self.counts, key=lambda p: (self.counts[p], p), default="")
        return most if most in PRECISIONS else "fp32"

    def __str__(self) -> str:
        """``int8``, or ``mixed: 20 of 21 convolutions and products in int8, 1 in fp32``."""
        if len(self.counts) < 2:
            return next(iter(self.counts), self.name)
        first, *others = sorted(self.counts, key=lambda n: (n != self.name, -self.counts[n], n))
        of_all = f" of {sum(self.counts.values())} convolutions and products"
        shares = [f"{self.counts[first]}{of_all} in {first}"]
        shares += [f"{self.counts[name]} in {name}" for name in others]
        return f"mixed: {', '.join(shares)}"


class FileFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a file says of itself; nodes are told of in file order.

    ``structure`` is the digest that ``OnnxFile.key`` starts from, ``inputs`` are the names of the
    graph's inputs, weights that stand among them too. ``node_names`` are unique; ``module_paths``
    say what module a node comes from (``layer3.0``), empty if unknown; ``constant_nodes`` compute
    the same for every input of bound sizes; ``precision`` is that of convolutions and products.
    """

    structure: bytes
    inputs: tuple[str, ...]
    node_names: tuple[str, ...]
    op_types: tuple[str, ...]
    module_paths: tuple[str, ...]
    constant_nodes: frozenset[int]
    precision: FilePrecision

    @classmethod
    def of(cls, source: object) -> FileFacts:
        """The facts of a parsed file, which has them under the same names."""
        return cls(*[getattr(source, name) for name in cls.__struct_fields__])

    def to_text(self) -> str:
        """JSON for a cache."""
        return msgspec.json.encode((FACTS_FORMAT, self), order="sorted").decode()

    @classmethod
    def from_text(cls, text: str) -> FileFacts | None:
        """Read ``to_text``; None for another format, and for what is damaged."""
        read = decode_or_none(text, tuple[int, FileFacts])
        return read[1] if read is not None and read[0] == FACTS_FORMAT else None
