"""A search space as a table: sums of its rows are the latencies of its networks."""

import itertools
import math
from pathlib import Path

import pytest

from hybridlat import Predictor
from hybridlat.api.space import chain
from hybridlat.errors import InputError, NetworkError
from hybridlat.estimate.block_space import cells_by_block
from hybridlat.estimate.partition import CellPlace, CellUse, Partition
from hybridlat.graph.network import Network
from hybridlat.onnx_io import to_onnx
from tests.fakes.fake_backend import FAKE
from tests.networks import Builder

CPU = "epyc-26-2/onnxruntime-1.31/fp32/1t"


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
    return net.network(net.gemm(net.flatten(net.global_pool(net.input((1, 16, 16, 16)))), 10))


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


def test_sums_of_rows_are_the_latencies_of_networks(fake: Predictor) -> None:
    space = fake.space(GIVEN)
    assert [(r.position, r.block) for r in space.table.rows] == [
        (position, name) for position, blocks in BLOCKS.items() for name in blocks
    ]
    rows = {(r.position, r.block): r for r in space.table.rows}
    assert all(row.measured_share == 1.0 and row.trusted for row in rows.values())
    none = rows["stage.1", "none"]
    assert (none.latency_us, none.interval_us) == (0.0, (0.0, 0.0))
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


def test_sums_agree_with_the_engine_s_layouts_within_what_the_table_tells(tmp_path: Path) -> None:
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


def test_networks_of_a_space_compose_by_their_own_cells(tmp_path: Path) -> None:
    net = Builder("pools")
    pools = to_onnx(net.network(net.pool(net.relu(net.input((1, 16, 16, 16))))), seed=None)
    convs = to_onnx(block(3), seed=None)
    with Predictor(CPU, store=str(tmp_path / "s.db"), measure="never") as predictor:
        space = predictor.space({"stage": {"pools": pools, "convs": convs}})
        for choice, one in (("pools", pools), ("convs", convs)):
            own, cells = predictor.predict(one), space.cells_of({"stage": choice})
            scale = space.latency({"stage": choice}).latency_us / cells.sum_us
            assert own.latency_us is not None
            assert scale == pytest.approx(own.latency_us / own.sum_of_cells_us)


def test_a_measured_cell_moves_the_space_and_its_networks_alike(tmp_path: Path) -> None:
    with Predictor(CPU, store=str(tmp_path / "s.db"), measure="never") as predictor:
        space = predictor.space(GIVEN)
    choice = CHOICES[-1]
    before, cells = space.latency(choice), space.cells_of(choice)
    assert sum(p.count for p in cells.priors) == space.counts_of(choice).total()
    assert space.composition.for_cells(cells).interval(cells) == pytest.approx(before)
    slowest = max(cells.unmeasured, key=lambda i: cells.uses_us[i])
    twice_us = 2 * float(cells.latencies_us[slowest])
    moved = space.observe({cells.priors[slowest].signature: (twice_us, 0.01)})
    assert moved.latency(choice).latency_us > before.latency_us
    # Cells like it are believed to be slower now, in the rest of the space too.
    assert moved.posterior.mean.sum() > math.log(2)


def test_what_makes_no_space_is_said(fake: Predictor) -> None:
    a = to_onnx(block(3), seed=None)
    with pytest.raises(
        NetworkError, match=r"a at stage reads float32\[1x16x16x16\], but head at stem"
    ):
        fake.space({"stem": {"head": to_onnx(head(), seed=None)}, "stage": {"a": a}})
    with pytest.raises(InputError, match="blocks at stage are a mapping from their names"):
        fake.space({"stage": [a]})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="no block at stage"):
        fake.space({"stage": {"none": None}})
    with pytest.raises(InputError, match="no positions"):
        fake.space({})
    with pytest.raises(InputError, match="mapping from positions to the blocks"):
        fake.space([a])  # type: ignore[arg-type]
    space = fake.space({"stage": {"a": a}})
    for odd in ({"0f": (1.0, 0.1)}, {next(iter(space.cells)): (-1.0, 0.1)}):
        with pytest.raises(InputError, match="is no cell of the space with a latency in µs and"):
            space.observe(odd)
    with pytest.raises(InputError, match="'b' is no block at stage: choose one of a"):
        space.latency({"stage": "b"})
    with pytest.raises(InputError, match="None is no block at stage"):
        space.latency({})
    with pytest.raises(InputError, match="no position 'head': choose among stage"):
        space.latency({"stage": "a", "head": "a"})


def test_what_the_engine_adds_belongs_to_the_block_of_what_runs_next() -> None:
    kernels: list[tuple[tuple[int, ...], ...]] = [(), ((0,),), ((1,), (2,)), (), ((3,),), ()]
    uses = tuple(
        CellUse(f"h{order}", ("Op",), (CellPlace(order, (order - 1,), each),))
        for order, each in enumerate(kernels)
    )
    found = cells_by_block(Partition(uses, (), 1, "test"), [0, 0, 1, 1])
    assert sorted(found[0]) == ["h0", "h1", "h2"] and sorted(found[1]) == ["h3", "h4", "h5"]
