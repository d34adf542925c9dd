"""Names for the kinds of disagreement between the rules of TensorRT and its RTX compiler.

Each kind is (what the rules say, what the compiler makes): operators of a kernel joined by ``+``,
kernels set apart by ``|``. The networks that did not shape the rules are named here as well; no
rule was made of theirs, since a rule made of them could not be judged on them.
"""

from __future__ import annotations

NAMES: dict[tuple[str, str], str] = {
    ("Conv+Sigmoid+Mul", "Conv | Sigmoid+Mul"): "SiLU stays apart from its convolution",
    ("Conv+Relu | LRN", "Conv | Relu+LRN"): "LRN takes the ReLU before it",
    ("Mul+Add+Pad", "Mul+Add | Pad"): "a padding stays apart from the affine before it",
    ("Conv+Relu+Mul+Add", "Conv+Relu+Mul | Add"): "the shift of an affine stays apart",
    ("Pad | Conv", "Pad+Conv"): "a convolution takes its padding",
    ("Conv | Mul+Add", "Conv+Mul+Add"): "a scaled residual joins its convolution",
    ("Conv | Mul+Add+Add", "Conv+Mul+Add+Add"): "a scaled residual joins its convolution",
    ("Conv | Mul+Add", "Conv+Mul | Add"): "the scale of a residual joins its convolution",
    ("Conv | Mul+Add+ReduceMean", "Conv+Mul | Add+ReduceMean"):
        "the scale of a residual joins its convolution",
    ("Conv | Mul+Add+Transpose+LayerNormalization", "Conv+Mul+Add | Transpose+LayerNormalization"):
        "a scaled residual joins its convolution",
    ("Transpose+Conv+Gelu", "Transpose | Conv+Gelu"): "a transpose stays apart",
    ("Conv+Relu | ReduceMean", "Conv | Relu+ReduceMean"): "a global mean takes the ReLU",
    ("removed", "Concat"): "a concatenation is copied",
    ("removed | ReduceMean", "Concat+ReduceMean"): "a global mean reads the parts of a concat",
    ("removed | Concat+ReduceMean", "Concat+Concat+Concat+ReduceMean"):
        "a global mean reads the parts of a concat",
    ("Conv+PRelu", "Conv | PRelu"): "PReLU stays apart from its convolution",
    ("Conv+Gelu", "Conv | Gelu"): "GELU stays apart from its convolution",
    ("Mul | Add+Relu", "Mul+Add+Relu"): "a large gated map is scaled where it is added",
    ("Reshape+Transpose+Softmax | Reshape+Mul+ReduceSum",
     "Reshape+Transpose+Softmax+Reshape+Mul+ReduceSum"): "split attention is one kernel",
    ("Conv+Add+Relu+BatchNormalization", "Conv+Add+Relu | BatchNormalization"):
        "an identity branch's scale stays apart",
    ("Slice+Add+Slice+Concat | Conv+Sigmoid+Mul", "Slice+Add+Slice+Concat+Conv | Sigmoid+Mul"):
        "a partial residual joins the next convolution",
    ("Slice+Add+Slice+Concat | Conv", "Slice+Add+Slice+Concat+Conv"):
        "a partial residual joins the next convolution",
    ("Slice+Add | Slice | Concat+BatchNormalization+Relu+ReduceMean",
     "Slice+Slice+Add+Concat+BatchNormalization+Relu+ReduceMean"):
        "a global mean takes slices and sum",
    ("Resize | Add+Relu", "Resize+Add+Relu"): "a resize takes the sum behind it",
    ("Resize | Add+Add+Relu | Resize", "Resize+Add | Resize+Add+Relu"):
        "a resize takes the sum behind it",
    ("Resize | Add+Add+Add+Relu | Resize | Resize", "Resize+Add | Resize+Add | Resize+Add+Relu"):
        "a resize takes the sum behind it",
}  # fmt: skip
UNNAMED = "not named yet"


def name_of(kind: tuple[str, str]) -> str:
    """What a kind is called in the published table."""
    return NAMES.get(kind, UNNAMED)
