"""The table of work names every operator and counts what PyTorch's own counter counts, and fused
kernels do the work of their operators."""

import csv
import importlib.util
import itertools
import math
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from experiments.public_data.kernel_tables import kernel_rows, unfused
from hybridlat.engines import registry
from hybridlat.engines.fusion.groups import Groups, lowered_of
from hybridlat.graph.network import Network
from hybridlat.graph.operators import KINDS
from hybridlat.graph.work import FAMILY_OF, PER_RESULT
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.engines.test_backends import assert_accounted
from tests.model.modules import COUNTS, EXPORTERS, FILES, modules
from tests.networks import NETS, Builder

# Neither shapes nor attributes tell their work: answers with one of them carry a remark.
_UNKNOWN = """
    If Loop Scan SequenceMap Gradient NonMaxSuppression NonZero Unique MaxRoiPool ImageDecoder
    RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer Tokenizer SVMClassifier
    SVMRegressor LinearClassifier LinearRegressor TreeEnsemble TreeEnsembleClassifier
    TreeEnsembleRegressor LinearAttention GatedDeltaNet AttnLSTM MoE QMoE MoEGroupRouter
    SparseAttention SparseToDenseMatMul BeamSearch WhisperBeamSearch GreedySearch Sampling SampleOp
    NGramRepeatBlock NGramHashMapping VarlenNGramHashMapping BifurcationDetector DynamicTimeWarping
    EngramGate HyperConnectionPreMix HyperConnectionPostMix VarlenCausalConvWithState
    WordConvEmbedding Adagrad Adam Momentum"""
UNKNOWN = frozenset(_UNKNOWN.split())
TABLES = (FAMILY_OF, PER_RESULT, UNKNOWN)
TOLERANCE = 0.05
"""A chain of pointwise operators counts once when it is fused, in a small network so much."""
L4 = Target.parse("l4/tensorrt/fp16")
TARGETS = [L4, *map(Target.parse, ("l4/torch-2.4/fp32", "l4/torch-compile-2.9/amp"))]
PUBLIC = Path(__file__).resolve().parents[3] / "shared/data/gpu_networks/nets.tar.gz"
_, *ROWS = csv.reader(COUNTS.read_text().splitlines())
COUNTED = {module: int(flop) for module, flop in ROWS}
with zipfile.ZipFile(FILES) as archive:
    ARCHIVED = {name: archive.read(name) for name in archive.namelist()}


def test_every_operator_of_the_standard_and_of_onnx_runtime_has_one_row() -> None:
    native = onnxruntime.capi.onnxruntime_pybind11_state
    standard = {schema.name for schema in onnx.defs.get_all_schemas()}
    run_here = {kernel.op_name for kernel in native.get_all_opkernel_def()}
    assert len(standard) > 200 and len(run_here) > 250
    names = standard | run_here
    assert {name for name in names if sum(name in table for table in TABLES) != 1} == set()


@pytest.mark.parametrize("name", ARCHIVED)
def test_modules_count_what_pytorch_counts(name: str) -> None:
    network = read_network(ARCHIVED[name])
    counted = COUNTED[name.partition(".")[0]]
    lowered = [registry.lower(network, target) for target in TARGETS]
    for kernels in map(kernel_rows, (unfused(network), *lowered)):
        assert kernels.column("known").all()
        is_product = kernels.column("kind") <= KINDS["matmul"]  # and PyTorch counts those alone
        flop = kernels.column("flop")[is_product].sum()
        assert flop == pytest.approx(counted, rel=TOLERANCE)


def test_forty_modules_are_counted_and_nearly_all_come_both_ways() -> None:
    assert len(COUNTED) >= 40
    assert len(ARCHIVED) >= 40 * len(EXPORTERS)
    assert {name.partition(".")[0] for name in ARCHIVED} == set(COUNTED)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_still_counts_that() -> None:
    import torch

    from tests.model.modules import NOT_COUNTED, count

    for name, (make, shapes) in modules().items():
        if name not in NOT_COUNTED:
            read = [torch.randn(shape) for shape in shapes]
            assert count(make().eval(), read) == COUNTED[name], name


def _flop(
    op: str, shapes: Sequence[tuple[int, ...]], made: tuple[int, ...], **given: object
) -> float:
    b = Builder()
    domain = str(given.pop("domain", ""))
    read = [b.input(shape) if shape else "" for shape in shapes]
    network = b.network(b.op(op, read, made, 1, given, domain))  # type: ignore[arg-type]
    (row,) = kernel_rows(unfused(network)).values
    assert row[COLUMN["known"]]
    return float(row[COLUMN["flop"]])


def test_attention_counts_the_same_in_every_form() -> None:
    heads, flat = (2, 4, 50, 32), (2, 50, 128)
    flop = 2 * 2 * 4 * 50 * 50 * (32 + 32)
    assert _flop("Attention", [heads] * 3, heads) == flop
    assert _flop("Attention", [flat] * 3, flat, q_num_heads=4, kv_num_heads=4) == flop
    runtime = {"domain": "com.microsoft", "num_heads": 4}
    assert _flop("MultiHeadAttention", [flat] * 3, flat, **runtime) == flop
    assert _flop("MultiHeadAttention", [(2, 50, 4, 3, 32)], flat, **runtime) == flop
    keys = (2, 50, 4, 2, 32)
    assert _flop("MultiHeadAttention", [flat, keys], flat, **runtime) == flop
    few = (2, 50, 64)
    grouped = {**runtime, "kv_num_heads": 2}
    assert _flop("GroupQueryAttention", [flat, few, few], flat, **grouped) == flop
    assert _flop("GroupQueryAttention", [(2, 50, 256)], flat, **grouped) == flop
    projected = 2 * 2 * 50 * 96 * 384
    assert _flop("Attention", [(2, 50, 96), (96, 384)], flat, **runtime) == flop + projected
    wide = flop + 2 * 2 * 4 * 50 * 50 * 32 + projected * 512 / 384  # values of twice the depth
    assert _flop("Attention", [(2, 50, 96), (96, 512)], (2, 50, 256), **runtime) == wide


def test_a_deformable_convolution_is_slower_than_a_plain_one() -> None:
    read = [(1, 32, 20, 20), (64, 32, 3, 3), (1, 18, 18, 18)]
    plain = 2 * 64 * 32 * 9 * 18 * 18
    assert plain < _flop("DeformConv", read, (1, 64, 18, 18)) < 1.1 * plain


def test_keys_of_the_past_packed_weights_and_butterflies_count() -> None:
    heads, past = (2, 4, 1, 32), (2, 4, 99, 32)
    assert _flop("Attention", [heads] * 3 + [(), past, past], heads) == 2 * 8 * 100 * 64
    steps, bias, cache = [(2, 1, 128)] * 3, (2, 4, 1, 100), [(2, 4, 99, 32)] * 2
    runtime: dict[str, object] = {"domain": "com.microsoft", "num_heads": 4}
    read = [*steps, (), bias, *cache]
    assert _flop("DecoderMaskedMultiHeadAttention", read, steps[0], **runtime) == 2 * 8 * 100 * 64
    packed = [(2, 10, 64), (96, 2, 16), (192,)]
    assert _flop("MatMulNBits", packed, (2, 10, 96), K=64, N=96) == 2 * 20 * 64 * 96
    assert _flop("DFT", [(4, 1024, 1)], (4, 1024, 2)) == 5 * 4 * 1024 * 10
    assert _flop("STFT", [(2, 4096, 1), (), (256,)], (2, 31, 129, 2)) == 5 * 62 * 256 * 8
    grid = [(1, 8, 9, 9), (1, 5, 5, 2)], (1, 8, 5, 5)
    each = [_flop("GridSample", *grid, mode=mode) for mode in ("nearest", "linear", "cubic")]
    assert each == [2 * 200, 8 * 200, 32 * 200]


@pytest.mark.parametrize("window", [(3,), (3, 2), (3, 2, 4)])
def test_a_pool_reads_all_of_its_window(window: tuple[int, ...]) -> None:
    made = (2, 8, *[5] * len(window))
    flop = _flop("MaxPool", [(2, 8, *[9] * len(window))], made, kernel_shape=window)
    assert flop == math.prod(made) * math.prod(window)


def test_recurrent_layers_run_step_by_step_and_what_shapes_do_not_tell_is_unknown() -> None:
    b = Builder()
    x = b.input((1, 8, 8))
    odd = b.op("Strange", [b.op("LSTM", [x], (1, 8, 8), 14)], (1, 8, 8), 1, {}, "org.example")
    known = kernel_rows(unfused(b.network(odd))).column("known")
    assert list(known) == [0, 0]
    b = Builder()
    x = b.input((50, 2, 32))
    weights = [b.constant((1, 192, 32)), b.constant((1, 192, 48))]
    y = b.op("LSTM", [x, *weights], (50, 1, 2, 48), 14, {"hidden_size": 48})
    (row,) = kernel_rows(unfused(b.network(y))).values
    wanted = {"steps": 50, "reread_bytes": 4 * 192 * 48, "flop": 2 * 50 * 2 * 192 * (32 + 48)}
    assert {name: row[COLUMN[name]] for name in wanted} == wanted
    assert row[COLUMN["batch"]] == 2


def test_a_part_of_a_tensor_is_all_that_is_read_whatever_else_a_kernel_does() -> None:
    b = Builder()
    table, whole, places = b.constant((50_000, 64)), b.input((64, 9, 9)), b.input((1, 7))
    gathered = b.op("Gather", [table, places], (1, 7, 64))
    sliced = b.op("Slice", [whole, *map(b.numbers, (0, 3, 0))], (3, 9, 9))
    gather, cut = kernel_rows(unfused(b.network(gathered, sliced))).values
    assert gather[COLUMN["weight_bytes"]] == gather[COLUMN["out_bytes"]] == 4 * math.prod((7, 64))
    assert cut[COLUMN["in_bytes"]] == cut[COLUMN["out_bytes"]] == 4 * math.prod((3, 9, 9))
    assert np.isfinite([gather, cut]).all()
    b = Builder()
    rows = b.op("Gather", [b.constant((50_000, 64)), b.input((1, 7))], (1, 7, 64), 13)
    made = b.op("LayerNormalization", [rows, b.constant((64,))], (1, 7, 64), 17, {"axis": -1})
    kernels = kernel_rows(registry.lower(b.network(made), L4))
    assert kernels.column("weight_bytes").tolist() == [4 * (7 * 64 + 64)]


def _flop_of(network: Network) -> np.ndarray:
    """Of each operator of the file."""
    return kernel_rows(unfused(network)).column("flop")


def _ratio(network: Network, operators: np.ndarray, target: Target) -> float:
    """FLOP of the fused kernels over those of the operators that they hold, each in one place."""
    lowered = registry.lower(network, target)
    assert_accounted(network, lowered)
    held = sorted({i for origins in lowered.origins for i in origins})
    return float(kernel_rows(lowered).column("flop").sum() / operators[held].sum())


def test_networks_keep_their_work_when_they_are_fused() -> None:
    """Each under one of the targets in turn."""
    ratios = dict[tuple[str, Target], float]()
    for path, target in zip(sorted(NETS.glob("*.onnx")), itertools.cycle(TARGETS), strict=False):
        network = read_network(path)
        ratios[path.stem, target] = _ratio(network, _flop_of(network), target)
    assert len(ratios) >= 60
    assert {pair: r for pair, r in ratios.items() if abs(r - 1) > TOLERANCE} == {}


@pytest.mark.skipif(not PUBLIC.exists(), reason="needs the public data in ../shared/data")
@pytest.mark.parametrize(
    "name", ["torchvision__efficientnet_b0__2144x3840", "torchvision__regnet_y_400mf__480x640",
             "sg_ppyoloe_s", "sg_regseg48", "convnext_tiny"],
)  # fmt: skip
def test_networks_of_others_keep_theirs(name: str) -> None:
    with tarfile.open(PUBLIC) as archive:
        member = archive.extractfile(f"nets/{name}.onnx")
        assert member is not None
        network = read_network(member.read())
    assert _ratio(network, _flop_of(network), L4) == pytest.approx(1, abs=TOLERANCE)


def test_a_pooling_beside_its_map_reads_each_element_once() -> None:
    net = Builder()
    x = net.input((1, 64, 112, 112))
    swish = net.op("Mul", [x, net.op("Sigmoid", [x], (1, 64, 112, 112), 13)], (1, 64, 112, 112), 14)
    mean = net.op("GlobalAveragePool", [swish], (1, 64, 1, 1), 1)
    network = net.network(net.op("Mul", [swish, mean], (1, 64, 112, 112), 14))
    kernels = kernel_rows(registry.lower(network, L4))
    (pool,) = (i for i in range(kernels.cells) if "GlobalAveragePool" in kernels.op(i))
    sizes = [kernels.column(name)[pool] for name in ("flop", "m", "k")]
    assert sizes == [64 * 112 * 112, 64, 112 * 112]


def test_a_convolution_behind_a_transpose_is_a_convolution() -> None:
    net = Builder()
    x = net.input((1, 56, 56, 96))
    turned = net.op("Transpose", [x], (1, 96, 56, 56), 13, {"perm": (0, 3, 1, 2)})
    y = net.op(
        "Conv", [turned, net.weight((96, 1, 7, 7))], (1, 96, 56, 56), 11,
        {"kernel_shape": (7, 7), "pads": (3, 3, 3, 3), "group": 96},
    )  # fmt: skip
    network = net.network(y)
    kernels = kernel_rows(lowered_of(network, Groups(((0, 1),), ()), "test"))
    sizes = [kernels.column(name).tolist() for name in ("flop", "c_in", "groups")]
    assert sizes == [[2 * 49 * 96 * 56 * 56], [96], [96]]


def test_convolutions_that_run_as_one_count_the_channels_of_both() -> None:
    b = Builder("twins")
    x = b.input((1, 64, 28, 28))
    net = b.network(b.conv(x, 96, 1), b.conv(x, 32, 1))
    rows = kernel_rows(registry.lower(net, L4))
    sizes = [rows.column(name).tolist() for name in ("c_out", "n", "flop")]
    assert sizes == [[128], [128], [2 * 784 * 64 * 128]]


def test_a_scale_of_each_channel_is_no_second_convolution() -> None:
    b = Builder("scaled")
    made = b.conv(b.input((1, 64, 28, 28)), 64, 1)
    scaled = b.op("Mul", [made, b.weight((1, 64, 1, 1))], (1, 64, 28, 28), 14)
    net = b.network(b.conv(scaled, 32))
    lowered = lowered_of(net, Groups(((0, 1), (2,)), ()), "test")
    assert [kernel_rows(lowered).column(c)[0] for c in ("c_out", "n")] == [64, 64]
