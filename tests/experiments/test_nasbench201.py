"""The NAS-Bench-201 generator: every string, and networks that an engine accepts and runs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from experiments import nasbench201

NOTHING = nasbench201.arch_from_index(0)


def uniform(operator: str) -> str:
    """The architecture with one operator on all edges."""
    return f"|{operator}~0|+|{operator}~0|{operator}~1|+|{operator}~0|{operator}~1|{operator}~2|"


def with_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Replace every weight by random values; variances, like all others, are positive."""
    random = np.random.default_rng(seed)
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    del filled.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            values = random.uniform(0.01, 0.1, shapes[node.input[0]]).astype(np.float32)
            filled.graph.initializer.append(onnx.numpy_helper.from_array(values, node.output[0]))
        else:
            filled.graph.node.append(node)
    return filled


def run(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result = session.run(None, {"input": image})[0]
    assert isinstance(result, np.ndarray)
    return result


def test_every_index_and_string_round_trips() -> None:
    archs = list(nasbench201.all_archs())
    assert len(set(archs)) == len(archs) == nasbench201.ARCHITECTURES == 15_625
    assert [nasbench201.index_from_arch(arch) for arch in archs] == list(range(15_625))


def test_live_edges_are_those_on_a_path_found_by_search() -> None:
    """Compare with an exhaustive walk over all paths, on every architecture."""

    def walk(node: int, path: tuple[int, ...], present: set[int], live: set[int]) -> None:
        if node == 3:
            live.update(path)
        for number, (source, target) in enumerate(nasbench201.EDGES):
            if source == node and number in present:
                walk(target, (*path, number), present, live)

    disconnected = 0
    for arch in nasbench201.all_archs():
        operators = nasbench201.parse(arch)
        live: set[int] = set()
        walk(0, (), {n for n, operator in enumerate(operators) if operator != "none"}, live)
        expected = [(*nasbench201.EDGES[n], operators[n]) for n in sorted(live)]
        assert nasbench201.live_edges(arch) == expected
        disconnected += not expected
    assert disconnected == 341


@pytest.mark.parametrize("arch", [*nasbench201.sample(4, seed=1), uniform("nor_conv_3x3")])
def test_network_is_valid_runs_and_has_the_convolutions_of_its_string(arch: str) -> None:
    model = nasbench201.build(arch, cells_per_stage=2, image=16, classes=7, batch=2)
    onnx.checker.check_model(model, full_check=True)
    image = np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32)
    result = run(with_weights(model), image)
    assert result.shape == (2, 7)
    assert np.isfinite(result).all()

    kernels = [
        attribute.ints[0]
        for node in model.graph.node
        if node.op_type == "Conv"
        for attribute in node.attribute
        if attribute.name == "kernel_shape"
    ]
    used = [operator for _, _, operator in nasbench201.live_edges(arch)]
    # Besides the cells: the stem, and in each of two reductions two 3x3 and one 1x1.
    fixed = {1: 2, 3: 5} if used else {1: 0, 3: 0}
    assert kernels.count(3) == 6 * used.count("nor_conv_3x3") + fixed[3]
    assert kernels.count(1) == 6 * used.count("nor_conv_1x1") + fixed[1]


@pytest.mark.parametrize(
    ("operator", "published"), [("nor_conv_3x3", 1_531_546), ("avg_pool_3x3", 73_306)]
)
def test_parameters_are_those_of_the_published_table(operator: str, published: int) -> None:
    """The table counts scale and shift of a BN: a bias stands for both where one is folded."""
    model = nasbench201.build(uniform(operator))
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    parameters = 0
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and ".running_" not in node.output[0]:
            name, size = node.output[0], int(np.prod(shapes[node.input[0]]))
            parameters += size * (2 if name.endswith(".bias") and "tail" not in name else 1)
    assert parameters == published
