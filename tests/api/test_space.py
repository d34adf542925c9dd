"""A search space as a table: sums of its rows are the latencies of its networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.api.space import chain
from hybridlat.errors import InputError, NetworkError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network, to_onnx
from tests.fakes.fake_backend import FAKE, QUICK
from tests.networks import Builder

CPU, L4 = "epyc-26-2/onnxruntime-1.31/fp32/1t", "l4/tensorrt/fp16"


def block(kernel: int, *, channels: int = 16, inner: int = 32, residual: bool = True) -> Network:
    """Two convolutions with a sum around them, or without."""
    net = Builder(f"block{kernel}")
    x = net.input((1, 16, 16, 16))
    y = net.relu(net.conv(x, inner, 1))
    y = net.conv(y, channels, kernel)
    return net.network(net.add(y, x) if residual else y)


def stem() -> Network:
    net = Builder("stem")
    return net.network(net.relu(net.conv(net.input((1, 3, 32, 32)), 16, 3, 2)))


def head() -> Network:
    net = Builder("head")
    x = net.flatten(net.global_pool(net.input((1, 16, 16, 16))))
    return net.network(net.gemm(x, 10))


BLOCKS: dict[str, dict[str, Network | None]] = {
    "stem": {"stem": stem()},
    "stage.0": {"3x3": block(3), "5x5": block(5, residual=False)},
    "stage.1": {"none": None, "3x3": block(3), "wide": block(3, inner=64)},
    "head": {"head": head()},
}
GIVEN = {
    position: {name: one and to_onnx(one, seed=None) for name, one in blocks.items()}
    for position, blocks in BLOCKS.items()
}
CHOICES = [dict(zip(BLOCKS, names, strict=True)) for names in itertools.product(*BLOCKS.values())]


def network(choice: dict[str, str]) -> bytes:
    standing = (BLOCKS[position][name] for position, name in choice.items())
    return to_onnx(chain([one for one in standing if one is not None]), seed=None)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Predictor]:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Predictor(FAKE, store=store, settings=QUICK) as predictor:
        yield predictor


def test_sums_of_rows_are_the_latencies_of_networks(fake: Predictor) -> None:
    space = fake.space(GIVEN)
    assert [(r.position, r.block) for r in space.table.rows] == [
        (position, name) for position, blocks in BLOCKS.items() for name in blocks
    ]
    rows = {(r.position, r.block): r for r in space.table.rows}
    assert all(row.measured_share == 1.0 and row.trusted for row in rows.values())
    none = rows["stage.1", "none"]
    assert (none.latency_us, none.interval_us) == (0.0, (0.0, 0.0))
    held = sum(row.networks for row in space.table.rows if row.position == "stage.1")
    assert held == space.table.networks == len(space.drawn) + 2
    with Predictor(FAKE, store=fake.store.url, measure="never") as predictor:
        estimates = [predictor.predict(network(choice)) for choice in CHOICES]
    for choice, estimate in zip(CHOICES, estimates, strict=True):
        said = space.latency(choice)
        assert estimate.measured_share == pytest.approx(1.0)
        assert said.latency_us == pytest.approx(estimate.latency_us)
        assert said.interval_us == pytest.approx(estimate.interval_us)
        summed = sum(rows[pair].latency_us or 0.0 for pair in choice.items())
        assert space.table.constant_us + summed == pytest.approx(said.latency_us)
    check = space.table.check
    assert check is not None and check.worst_share < 1e-9


def test_sums_agree_with_the_engines_own_layouts_within_what_the_table_tells(
    tmp_path: Path,
) -> None:
    with Predictor(CPU, store=str(tmp_path / "s.db"), measure="never") as predictor:
        space = predictor.space(GIVEN)
        check = space.table.check
        assert check is not None and check.worst_share < 0.05
        for choice in CHOICES:
            own = predictor.predict(network(choice)).latency_us
            assert space.latency(choice).latency_us == pytest.approx(own, rel=0.05)
        for row in space.table.rows:
            if row.block != "none":
                assert row.latency_us is not None and row.interval_us is not None
                assert row.interval_us[0] < row.latency_us < row.interval_us[1]


def test_rows_of_a_whole_network_sum_to_its_latency(tmp_path: Path) -> None:
    nets = Path(__file__).resolve().parents[2] / "data" / "nets"
    with Predictor(L4, store=str(tmp_path / "s.db"), measure="never") as predictor:
        table = predictor.space([nets / "resnet18.onnx"]).table
        own = predictor.predict(nets / "resnet18.onnx").latency_us
        assert table.constant_us + sum(r.latency_us or 0 for r in table.rows) == pytest.approx(own)
        assert {"layer1.0", "layer4.1"} <= {row.position for row in table.rows}
        both = predictor.space([nets / "resnet18.onnx", nets / "resnet34.onnx"]).table
    rows = [row for row in both.rows if row.position == "layer1.2"]
    assert sorted((row.block == "none", row.networks) for row in rows) == [(False, 1), (True, 1)]
    order = list(dict.fromkeys(row.position for row in both.rows))
    assert order.index("layer1.1") < order.index("layer1.2") < order.index("layer2.0")


def test_a_measured_cell_moves_the_space_and_its_networks_alike(tmp_path: Path) -> None:
    with Predictor(CPU, store=str(tmp_path / "s.db"), measure="never") as predictor:
        space = predictor.space(GIVEN)
    choice = CHOICES[-1]
    before, cells = space.latency(choice), space.cells_of(choice)
    assert sum(p.count for p in cells.priors) == space.counts_of(choice).total()
    assert space.composition.interval(cells) == pytest.approx(before)
    slowest = max(cells.unmeasured, key=lambda i: cells.uses_us[i])
    twice_us = 2 * float(cells.latencies_us[slowest])
    moved = space.observe({cells.priors[slowest].signature: (twice_us, 0.01)})
    assert moved.latency(choice).latency_us > before.latency_us
    # Cells like it are believed to be slower now, in the rest of the space too.
    assert moved.posterior.mean.sum() > math.log(2)


def test_what_makes_no_space_is_said(fake: Predictor, tmp_path: Path) -> None:
    a = to_onnx(block(3), seed=None)
    with pytest.raises(
        NetworkError, match=r"0 at stage reads float32\[1x16x16x16\], but 0 at stem"
    ):
        fake.space({"stem": [to_onnx(head(), seed=None)], "stage": [a]})
    path = tmp_path / "one.onnx"
    path.write_bytes(a)
    with pytest.raises(InputError, match="two blocks at stage are called 'one'"):
        fake.space({"stage": [path, path]})
    with pytest.raises(InputError, match="no block at stage"):
        fake.space({"stage": [None]})
    with pytest.raises(InputError, match="no positions"):
        fake.space({})
    with pytest.raises(InputError, match="no networks"):
        fake.space([])
    with pytest.raises(InputError, match="which module an operator comes from"):
        fake.space([a])
    with pytest.raises(InputError, match="blocks that are given by position have theirs already"):
        fake.space({"stage": [a]}, pattern="a.*")
    space = fake.space({"stage": {"a": a}})
    with pytest.raises(InputError, match="'b' is no block at stage: choose one of a"):
        space.latency({"stage": "b"})
    with pytest.raises(InputError, match="None is no block at stage"):
        space.latency({})
    with pytest.raises(InputError, match="no position 'head': choose among stage"):
        space.latency({"stage": "a", "head": "a"})


def test_a_chain_runs_blocks_in_turn() -> None:
    blocks = [stem(), block(3), block(3), head()]
    joined = read_network(to_onnx(chain(blocks), seed=None))
    assert len(joined.nodes) == sum(len(one.nodes) for one in blocks)
    assert joined.types[joined.outputs[0]].shape == (1, 10)
