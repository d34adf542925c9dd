"""What changes an answer changes the key under which it is remembered; damage costs nothing."""

import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

import hybridlat
from experiments import nasbench201
from hybridlat import Predictor, predict
from hybridlat.engines import registry
from hybridlat.engines.ort import lowering
from hybridlat.estimate.lookup.models import keep_device, known_device
from hybridlat.estimate.partition import PARTITION_FORMAT, Partitioner, keep_file, known_file
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import load
from hybridlat.onnx_io.facts import FACTS_FORMAT
from hybridlat.schema.target import Device, Target
from hybridlat.store import Store
from tests.networks import NETS
from tests.onnx_io.test_reading_shapes import model

TENSORRT, TORCH = "l4/tensorrt-10.3/fp16", "v100/torch-2.9/fp32"
# Sizes that are worked out from a float vector, as TensorFlow's upsampling is exported.
RESIZE = """g (float[1,4,8,8] x) => (float[1,4,h,w] y)
    <float[2] k = {{{0}, {0}}}, int64[1] two = {{2}}, int64[1] end = {{4}}, int64[1] zero = {{0}}>
  {{ s = Shape(x)  hw = Slice(s, two, end)  f = Cast<to=1>(hw)  m = Mul(f, k)  i = Cast<to=7>(m)
    head = Slice(s, zero, two)  all = Concat<axis=0>(head, i)  y = Resize(x, "", "", all) }}"""
FOREIGN = """g (float[1,4] x) => (float[1,{0}] y) <float[1,{0}] t>
  {{ r = Relu(x)  t = my.Twist(r)  y = Relu(t) }}"""
STATED = "g (float[1,4] x) => (float[1,{0}] y) {{ r = Relu(x)  y = my.Twist(r) }}"
BRANCH = """g (float[1,4,8,8] x) => (float[1,4,8,8] y) <bool c = {{1}}>
  {{ {0} = Relu(x)  {1} = Exp(x)
    z = If(c) <then_branch = t () => (float[1,4,8,8] u) {{ u = MaxPool<kernel_shape=[1,1]>(a) }},
               else_branch = e () => (float[1,4,8,8] v) {{ v = Neg(a) }}>
    y = Add(z, {0}) }}"""
TWICE = """g (float[1,1,8,8] x) => (float[1,1,8,8] y) <float[1] k = {{{0}}}>
  {{ p = Pow(x, k)  n = InstanceNormalization(p, k, k)  y = Relu(n) }}"""
SHADOWED = """g (float[1,4] x, float[1] a, float[1] b) => (float[1,4] y) <float[1] {0} = {{2.0}}>
  {{ m = Mul(x, a)  y = Sub(m, b) }}"""
PRODUCT = "g (float[4,8] x) => (float[4,8] y) {{ a = MatMul(x, {0})  y = Relu(a) }}"
FED = """g (float[1,4,8,8] x, float[4,4,3,3] {0}) => (float[1,4,6,6] y) {{ y = Conv(x, {0}) }}"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def biased(name: str, result: str = "c") -> onnx.ModelProto:
    parts = f"{{ [c] {result} = Conv<pads=[1,1,1,1]>(x, w, b)  y = Add({result}, x) }}"
    text = f"g (float[1,8,8,8] x) => (float[1,8,8,8] y) {parts}"
    made = model(text, {"w": (1, [8, 8, 3, 3]), name: (1, [8])})
    made.graph.node[0].input[2] = name
    return made


def nonzero(name: str) -> onnx.ModelProto:
    made = model("g (float[8] x) => (float[8] y, int64[1,n] i) { y = Relu(x)  i = NonZero(y) }")
    made.graph.node[1].name = name
    return made


PAIRS = {
    "a float that sizes are computed from": [model(RESIZE.format(k)) for k in ("2.0", "4.0")],
    "the stated type of a foreign result": [model(FOREIGN.format(n)) for n in (4, 8)],
    "the stated type of a foreign output": [model(STATED.format(n)) for n in (4, 8)],
    "what a branch reads": [model(BRANCH.format(*pair)) for pair in ("ab", "ba")],
    "an exponent that a norm reads too": [model(TWICE.format(k)) for k in ("2.0", "3.0")],
    "which input has a value": [model(SHADOWED.format(name)) for name in "ab"],
    "a bias of its own, or folded": [biased(n) for n in ("conv.bias", "onnx::Conv_12")],
    "a folded norm's result": [biased("conv.bias", name) for name in ("conv2d", "getitem_1")],
    "how a product is simplified": [
        model(PRODUCT.format(n), {n: (1, [8, 8])}) for n in ("_v_3", "fc_weight_fused")
    ],
    "the name in a warning": [nonzero(n) for n in ("first", "second")],
    "an input in a warning": [model(FED.format(n)) for n in ("w", "weight")],
}


@pytest.mark.parametrize("target", [TENSORRT, TORCH])
@pytest.mark.parametrize("what", PAIRS)
def test_what_differs_has_another_key(what: str, target: str) -> None:
    with Store("sqlite://") as store, Store("sqlite://") as other:
        shared = Partitioner(Target.parse(target), store)
        for made in PAIRS[what]:
            fresh = Partitioner(Target.parse(target), other)
            assert shared.partition(load(made)) == fresh.partition(load(made))
        first, second = (load(made).key() for made in PAIRS[what])
        assert first != second


def test_gpus_of_the_same_rules_share_what_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []
    lower = registry.lower

    def counted(network: Network, target: Target, **how: bool) -> Lowered:
        lowered.append(str(target))
        return lower(network, target, **how)

    monkeypatch.setattr(registry, "lower", counted)
    with Store("sqlite://") as store:
        for name in ("l4/tensorrt-10.3/fp16", "t4/tensorrt-10.3/fp16", "t4/tensorrt-10.3/fp32"):
            one = Partitioner(Target.parse(name), store)
            one.partition(load(NETS / "squeezenet.onnx"))
            one.keep()
    assert lowered == ["l4/tensorrt-10.3/fp16", "t4/tensorrt-10.3/fp32"]


@pytest.mark.parametrize("target", [TENSORRT, "epyc-26-2/onnxruntime-1.31/fp32/1t"])
def test_a_later_process_lowers_no_candidate_of_a_search_again(
    target: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates are models in memory, and lowered by rules; their cells too stay in the cache."""
    made = [nasbench201.build(arch, cells_per_stage=1) for arch in nasbench201.sample(3, 5)]
    with Predictor(target, store=str(path), measure="never") as predictor:
        before = list(predictor.predict_many(made))
    with Store(path) as store, Store("sqlite://") as empty:
        assert store.signature_texts(before[0].to_measure) == {}

        later, fresh = (Partitioner(Target.parse(target), kept) for kept in (store, empty))
        for file in map(load, made):
            anew = fresh.partition(file)
            with monkeypatch.context() as patched:
                patched.setattr(registry, "lower", None)
                partition = later.partition(file)
            assert partition.whole == anew.whole
            assert replace(partition, hash="") == replace(anew, hash="")
    with Predictor(target, store=str(path), measure="never") as predictor:
        after = list(predictor.predict_many(made))
    assert [replace(a, elapsed_s=0.0) for a in after] == [replace(b, elapsed_s=0.0) for b in before]


def test_names_and_the_values_of_weights_are_no_part_of_the_key() -> None:
    made = onnx.load(NETS / "squeezenet.onnx")
    key = load(made).key()
    rng = random.Random(0)
    for node in made.graph.node:
        node.name = f"n{rng.random()}"
    for tensor in made.graph.initializer:
        if tensor.data_type == 1 and tensor.raw_data:
            tensor.raw_data = bytes(len(tensor.raw_data))
    assert load(made).key() == key


def test_the_code_is_in_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that reads files otherwise, or whose rules ask other conditions, asks anew."""
    root = Path(hybridlat.__file__).parent
    for room in ("graph", "onnx_io", "engines"):
        shutil.copytree(root / room, tmp_path / room)
    here = Path(registry.__file__).relative_to(root)
    hashes = set()
    monkeypatch.setattr(registry, "__file__", str(tmp_path / here))
    for changed in ("", "engines/tensorrt/predicates.py", "onnx_io/walk.py", "graph/network.py"):
        if changed:
            (tmp_path / changed).write_text("# other conditions")
        registry.code_hash.cache_clear()
        hashes.add(registry.lowering_identity(Target.parse(TORCH)))
    assert len(hashes) == 4
    file = load(NETS / "squeezenet.onnx", recall=lambda _: None)
    with Store("sqlite://") as store:
        keep_file(store, file)
        assert known_file(store, file.digest) is not None
        (tmp_path / "onnx_io/read.py").write_text("# another reader")
        registry.code_hash.cache_clear()
        assert known_file(store, file.digest) is None
    registry.code_hash.cache_clear()


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_what_of_this_cpu_decides_its_kernels_is_in_the_key_of_its_engine(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """OpenVINO joins a depthwise convolution to another without AVX-512 alone."""
    pytest.importorskip(engine)
    identities = set()
    for machine, flags in (("x86_64", "avx2"), ("x86_64", "avx2 avx512f"), ("aarch64", "fp")):
        folder = tmp_path / f"{machine} {flags}"
        folder.mkdir()
        (folder / "cpuinfo").write_text(f"flags : {flags}\n")
        monkeypatch.setenv("HYBRIDLAT_IDENTITY", str(folder))
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        identities.add(registry.lowering_identity(Target.parse(f"a/{engine}/fp32/1t")))
    assert len(identities) == 3


def test_what_rules_cut_is_cut_anew_once_engines_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this process nor its store's cache answers with what turned out to be unsure."""
    target = Target.parse("a/onnxruntime-1.31/fp32/1t")
    files = [load(nasbench201.build(a, cells_per_stage=1)) for a in nasbench201.sample(2, 5)]
    monkeypatch.setattr(lowering, "_differing", set())
    cut: list[str] = []

    def ask(network: Network) -> Lowered:
        answer = lowering.lower(network, target)
        return replace(answer, removed=(99,)) if len(cut) == 2 else answer

    rules = lowering.RuleLowering(ask, is_trusted=True, interval=1)

    def counted(network: Network, _: Target, **how: bool) -> Lowered:
        cut.append(network.name)
        return rules.lower(network)

    monkeypatch.setattr(registry, "lower", counted)
    with Store("sqlite://") as store:
        one = Partitioner(target, store)
        for file in (files[0], files[1], files[1], files[0]):
            one.partition(file)
        assert not rules.is_trusted and len(cut) == 4
        one.keep()
        other = Partitioner(target, store)
        for file in files:
            other.partition(file)
    assert len(cut) == 4


NET = Path(__file__).resolve().parents[2] / "data" / "nets" / "squeezenet.onnx"
TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"


def texts(path: Path) -> list[str]:
    """What is cached of files and partitions."""
    formats = f"[{FACTS_FORMAT},", f"[{PARTITION_FORMAT},"
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT text FROM cache ORDER BY key")
        return [text for (text,) in rows if text.startswith(formats)]


@pytest.mark.parametrize("damage", ["substr(text, 1, length(text) / 2)", "'[]'", "'x'", "'[4, 7]'"])
def test_a_file_is_answered_though_its_caches_are_damaged(damage: str, tmp_path: Path) -> None:
    path, latencies = tmp_path / "s.db", []
    for _ in range(2):
        latencies.append(predict(NET, TARGET, store=str(path), measure="never").latency_us)
        whole = texts(path)
        assert len(whole) == 2
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE cache SET text = {damage}")
    latencies.append(predict(NET, TARGET, store=str(path), measure="never").latency_us)
    assert len(set(latencies)) == 1
    assert texts(path) == whole  # made again


def test_a_damaged_micro_benchmark_counts_as_none(tmp_path: Path) -> None:
    target, path = Target.parse("abacus/onnxruntime/fp32/1t"), tmp_path / "s.db"
    device = Device("abacus", "cpu", {"fp32": 1e9}, 1e9, 1, 1e9)
    with Store(path) as store:
        keep_device(target, store, device)
        assert known_device(target, store) == device
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE cache SET text = '[]'")
        assert known_device(target, Store(path)) is None
