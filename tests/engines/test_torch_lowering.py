"""What PyTorch runs: modules put back together, views, composites, inductor's fusion, autocast."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.kernel_tables import kernel_table
from hybridlat.engines import pytorch, registry
from hybridlat.engines.fusion.patterns import Rewritten
from hybridlat.engines.pytorch import as_module, folded_norms
from hybridlat.engines.pytorch_rules import dense
from hybridlat.graph.cells import cut_positions
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.operators import reshaped
from hybridlat.graph.signature import sign
from hybridlat.model.family.physics import CLASSES
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted
from tests.engines.texts import CONSTANTS, CONV
from tests.engines.texts import network as text_network
from tests.networks import ROOT

SHIPPED = sorted((ROOT / "data" / "nets").glob("*.onnx"))
TARGETS = (
    "rtx-3090/torch-1.12/amp",
    "v100/torch-ngc/fp32",
    "rtx-4090/torch-compile-2.9/amp",
    "i7-12700h/torch-compile-2.4/fp32",
    "t4/paddle-tensorrt-2020/fp16",
    "v100/paddle-tensorrt-8.0/fp32",
)


X = "float[2,64,28,28] x"


def network(body: str, inputs: str = X, bias: str = "") -> Network:
    """The network of a text, with a bias of this name."""
    bias = f', float[64] "{bias}"' * bool(bias)
    return text_network(body, inputs, constants=f"{CONSTANTS}{bias}")


def lower(net: Network, *, compiled: bool = False, precision: str = "fp32") -> Lowered:
    """On a GPU, by the newest rules."""
    target = Target.parse(f"v100/torch{'-compile' if compiled else ''}/{precision}")
    return pytorch.lower(net, target)


def ops(lowered: Lowered) -> list[str]:
    return [node.op for node in lowered.network.nodes]


def conv_relu(bias: str) -> Network:
    return network(f'c = {CONV}(x, w, "{bias}") y = Relu(c)', bias=bias)


@pytest.mark.parametrize("bias", ["onnx::Conv_17", "layer1.0.conv1.weight_bias"])
def test_a_folded_normalisation_is_a_kernel_again(bias: str) -> None:
    net = conv_relu(bias)
    assert ops(lower(net)) == ["Conv", "BatchNormalization", "Relu"]
    assert ops(lower(net, compiled=True)) == ["Conv", "BatchNormalization+Relu"]
    module = as_module(Rewritten.of(net))
    assert module.origins == ((0,), (0,), (1,))
    raw = module.network.nodes[0].outputs[0]
    assert module.network.types[raw] == net.types[net.nodes[0].outputs[0]]


def test_a_bias_of_the_module_is_added_apart_on_a_gpu_alone() -> None:
    net = conv_relu("features.0.bias")
    gpu = registry.lower(net, Target.parse("v100/torch-1.6/fp32"))
    cpu = registry.lower(net, Target.parse("i7-12700h/torch-2.4/fp32"))
    assert ops(gpu) == ["Conv", "Add", "Relu"]
    assert ops(cpu) == ["Conv", "Relu"]
    assert gpu.origins == ((0,), (), (1,))
    uneven = lower(network("y = Conv<pads=[0,0,1,1]>(x, w)"))
    assert ops(uneven) == ["Pad", "Conv"] and uneven.origins == ((), (0,))


@pytest.mark.parametrize("zeros", ["arith.constant4", "val_5"])
def test_zeros_of_an_exporter_are_no_biases(zeros: str) -> None:
    """One constant may serve all layers that have none; names tell, as it is a weight like any."""
    net = network(f'c = {CONV}(x, w, "{zeros}") y = {CONV}(c, w2, "{zeros}")', bias=zeros)
    assert ops(lower(net)) == ops(lower(net, compiled=True)) == ["Conv", "Conv"]
    assert ops(lower(network(f"y = {CONV}(x, w, v)"))) == ["Conv", "Add"]


def test_a_bias_before_a_norm_is_none_as_in_folded_files() -> None:
    net = network(f"c = {CONV}(x, w, v) y = BatchNormalization(c, v, v, v, v)")
    assert ops(lower(net)) == ops(lower(net, compiled=True)) == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_is_fed_with_channels_first(compiled: bool) -> None:
    """TensorFlow's files turn what they read: no convolution runs with channels last for it."""
    turned = network(
        f"t = Transpose<perm=[0,3,1,2]>(x) c = {CONV}(t, w) y = Relu(c)", "float[2,28,28,64] x"
    )
    texts = {sign(lower(net, compiled=compiled).network).text for net in (turned, plain())}
    assert len(texts) == 1
    other = network(
        "t = Transpose<perm=[0,3,1,2]>(x) a = Relu(t) y = Add(a, x)", "float[2,8,8,8] x"
    )
    assert lower(other, compiled=compiled).network.types["x"].shape == (2, 8, 8, 8)


def plain() -> Network:
    return network(f"c = {CONV}(x, w) y = Relu(c)")


def test_without_names_the_kind_of_network_tells_whether_it_was_normalised() -> None:
    plain = conv_relu("w_2")
    residual = network(f"c = {CONV}(x, w, w_3) a = Add(c, x) y = Relu(a)", bias="w_3")
    assert folded_norms(plain) == frozenset()
    assert folded_norms(residual) == {0}
    left = network(
        f"""c = {CONV}(x, w, w_3) n = BatchNormalization(c, v, v, v, v) a = Add(n, x)
      y = Relu(a)""",
        bias="w_3",
    )
    assert folded_norms(left) == frozenset()
    assert ops(lower(residual, compiled=True)) == ["Conv", "BatchNormalization+Add+Relu"]


GELU = "d = Div(x, root) e = Erf(d) a = Add(e, unit) m = Mul(x, a) g = Mul(m, scalar)"
SHUFFLE = (
    "s = Reshape(x, dealt) t = Transpose<perm=[0,2,1,3,4]>(s) u = Reshape(t, batch) y = Relu(u)"
)
KERNELS = {
    "of a Split only the part that a convolution reads is copied": (
        "a, b = Split<axis=1, num_outputs=2>(x) c = Conv(b, half1) y = Concat<axis=1>(a, c)",
        ["Slice", "Conv", "Concat"], None,
    ),
    "x * sigmoid(x) is one call": ("s = Sigmoid(x) y = Mul(x, s)", ["Sigmoid+Mul"], None),
    "another's gate is not": ("s = Sigmoid(x) y = Mul(z, s)", ["Sigmoid", "Mul"], None),
    "a gain behind GELU is a call": (f"{GELU} y = Mul(g, gain)", ["Gelu", "Mul"], ["Gelu+Mul"]),
    "a cube that is added is no GELU": (
        "q = Mul(x, x) c = Mul(x, q) y = Add(c, x)", ["Mul", "Mul", "Add"], None,
    ),
    "a channel shuffle copies": (SHUFFLE, ["Transpose", "Relu"], None),
    "other views are free": (
        "p = GlobalAveragePool(x) f = Flatten(p) y = Gemm(f, head)",
        ["GlobalAveragePool", "Gemm"], None,
    ),
    "what no output needs runs eagerly": (
        "d = Relu(x) e = Flatten(d) y = Sigmoid(x)", ["Sigmoid", "Relu"], ["Sigmoid"],
    ),
    "a reduction takes what nothing else reads": (
        "r = Relu(x) y = GlobalAveragePool(r)",
        ["Relu", "GlobalAveragePool"], ["Relu+GlobalAveragePool"],
    ),
    "and nothing that others read": (
        "r = Relu(x) p = GlobalAveragePool(r) g = Conv(p, point) y = Mul(r, g)",
        ["Relu", "GlobalAveragePool", "Conv", "Mul"],
        ["Relu", "GlobalAveragePool", "Conv", "Mul"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", KERNELS)
def test_kernels_of_small_networks(what: str) -> None:
    body, eager, compiled = KERNELS[what]
    net = network(body, f"{X}, float[2,64,28,28] z" if "(z, " in body else X)
    assert ops(lower(net)) == eager
    assert compiled is None or ops(lower(net, compiled=True)) == compiled


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_a_reshape_is_a_view_where_numpy_makes_one(shape: list[int], data: st.DataObject) -> None:
    """numpy decides by the same question: are there strides for the new shape."""
    order = data.draw(st.permutations(range(len(shape))))
    array = np.zeros([shape[i] for i in np.argsort(order)]).transpose(order)
    left = prod(array.shape)
    dims: list[int] = []
    while left > 1:
        dims.append(data.draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= dims[-1]
    to = tuple(dims) or (1,)
    strides = tuple(s // array.itemsize for s in array.strides)
    view = array.view()
    result = reshaped(array.shape, strides, to)
    try:
        view.shape = to
    except AttributeError:
        assert result is None
    else:
        assert result is not None
        numpys = [s // array.itemsize for s in view.strides]
        assert all(f == w for f, w, n in zip(result, numpys, to, strict=True) if n > 1)


def in_channels_last(lowered: Lowered) -> list[str]:
    """The weights of the convolutions that run with channels last."""
    nodes = [n for n in lowered.network.nodes if n.attribute("memory_format") == "channels_last"]
    return [n.inputs[1] for n in nodes if n.op == "Conv"]


def test_a_permuted_tensor_is_convolved_with_channels_last() -> None:
    """As in ConvNeXt: normalised over innermost channels, then turned back, which moves nothing."""
    body = (
        f"c = {CONV}(x, w) t = Transpose<perm=[0,2,3,1]>(c) "
        "n = LayerNormalization<axis=-1>(t, v) u = Transpose<perm=[0,3,1,2]>(n) "
        f"d = {CONV}(u, w2) p = GlobalAveragePool(d) y = Conv(p, point)"
    )
    net = network(body)
    # Of one pixel nobody can tell how it lies.
    lowered = lower(net)
    assert in_channels_last(lowered) == ["w2"]
    inputs_last = pytorch.lower(net, Target.parse("v100/torch/fp32"), channels_last=True)
    assert in_channels_last(inputs_last) == ["w", "w2"]
    shapes = [lowered.network.types[n.outputs[0]].shape for n in lowered.network.nodes]
    assert shapes[-3:] == [(2, 64, 28, 28), (2, 64, 1, 1), (2, 64, 1, 1)]  # those of the file
    assert dense((2, 3, 4, 5), channels_last=True) == (60, 1, 15, 3)


def test_a_compiled_convolution_knows_its_channels_behind_a_view() -> None:
    """Inductor computes the view where it is read, so the kernel reads what lies in memory."""
    body = (
        "n = LayerNormalization<axis=-1>(x, v) u = Transpose<perm=[0,3,1,2]>(n) "
        "d = Conv<group=64, pads=[1,1,1,1]>(u, deep) y = Conv(d, few)"
    )
    net = network(body, "float[2,28,28,64] x")
    table = kernel_table(lower(net, compiled=True))
    names = [CLASSES[c] for c in table.classes]
    assert sorted(names) == ["conv 1x1", "conv depthwise", "normalisation"]
    deep = table.values[names.index("conv depthwise")]
    assert [deep[COLUMN[c]] for c in ("c_in", "h_in", "w_in", "groups")] == [64, 28, 28, 64]


def test_autocast_casts_where_an_operator_asks_for_it() -> None:
    net = network(f"c = {CONV}(x, w) n = Softmax<axis=1>(c) y = {CONV}(n, w2)")
    amp = lower(net, precision="amp")
    assert ops(amp) == ["Cast", "Conv", "Cast", "Softmax", "Cast", "Conv"]
    made = [amp.network.types[n.outputs[0]].dtype for n in amp.network.nodes]
    assert made == ["float16", "float16", "float32", "float32", "float16", "float16"]
    weights = [c.type.dtype for c in amp.network.constants.values()]
    assert weights == ["float32", "float32"]
    compiled_amp = lower(net, precision="amp", compiled=True)
    assert ops(compiled_amp) == ["Conv", "Softmax", "Conv"]
    made = [compiled_amp.network.types[n.outputs[0]].dtype for n in compiled_amp.network.nodes]
    assert made == ["float16", "float16", "float16"]


def test_a_parameter_of_one_value_widens_what_it_scales_and_a_number_does_not() -> None:
    net = network(f"c = {CONV}(x, w) n = Mul(c, scalar) y = Mul(n, factor)")
    amp = lower(net, precision="amp")
    made = [amp.network.types[n.outputs[0]].dtype for n in amp.network.nodes]
    assert made == ["float16", "float16", "float16", "float32"]


@pytest.mark.parametrize("file", SHIPPED[::6], ids=lambda file: file.stem)
def test_every_operator_of_the_shipped_networks_has_one_place(file: Path) -> None:
    net = read_network(file)
    for target in TARGETS:
        lowered = registry.lower(net, Target.parse(target))
        assert_accounted(net, lowered)
        cells = cut_positions(lowered.network)
        assert sorted(p for cell in cells for p in cell) == list(range(len(lowered.network.nodes)))


@pytest.mark.parametrize("compiled", [False, True])
def test_guards_of_a_masked_softmax_and_a_softplus_are_the_exporter_s(compiled: bool) -> None:
    body = "k = MatMul(x, t) s = Softmax(k) n = IsNaN(s) g = Where(n, gain, s) y = MatMul(g, x)"
    net = network(body, "float[2,4,8,8] x, float[2,4,8,8] t")
    assert ops(lower(net, compiled=compiled)) == ["MatMul+Softmax+MatMul"]
    net = network("s = Softplus(x) n = Greater(x, gain) y = Where(n, x, s)")
    assert ops(lower(net, compiled=compiled)) == ["Softplus"]


@pytest.mark.parametrize(
    "body",
    [
        "y = RMSNormalization(x, row28)",
        """q = Mul(x, x) m = ReduceMean<keepdims=1>(q, last) a = Add(m, unit) r = Sqrt(a)
           d = Div(x, r) y = Mul(d, row28)""",
    ],
)
def test_a_norm_that_modules_write_out_is_their_calls(body: str) -> None:
    """Files of set 23 have one operator for it, whatever the module calls."""
    constants = f"{CONSTANTS}, float[28] row28, int64[1] last = {{3}}"
    net = text_network(body, X, opset=23, constants=constants)
    calls = ["Pow", "ReduceMean", "Add", "Sqrt+Reciprocal", "Mul", "Mul"]
    lowered = registry.lower(net, Target.parse("v100/torch-2.9/fp32"))
    kernels = [node.op.split("+")[0] for node in lowered.network.nodes]
    assert kernels == [call.split("+")[0] for call in calls]
    assert len(lower(net, compiled=True).network.nodes) == 1
