"""Signatures ignore names, weights and order, and change with everything else."""

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridlat.graph.symmetry as symmetry
from hybridlat.graph.network import Constant, Network, Node, TensorType
from hybridlat.graph.operators import LEARNED, STRUCTURAL, decides, is_number
from hybridlat.graph.signature import (
    hash_of,
    outline,
    read,
    sign,
    sign_in_order,
    sign_part,
    text_outline,
)
from tests.networks import SMALL, Builder, renamed
from tests.strategies import networks, reordered

GOLDEN = Path(__file__).parents[1] / "golden" / "signatures.json"


@given(st.data())
def test_names_order_and_weights_do_not_count(data: st.DataObject) -> None:
    network = data.draw(networks())
    text = sign(network).text
    assert sign(renamed(network)).text == text
    other = renamed(data.draw(reordered(network)), "x")
    assert sign(other).text == text and outline(other) == outline(network)


@given(st.data())
def test_what_is_remembered_is_what_would_be_signed_anew(data: st.DataObject) -> None:
    network = data.draw(networks(max_nodes=4))
    every = range(len(network.nodes))
    chosen = tuple(sorted(data.draw(st.sets(st.sampled_from(every), min_size=1))))
    for other in (network, renamed(network), data.draw(reordered(network))):
        for part in (tuple(every), chosen):
            assert sign_part(other, part) == sign_in_order(other.subnetwork(part))
    node = network.nodes[0]
    for value in (1, 1.0):
        other = replace_node(network, 0, replace(node, attributes=(("x", value),)))
        assert sign_part(other, chosen) == sign_in_order(other.subnetwork(chosen))
    exposed = replace(network, outputs=tuple(network.types))
    assert sign_part(exposed, chosen) == sign_in_order(exposed.subnetwork(chosen))


@given(networks())
def test_the_text_is_lossless(network: Network) -> None:
    signature = sign(network)
    assert sign(read(signature.text)) == signature
    assert hash_of(signature.text) == signature.hash
    assert text_outline(signature.text) == outline(network)


@given(st.data())
def test_every_change_changes_the_hash(data: st.DataObject) -> None:
    network = data.draw(networks())
    position = data.draw(st.integers(0, len(network.nodes) - 1))
    node = network.nodes[position]
    changed = [
        replace_node(network, position, replace(node, op=node.op + "X")),
        replace_node(network, position, replace(node, domain="com.example")),
        replace_node(network, position, replace(node, version=node.version + 1)),
        replace_node(network, position, replace(node, inputs=(*node.inputs, ""))),
        replace_node(network, position, replace(node, attributes=(*node.attributes, ("zz", 1)))),
    ]
    for name, value in node.attributes:
        rest = tuple(a for a in node.attributes if a[0] != name)
        other = (*value, 9) if isinstance(value, tuple) else 99
        attributes = tuple(sorted((*rest, (name, other))))
        changed.append(replace_node(network, position, replace(node, attributes=attributes)))
    used = {i for n in network.nodes for i in n.inputs if i} | set(network.outputs)
    tensor = data.draw(st.sampled_from(sorted(used)))
    kind = network.type_of(tensor)
    place = data.draw(st.integers(0, len(kind.shape) - 1))
    longer = tuple(d + (i == place) for i, d in enumerate(kind.shape))
    changed.append(with_type(network, tensor, TensorType(kind.dtype, longer)))
    changed.append(with_type(network, tensor, TensorType("float16", kind.shape)))
    changed.append(with_type(network, tensor, TensorType(kind.dtype, (*kind.shape, 1))))
    assert sign(network).hash not in [sign(one).hash for one in changed]


@given(st.data())
def test_small_symmetric_networks_too(data: st.DataObject) -> None:
    """Relu and Add on one shape, with many outputs: where ties are frequent."""
    network = data.draw(symmetric())
    assert sign(data.draw(reordered(network))).text == sign(network).text
    assert sign(read(sign(network).text)).text == sign(network).text


@given(st.data())
def test_what_is_set_apart_by_its_links_too(data: st.DataObject) -> None:
    """As it is in large networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_MIXED", 0)
        test_small_symmetric_networks_too.hypothesis.inner_test(data)  # type: ignore[attr-defined]
        test_names_order_and_weights_do_not_count.hypothesis.inner_test(data)  # type: ignore[attr-defined]


def fan(branches: int, length: int = 1) -> Network:
    b = Builder()
    source = b.input((1, 2, 4, 4))
    for _ in range(branches):
        last = source
        for _ in range(length):
            last = b.relu(last)
    return b.network()


def ladder(rungs: int) -> Network:
    b = Builder()
    source = b.input((1, 2, 4, 4))
    left, right = b.relu(source), b.relu(source)
    for _ in range(rungs):
        left, right = b.add(left, right), b.add(right, left)
    return b.network()


def test_ways_back_from_tied_operands_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    b, shape, steps = Builder(), (1, 2, 4, 4), itertools.count()
    last = b.input(shape)
    for _ in range(4):
        last = b.op("Max", [b.relu(last) for _ in range(30)], shape, 13)
    network = b.network(b.add(b.relu(last), b.relu(last)))
    monkeypatch.setattr(symmetry, "digest", lambda *parts: b"%d" % next(steps))
    symmetry.with_ordered_operands(network)
    assert next(steps) < symmetry.MOST_ALIKE * len(network.nodes)


@pytest.mark.parametrize(
    "network",
    [fan(800), fan(2, 400), fan(40, 10), ladder(300)],
    ids=("fan", "towers", "grid", "ladder"),
)
def test_equal_branches_take_no_more_steps_each_where_they_are_many(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, steps = symmetry.digest, itertools.count()

    def counted(*parts: object) -> bytes:
        next(steps)
        return honest(*parts)

    monkeypatch.setattr(symmetry, "digest", counted)
    monkeypatch.setattr(symmetry, "MOST_MIXED", 3000)
    text = sign(network).text
    assert next(steps) < 20 * len(network.nodes) + symmetry.MOST_MIXED
    order = network.order_by(lambda position: -position)
    other = replace(network, nodes=tuple(network.nodes[i] for i in order))
    assert sign(renamed(other, "x")).text == text


@st.composite
def symmetric(draw: st.DrawFn) -> Network:
    b = Builder()
    tensors = [b.input((1, 2, 4, 4)) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 6))):
        left = draw(st.sampled_from(tensors))
        if draw(st.booleans()):
            tensors.append(b.relu(left))
        else:
            tensors.append(b.add(left, draw(st.sampled_from(tensors))))
    return b.network()


def replace_node(network: Network, position: int, node: Node) -> Network:
    nodes = list(network.nodes)
    nodes[position] = node
    return replace(network, nodes=tuple(nodes))


def with_type(network: Network, tensor: str, kind: TensorType) -> Network:
    if tensor in network.constants:
        return replace(network, constants={**network.constants, tensor: Constant(kind)})
    return replace(network, types={**network.types, tensor: kind})


def test_values_of_constants_count_and_weights_do_not() -> None:
    def reshape(values: tuple[int, ...] | None) -> Network:
        b = Builder()
        x = b.input((1, 4, 2, 2))
        b.constants["shape"] = Constant(TensorType("int64", (2,)), values)
        return b.network(b.op("Reshape", [x, "shape"], (1, 16), 13))

    assert len({sign(reshape(v)).hash for v in ((1, 16), (1, -1), None)}) == 3
    assert read(sign(reshape((1, -1))).text).constants["c0.1"].values == (1, -1)


@pytest.mark.parametrize("make", SMALL)
def test_a_signature_is_the_same_in_every_version(make: Callable[[], Network]) -> None:
    """A changed hash would orphan every record: the format number must then go up."""
    assert sign(make()).hash == json.loads(GOLDEN.read_text())[make.__name__]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hybridlat-signature 3\n",
        "hybridlat-signature 1\ninput 0 float32 2\nnode Relu@14 (0) -> (1:float32:2) {}",
        "hybridlat-signature 2\ninput",
        "hybridlat-signature 2\ninput 0 float32:1xa",
        "hybridlat-signature 2\nnode Conv",
        "hybridlat-signature 2\nnode Conv@1 (0) -> (1:float32:2) {",
        'hybridlat-signature 2\nnode Conv@1 (0) -> (1:float32:2) {"a":{}}',
        "hybridlat-signature 2\nnode Relu@1 (int64:2=1,x) -> (1:float32:2) {}",
    ],
)
def test_what_is_no_signature_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)


@given(st.data())
def test_damaged_texts_never_raise_anything_else(data: st.DataObject) -> None:
    text = sign(data.draw(networks())).text
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    with suppress(ValueError):
        read(text[:start] + data.draw(st.text(max_size=3)) + text[end:])


@pytest.mark.parametrize("op", sorted({*STRUCTURAL, *LEARNED, "Min", "Add", "Mul", "Erf"}))
def test_a_float_that_decides_is_read_from_the_file(op: str) -> None:
    """A file keeps more: an engine's own optimiser reads those that no signature has."""
    types = [TensorType("float32", (size,)) for size in (1, 4, 64)]
    kept = {type_ for type_ in types if is_number(op, type_)}
    assert kept >= {type_ for type_ in types if decides(op, 1, type_)}
    assert not any(decides(op, 0, type_) for type_ in types) or op == "Min"
    assert (op in LEARNED) == (not kept)
