"""Files made for one batch, read at another: the same networks as those made for that batch."""

import onnx.parser
import pytest

from hybridlat.engines import registry
from hybridlat.errors import NetworkError
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import read_network

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "my.domain": 1]> '
NETWORKS = {
    "flatten": """net (float[@,8,4,4] x) => (float[m,n] y) <int64[2] s = {@,128}>
        { f = Reshape(x, s) y = Softmax(f) }""",
    "flatten by the rest": """net (float[@,8,4,4] x) => (float[m,n] y) <int64[2] s = {@,-1}>
        { f = Reshape(x, s) y = Softmax(f) }""",
    "attention over channels": """net (float[@,8,4,4] x) => (float[a,b,c,d] y)
        <float[1,1,3] w = {0.1,0.2,0.3}, int64[3] s = {@,1,8}, int64[4] r = {@,8,1,1}>
        { p = GlobalAveragePool(x) q = Reshape(p, s) c = Conv <pads = [1,1]> (q, w)
          t = Reshape(c, r) g = Sigmoid(t) y = Mul(x, g) }""",
    "a gate made wide": """net (float[@,8,4,4] x) => (float[a,b,c,d] y) <int64[4] s = {@,8,4,4}>
        { p = GlobalAveragePool(x) g = Expand(p, s) y = Mul(x, g) }""",
    "shuffled channels": """net (float[@,8,4,4] x) => (float[a,b,c,d] y)
        <int64[5] s = {@,2,4,4,4}, int64[4] r = {@,8,4,4}>
        { p = Reshape(x, s) t = Transpose <perm = [0,2,1,3,4]> (p) y = Reshape(t, r) }""",
    "groups as items": """net (float[@,8,4,4] x) => (float[a,b,c,d] y)
        <int64[4] s = {#,4,4,4}, int64[4] r = {@,8,4,4}>
        { p = Reshape(x, s) q = Relu(p) y = Reshape(q, r) }""",
    "the sequence first": """net (float[@,8,6] x) => (float[a,b,c] y) <int64[4] s = {6,@,2,4}>
        { t = Transpose <perm = [2,0,1]> (x) y0 = Reshape(t, s) y = Relu(y0) }""",
    "a class token": """net (float[@,8,6] x) => (float[a,b,c] y) <int64[3] n = {@,1,6}>
        { w = ConstantOfShape(n) y = Concat <axis = 1> (w, x) }""",
    "behind a size of one": """net (float[@,8] x) => (float[a,b,c,d] y)
        <int64[1] n = {0}, int64[4] s = {1,@,2,4}>
        { u = Unsqueeze(x, n) v = Reshape(u, s) y = Relu(v) }""",
    "a slice of all": """net (float[@,8,4,4] x) => (float[a,b,c,d] y)
        <int64[2] s = {0,0}, int64[2] e = {@,4}, int64[2] a = {0,1}>
        { p = Slice(x, s, e, a) y = Relu(p) }""",
    "an index for each": """net (float[@,8,4] x) => (float[a,b,c] y) <int64[3] n = {@,8,1}>
        { z = ConstantOfShape <value = int64[1] {1}> (n)  p = GatherElements <axis = 2> (x, z)
          y = Relu(p) }""",
    "a view of all numbers": """net (float[@,8,1,1] x) => (float[a,b] y)
        <int64[1] s = {-1}, int64[@,8] i = {%}>
        { r = Reshape(x, s) g = Gather(r, i) y = Relu(g) }""",
    "behind what onnx does not know": """net (float[@,8,6] x) => (float[a,b,c] y)
        <int64[4] s = {@,8,2,3}, int64[3] r = {@,8,6}>
        { a = com.microsoft.QuickGelu(x)  b = Reshape(a, s)  c = com.microsoft.QuickGelu(b)
          d = Reshape(c, r)  y = Relu(d) }""",
    "scales of all items": """net (float[@,8,2] x) => (float[a,b,c] y)
        <uint8[2,2] w = {1,2,3,4}, int64[3] s = {@,4,4}>
        { q, u, z = DynamicQuantizeLinear(x)  m = MatMulInteger(q, w, z)  f = Cast<to=1>(m)
          v = Mul(f, u)  y = Reshape(v, s) }""",
    "a stated type with the batch behind": """net (float[@,5,6] x) => (float[a,b,c] y)
        <float[5,@,6] g, int64[4] s = {5,@,2,3}>
        { t = Transpose<perm = [1,0,2]> (x)  g = com.microsoft.QuickGelu(t)  y = Reshape(g, s) }""",
    "behind a result that is stated": """net (float[@,8,6] x) => (float[a,b] y)
        <int64[2] s = {@,48}, float[@,8,6] a>
        { a = my.domain.Plug(x)  b = Reshape(a, s)  y = Relu(b) }""",
    "the steps of a recurrent layer": """net (float[@,5,6] x) => (float[a,b,c,d] y)
        <int64[3] s = {5,@,6}, int64[3] m = {1,16,6}, int64[3] n = {1,16,4}>
        { w = ConstantOfShape(m)  r = ConstantOfShape(n)  t = Reshape(x, s)
          y = LSTM <hidden_size = 4> (t, w, r) }""",
    "resized": """net (float[@,8,4,4] x) => (float[a,b,c,d] y) <int64[4] s = {@,8,8,8}>
        { y = Resize <mode = "nearest"> (x, , , s) }""",
}


def _model(text: str, batch: int) -> onnx.ModelProto:
    """``@`` stands for the batch, ``#`` for twice as much, ``%`` for eight numbers of each."""
    numbers = ",".join(map(str, range(8 * batch)))
    text = text.replace("@", str(batch)).replace("#", str(2 * batch)).replace("%", numbers)
    return onnx.parser.parse_model(HEAD + text)


@pytest.mark.parametrize("made_for", [1, 2])
@pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS)
def test_a_file_for_one_batch_is_read_at_another(text: str, made_for: int) -> None:
    network = read_network(_model(text, made_for), batch=8)
    right = read_network(_model(text, 8))
    assert network.types == right.types
    assert sign(network) == sign(right)
    many = "1 operator" if len(network.rebound) == 1 else f"{len(network.rebound)} operators"
    warning = f"for another batch: constant sizes of {many} were changed for this one"
    assert registry.about(network) == (f"the file was made {warning}",) and not registry.about(
        right
    )


def test_a_weight_for_two_items_is_one_for_each_of_eight() -> None:
    text = """net (float[@,8,6] x) => (float[a,b,c] y) <int64[3] n = {@,8,6}>
        { w = ConstantOfShape(n) y = Add(x, w) }"""
    assert sign(read_network(_model(text, 2), batch=8)) == sign(read_network(_model(text, 8)))


UNDECIDED = {
    "Reshape": """net (float[1,3,4,4] x) => (float[m,n] y) <int64[2] s = {4,12}>
        { t = Transpose <perm = [2,0,1,3]> (x) y = Reshape(t, s) }""",
    "ReduceMean": "net (float[1,8] x) => (float[a,b] y) { y = ReduceMean <axes = [0]> (x) }",
    "MatMul": """net (float[N,6] x, float[6,4] w) => (float[a,b] y) <int64[2] s = {1,-1}>
        { r = Reshape(x, s) y = MatMul(r, w) }""",
}


@pytest.mark.parametrize("op", UNDECIDED)
def test_what_cannot_be_decided_is_refused(op: str) -> None:
    """Behind other sizes a batch of 1 may lie in either product; items must not disappear."""
    behind = " behind its input" if op == "MatMul" else ""
    expected = rf"^net.onnx: the file is fixed to batch 1{behind} \({op} '.*'\): export it again"
    with pytest.raises(NetworkError, match=expected):
        read_network(onnx.parser.parse_model(HEAD + UNDECIDED[op]), batch=8, name="net.onnx")


def test_a_free_batch_stays_what_the_file_says() -> None:
    """The one of its reshape is no batch."""
    text = NETWORKS["flatten"].replace("float[@", "float[N", 1).replace("@,128", "1,-1")
    network = read_network(_model(text, 1), batch=8)
    assert network.types["y"].shape == (1, 1024) and not network.rebound
