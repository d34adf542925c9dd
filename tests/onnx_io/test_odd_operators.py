"""What onnx's inference does not look into is refused where ONNX Runtime refuses it."""

from typing import Any

import pytest

from hybridlat.errors import NetworkError
from hybridlat.onnx_io import isolation, read_network, walk
from tests.onnx_io.test_hostile_files import model

SEQUENCE = "{ s = ReduceMean<axes=[3],keepdims=0>(x) "
"""8 steps of 8 sequences of 1, as ``s``."""


@pytest.mark.parametrize(
    ("body", "opset", "words"),
    [
        ("<int64[1,4] i = {0, 7, 7, %d}> { y = GatherND(x, i) }", 17, "7:8:invalid index.* 8"),
        ("<float[%d,8,8] u> { i = Constant<value = int64[1,2] {0, 1}>() y = ScatterND(x, i, u) }",
         17, "1:2:updates"),
        ("<float[1,8,8] u> { i = Constant<value = int64[1,2] {0, %d}>() y = ScatterND(x, i, u) }",
         17, "7:8:invalid indice"),
        ("{ y = LRN<size=%d>(x) }", 17, "5:4:size_ % 2 == 1"),
        ("<float[8] s> { y = GroupNormalization<num_groups=%d>(x, s, s) }", 21, "4:3:8,8,8"),
        ("<int64 a = {%d}> { y = CumSum(x, a) }", 17, "-4:4:axis 4 is not in"),
        ("{ y = LpNormalization<axis=%d>(x) }", 17, "3:4:axis 4 is not in"),
        ("{ y = LpNormalization<p=%d>(x) }", 17, "2:3:p_ == 1"),
        ("<float[8,2,2,2] w, float[1,%d,7,7] o> { y = DeformConv<group=4>(x, w, o) }", 19,
         "8:6:Offset channel"),
        ("<int64[1] l = {%d}> { y = ReverseSequence<batch_axis=0,time_axis=1>(x, l) }", 17,
         "8:9:sequence length: 9"),
        ("{ y = ReverseSequence<batch_axis=0,time_axis=%d>(x, l) l = Constant<value_ints=[1]>() }",
         17, "1:2:"),
        ("<float[1,%d,8] w, float[1,64,16] r> " + SEQUENCE +
         "y = LSTM<hidden_size=16>(s, w, r) }", 17, "64:65:W must have shape .1,64,8"),
        ("<float[1,64,8] w, float[1,64,%d] r> " + SEQUENCE +
         "y = LSTM<hidden_size=16>(s, w, r) }", 17, "16:15:R must have shape .1,64,16"),
        ("<float[1,48,8] w, float[1,48,16] r, float[1,%d] b> " + SEQUENCE +
         "y = GRU<hidden_size=16>(s, w, r, b) }", 17, "96:48:B must have shape .1,6.16"),
        ("<float[1,8,5,8] k, float[1,8,%d,8] v> { y = Attention(x, k, v) }", 23, "5:6:"),
        ("<int64[1,8,8,8] i, float[1,8,8,%d] u> { y = ScatterElements(x, i, u) }", 17, "8:7:"),
        ("<float[8,8,2,2] w> { y = ConvTranspose<strides=[2,2],output_padding=[%d,0]>(x, w) }", 17,
         "1:5:output_padding"),
    ],
)  # fmt: skip
def test_sizes_that_no_engine_runs(body: str, opset: int, words: str) -> None:
    """``words`` hold a number that fits, one that does not, and what is said of that."""
    fits, broken, said = words.split(":", 2)
    assert read_network(model(body % int(fits), opset)).nodes
    with pytest.raises(NetworkError, match=f"ONNX Runtime refuses .*{said}"):
        read_network(model(body % int(broken), opset))


def test_a_mask_shorter_than_padded_keys_is_no_fault() -> None:
    body = (
        "<float[1,8,6,8] k, float[8,4] m> { n = Constant<value = int64[1] {4}>() "
        "y = Attention(x, k, k, m, , , n) }"
    )
    assert read_network(model(body, 24)).nodes


@pytest.mark.parametrize(
    "op", ["LRN<alpha=0.0271828,size=%d>", "com.microsoft.QuickGelu<alpha=%d.5>"]
)
def test_equal_operators_are_tried_once(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def counting(what: str, *arguments: Any) -> Any:
        asked.append(what)
        return isolation.ask(what, *arguments)

    monkeypatch.setattr(walk, "ask", counting)
    body = f"{{ a = {op % 3}(x) b = {op % 3}(a) c = {op % 5}(b) y = {op % 5}(c) }}"
    assert len(read_network(model(body)).nodes) == 4
    assert asked == ["onnxruntime"] * 2
