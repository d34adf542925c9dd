"""Shape arithmetic in a file: what an exporter writes down, and what is left of it."""

import onnx
import pytest
from onnx import parser

import hybridlat.onnx_io.infer as infer
import hybridlat.onnx_io.isolation as isolation
import hybridlat.onnx_io.walk as walk
from hybridlat.engines import registry
from hybridlat.errors import NetworkError
from hybridlat.graph.network import Network, TensorType
from hybridlat.graph.signature import read, sign
from hybridlat.onnx_io import read_network
from hybridlat.onnx_io.shapes import info_of
from hybridlat.schema.target import Target


def model(
    body: str, weights: dict[str, tuple[int, list[int]]] | None = None, opset: int = 17
) -> onnx.ModelProto:
    """A model from text; ``weights`` (type, sizes) have no values."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
    made = parser.parse_model(head + body)
    for name, (kind, dims) in (weights or {}).items():
        made.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=dims))
    return made


def ops(network: Network) -> list[str]:
    return [node.op for node in network.nodes]


@pytest.mark.parametrize(
    "text",
    [
        "n = Shape(x) z = CastLike(two, x) b = Expand(z, n) y = Add(x, b)",
        "e = EyeLike<dtype=1>(s) f = Reshape(e, flat) y = Mul(x, f)",
        "z = CastLike(two, word) b = Cast<to=1>(z) y = Add(x, b)",
    ],
)
def test_what_hangs_on_a_type_alone_is_constant(text: str) -> None:
    body = f"""g (float[1,9] x, float[3,3] s) => (float[1,9] y)
      <float two = {{2.0}}, string word = {{"a"}}, int64[2] flat = {{1, 9}}> {{ {text} }}"""
    assert len(read_network(model(body)).nodes) == 1


@pytest.mark.parametrize("op", ["NhwcConv", "BiasSplitGelu"])
def test_an_operator_for_gpus_beside_a_number_makes_what_it_reads_first(op: str) -> None:
    body = (
        f"g (float[1,9] x, float s) => (float[1,9] y) {{ a = com.microsoft.{op}(x, s) y = Abs(a) }}"
    )
    assert read_network(model(body)).types["y"].shape == (1, 9)


# Padding worked out at run time, as TensorFlow's "same" is exported: the sizes are scalars, and
# the second convolution's are known only once the first one's are.
SAME = """g (float[{batch},3,9,9] x) => (float[{batch},3,3,3] y)
  <int64 two = {{2}}, int64[1] axis = {{0}}, int64[6] none = {{0, 0, 0, 0, 0, 0}}>
  {{ {steps} y = Relu(p1) }}"""
STEP = """s{i} = Shape({x})  h{i} = Gather<axis=0>(s{i}, two)  f{i} = Cast<to=1>(h{i})
  by{i} = Cast<to=1>(two)  q{i} = Div(f{i}, by{i})  c{i} = Ceil(q{i})  o{i} = Cast<to=7>(c{i})
  d{i} = Mul(o{i}, two)  l{i} = Sub(d{i}, h{i})  u{i} = Unsqueeze(l{i}, axis)
  pads{i} = Concat<axis=0>(none, u{i}, u{i})  w{i} = Pad<mode="constant">({x}, pads{i})
  p{i} = MaxPool<kernel_shape=[2,2], strides=[2,2]>(w{i}) """


def same_padding(batch: str = "1") -> onnx.ModelProto:
    return model(SAME.format(batch=batch, steps=STEP.format(i=0, x="x") + STEP.format(i=1, x="p0")))


def numbers_read(network: Network, position: int) -> tuple[float, ...] | None:
    """The constant that a node reads second."""
    return network.constants[network.nodes[position].inputs[1]].values


@pytest.mark.parametrize("batch", ["1", "N"])
def test_a_folded_scalar_stays_a_scalar(batch: str) -> None:
    network = read_network(same_padding(batch))
    assert ops(network) == ["Pad", "MaxPool", "Pad", "MaxPool", "Relu"]
    assert numbers_read(network, 0) == (0, 0, 0, 0, 0, 0, 1, 1)
    assert network.types["y"] == TensorType("float32", (1, 3, 3, 3))


def test_a_folded_scalar_index_takes_the_axis_away() -> None:
    """A class token is picked with a scalar index: the axis goes, and a later pass agrees."""
    text = """g (float[2,5,8] x) => (float[2,8] y)
      <int64 one = {1}, int64 zero = {0}, int64[1] m = {0}, int64[1] w = {8}, float steps = {2.0}>
      { i = Sub(one, one)  t = Gather<axis=1>(x, i)  s = Shape(x)  n = Gather<axis=0>(s, zero)
        f = Cast<to=1>(n)  q = Div(f, steps)  c = Ceil(q)  k = Cast<to=7>(c)
        u = Unsqueeze(k, m)  both = Concat<axis=0>(u, w)  e = Expand(t, both)  y = Relu(e) }"""
    network = read_network(model(text))
    assert ops(network) == ["Gather", "Expand", "Relu"]
    assert network.types["t"] == TensorType("float32", (2, 8))
    assert network.constants["i"].type.shape == ()


def test_an_operator_is_folded_as_its_own_opset_means_it() -> None:
    """Before opset 13 the axes of Unsqueeze were an attribute; the sizes must not get lost."""
    text = """g (float[N,4,6] x) => (float[N,24] y) <int64 zero = {0}, int64[1] rest = {-1}>
      { s = Shape(x)  n = Gather<axis=0>(s, zero)  u = Unsqueeze<axes=[0]>(n)
        t = Concat<axis=0>(u, rest)  y = Reshape(x, t) }"""
    network = read_network(model(text, opset=11), batch=3)
    assert ops(network) == ["Reshape"]
    assert numbers_read(network, 0) == (3, 24)


# Defaults count; no window starts behind the data; auto_pad goes before what else says how to pad;
# a weight that PyTorch before set 14 standardises in training mode (ScaledStdConv) is a weight.
AS_ENGINES_RUN = """17; 2,256,1; y = STFT(x, step, window); (2, 4, 33, 2)
13; 2,3,8,8; y = MeanVarianceNormalization(x); (2, 3, 8, 8)
12; 2,3,6,6; y = MaxPool<kernel_shape=[1,1], strides=[2,2], ceil_mode=1>(x); (2, 3, 3, 3)
19; 2,3,6; y = AveragePool<kernel_shape=[4], pads=[2,2], strides=[4], ceil_mode=1>(x); (2, 3, 2)
12; 2,3,6; y = MaxPool<kernel_shape=[1], auto_pad="VALID", strides=[2], ceil_mode=1>(x); (2, 3, 3)
13; 1,3,8,8; n,a,b,c,d = BatchNormalization(v,u,u,u,u)  f = Reshape(n,s) y = Conv(x,f); (1, 4, 6, 6)
11; 2,3,6; y = ConvTranspose<strides=[2],auto_pad="SAME_UPPER",output_padding=[1]>(x, w); (2, 4, 12)
7; 2,3,8,8; d, mask = Dropout(x)  y = Relu(d); (2, 3, 8, 8)
13; 2,3,10; y = Resize<mode="nearest">(x, , up); (2, 3, 13)
18; 2,3,10; y = Resize<axes=[0,1,2]>(x, , up); (2, 3, 13)
9; 2,3,10; y = Upsample<mode="nearest">(x, up); (2, 3, 13)
13; 1,3,3; y = Einsum<equation="bij,bkj->bik">(x, w); (3, 3, 4)
13; 2,3,3; y = Einsum<equation="...j,kj">(x, one); (2, 3, 1)"""


@pytest.mark.parametrize("row", AS_ENGINES_RUN.splitlines())
def test_sizes_are_as_engines_run(row: str) -> None:
    opset, x, operator, y = row.split("; ")
    text = f"""g (float[{x}] x) => (float[a,b,c] y)
      <int64 step = {{64}}, int64[4] s = {{4, 3, 3, 3}}, float[3] up = {{1, 1, 1.3}}>
      {{ {operator} }}"""
    sizes = {"window": [64], "w": [3, 4, 3], "v": [1, 4, 27], "u": [4], "one": [1, 1]}
    network = read_network(model(text, {n: (1, dims) for n, dims in sizes.items()}, int(opset)))
    lowered = registry.lower(network, Target.parse("here/onnxruntime-1.31/fp32/1t")).network
    shapes = [n.types[n.outputs[0]].shape for n in (network, lowered)]
    assert list(map(str, shapes)) == [y, y]


def test_what_is_written_for_gpus_alone_gets_its_shape() -> None:
    """As ONNX Runtime's optimiser writes a diffusion network."""
    text = """g (float[2,9,9,8] x) => (float[a] y, float[b] t)
        { m = GroupNormalization<num_groups = 3>(x, k, k)
          n = com.microsoft.GroupNorm<groups = 4>(m, v, v)
          c = com.microsoft.NhwcConv<pads = [1,1,1,1], strides = [2,2]>(n, w, u)
          s, t = com.microsoft.SkipGroupNorm<groups = 4>(c, r, r, c)
          y = com.microsoft.BiasSplitGelu(s, r) }"""
    sizes = {"k": [9], "v": [8], "w": [16, 3, 3, 8], "u": [16], "r": [16]}
    weights = {name: (1, shape) for name, shape in sizes.items()}
    types = read_network(model(text, weights, opset=21)).types
    assert [types[name].shape for name in "nst"] == [(2, 9, 9, 8), (2, 5, 5, 16), (2, 5, 5, 16)]
    assert types["y"] == TensorType("float32", (2, 5, 5, 8))


@pytest.mark.parametrize("operator", ["BiasSplitGelu(x, w)", "NhwcConv(x, w)", "NhwcConv(w, x)"])
def test_what_is_written_for_gpus_alone_may_read_a_scalar(operator: str) -> None:
    text = f"g (float x) => (float y) {{ y = com.microsoft.{operator} }}"
    read = read_network(model(text, {"w": (1, [8, 3, 3, 4])}))
    assert read.types["y"].dtype == "float32"


def test_an_operator_that_only_the_engine_knows_gets_its_shape() -> None:
    text = """g (float[2,5,8] x) => (float[2,8,5] y)
      { a = com.microsoft.BiasGelu(x, b)  y = Transpose<perm=[0,2,1]>(a) }"""
    network = read_network(made := model(text, {"b": (1, [8])}))
    assert network.types["a"] == TensorType("float32", (2, 5, 8))
    assert network.types["y"] == TensorType("float32", (2, 8, 5))
    for name in network.nodes[0].outputs:  # stated, so that nothing asks the engine
        made.graph.value_info.append(info_of(name, network.types[name]))
    made.graph.node[0].attribute.add(name="alpha", type=1, ref_attr_name="outer")
    with pytest.raises(NetworkError, match="has the attribute 'alpha' of a kind that cannot be"):
        read_network(made)


def test_the_engine_decides_where_onnx_objects(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def too_strict(package: str, model: str, node: object, *rest: object) -> object:
        lenient = isolation.ask(package, model, b"", *rest)
        return (*lenient[:2], "a rule of a newer onnx") if node else lenient

    monkeypatch.setattr(infer, "ask", too_strict)
    monkeypatch.setattr(walk, "remembered", {})
    with caplog.at_level("INFO", logger="hybridlat"):
        network = read_network(same_padding("N"))
    assert network.types["y"] == TensorType("float32", (1, 3, 3, 3))
    assert "onnx objects, ONNX Runtime does not: Pad 'Pad_11': a rule of a newer" in caplog.text
    clash = "g (float[1,3] x, float[1,4] z) => (float[1,3] y) { y = Add(x, z) }"
    with pytest.raises(NetworkError, match=r"do not fit together \(Add"):
        read_network(model(clash))


JOINED = """g (float[1,3,H,W] x) => (float[1,6,H,W] y)
      <int64[1] batch = {1}, int64[3] rest = {3, 16, 16}>
      { f = Flatten(x)  t = Concat<axis=0>(batch, rest)  r = Reshape(f, t)
        y = Concat<axis=1>(x, r) }"""
# onnx takes the target at its word; no engine runs it.
VIEWED = "g (float[1,3,H,8] x) => (float[1,48] y) <int64[2] t = {1, 48}> { y = Reshape(x, t) }"


@pytest.mark.parametrize(
    ("text", "fits", "other", "words"),
    [
        (JOINED, (16, 16), (8, 8), r"Concat .*give them with --shape"),
        (VIEWED, (2, 8), (4, 8), r"Reshape .*96 elements .*48.*--shape"),
    ],
)
def test_a_clash_of_sizes_names_the_operator(
    text: str, fits: tuple[int, ...], other: tuple[int, ...], words: str
) -> None:
    assert read_network(model(text), shapes={"x": (1, 3, *fits)}).nodes[-1].outputs == ("y",)
    with pytest.raises(NetworkError, match=words):
        read_network(model(text), shapes={"x": (1, 3, *other)})


def test_what_cannot_be_evaluated_stays_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = model("""g (float[2,3] x) => (float[2,3] y)
      <int64[2] shape = {2, 3}, int64[1,1] far = {7}>
      { i = GatherND(shape, far)  e = Expand(x, shape)  y = Add(e, e) }""")
    with caplog.at_level("DEBUG", logger="hybridlat"):
        network = read_network(made)
    assert "GatherND" in ops(network)
    assert "is not folded: IndexError" in caplog.text


def test_what_is_empty_is_a_constant_and_text_is_no_reason_to_refuse() -> None:
    """A slice of nothing beside the data, and names that an exporter left in the file."""
    network = read_network(
        model("""g (float[1,4,8,8] x) => (float[1,4,8,8] y)
      <int64[1] four = {4}, int64[1] one = {1}>
      { e = Slice(x, four, four, one)  r = Relu(e)  c = Concat<axis=1>(x, r)  y = Relu(c)
        t = Constant<value_string="name">()  u = Constant<value_strings=["a", "b"]>()
        v = Constant<value=float[1] {1.0}>() }""")
    )
    assert ops(network) == ["Concat", "Relu"] and len(network.folded) == 5
    assert network.constants["r"].type == TensorType("float32", (1, 0, 8, 8))


@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "INT2", "UINT2"])
def test_a_zero_point_of_few_bits_is_a_whole_number(dtype: str) -> None:
    if not hasattr(onnx.TensorProto, dtype):
        pytest.skip(f"this onnx has no {dtype}")
    type_ = getattr(onnx.TensorProto, dtype)
    text = """g (float[2,4] x) => (float[2,4] y) <float s = {0.5}>
      { d = DequantizeLinear(w, s, z)  y = MatMul(x, d) }"""
    made = model(text, {"w": (type_, [4, 4])}, opset=25 if "2" in dtype else 21)
    made.graph.initializer.append(onnx.helper.make_tensor("z", type_, [], [0]))
    text = sign(read_network(made)).text
    assert f"{dtype.lower()}:)" in text  # a zero point is no part of what is computed
    assert sign(read(text)).text == text


def test_what_quantises_for_one_engine_needs_a_scale_as_well() -> None:
    quantised = onnx.helper.make_node("QuantizeLinear", ["x"], ["q"], "n", domain="com.microsoft")
    for inputs in (["x"], ["x", ""]):
        made = model("g (float[4,8] x) => (uint8[4,8] q) { q = Cast<to=2>(x) }")
        quantised.input[:] = inputs
        made.graph.node[0].CopyFrom(quantised)
        with pytest.raises(NetworkError, match="QuantizeLinear 'n' has no scale: export"):
            read_network(made)
