"""Operators that no output needs: some engines drop them, some run them."""

from __future__ import annotations

import pytest

from hybridlat.engines import registry
from hybridlat.schema.target import Target
from tests.networks import Builder


@pytest.mark.parametrize(
    ("target", "kept"),
    [("l4/tensorrt/fp16", 1), ("l4/torch-compile-2.9/fp32", 1), ("l4/torch-2.4/fp32", 3)],
)
def test_compilers_drop_what_no_output_needs(target: str, kept: int) -> None:
    b = Builder("dead")
    x = b.input((1, 64, 28, 28))
    needed = b.conv(x, 96, 1)
    b.op("Relu", [b.conv(x, 32, 1)], (1, 32, 28, 28), 14)
    lowered = registry.lower(b.network(needed), Target.parse(target))
    assert len(lowered.network.nodes) == kept
    assert lowered.network.outputs == (needed,)
    held = {i for origins in lowered.origins for i in origins}
    assert held | set(lowered.removed) == {0, 1, 2}
