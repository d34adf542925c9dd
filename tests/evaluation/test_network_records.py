"""Targets of which only whole networks are recorded, as something to learn from."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.evaluation import dataset
from hybridlat.evaluation.families import load_networks
from hybridlat.graph.signature import sign
from hybridlat.graph.signature_reading import read
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.networks import classifier, conv_relu

TARGET = Target("t4", "tensorrt-8.6", "fp16")
CELL, OTHER, WHOLE = sign(conv_relu()), sign(conv_relu(16)), sign(classifier())
NOW = {"lowering": registry.lowering_identity(TARGET), "batch": "4"}


def record(latency_us: float, name: str = "net", **labels: str) -> Measurement:
    return Measurement(
        TARGET, WHOLE.hash, "network", latency_us, labels={"network": name, **labels}
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.db")
    store.add_signatures({s.hash: s.text for s in (CELL, OTHER)})
    store.add_breakdowns([Breakdown(TARGET, "net", WHOLE.hash, ((CELL.hash, 2),), labels=NOW)])
    return store


def test_several_origins_are_one_row_but_for_what_is_suspect(store: Store) -> None:
    records = [record(10, source="x"), replace(record(14, source="y"), suspect=True)]
    records += [record(20, source="z", repeat="1"), record(22, source="z", repeat="2")]
    store.add(records)
    sound, suspect = load_networks(TARGET, [store, store])
    assert (suspect.latency_us, suspect.suspect) == (14, True)
    assert (sound.latency_us, sound.suspect) == (15.5, False)  # the median of 10 and of 21
    assert sorted(sound.repeats_us) == [10, 20, 22]
    assert sound.name == suspect.name == "net batch 4"
    assert sound.cells == suspect.cells == ((CELL.text, 2),)
    assert read(sound.cells[0][0]).nodes


def test_layouts_are_laws_of_their_own_where_a_target_knows_several(store: Store) -> None:
    store.add([record(10, layout="nchw")])
    assert [row.task.layout for row in load_networks(TARGET, [store])] == [""]
    store.add([record(12, layout="nhwc")])
    names = [row.name for row in load_networks(TARGET, [store])]
    assert names == ["net batch 4 nchw", "net batch 4 nhwc"]


def test_the_partition_of_the_rules_in_force_counts(store: Store) -> None:
    for cells, rules in (((OTHER.hash, 1), "older"), ((OTHER.hash, 7), "oldest")):
        labels = {**NOW, "lowering": rules}
        store.add_breakdowns([Breakdown(TARGET, "net", WHOLE.hash, (cells,), labels=labels)])
    store.add([record(10)])
    (row,) = load_networks(TARGET, [store])
    assert row.cells == ((CELL.text, 2),)


def test_a_batch_that_nobody_states_is_that_of_the_cells(store: Store) -> None:
    store.add_breakdowns([Breakdown(TARGET, "old", OTHER.hash, ((CELL.hash, 1),))])
    store.add([Measurement(TARGET, OTHER.hash, "network", 5.0)])
    (row,) = load_networks(TARGET, [store])
    assert (row.network, row.batch) == ("old", 1)


def test_what_lacks_a_partition_or_a_text_is_left_out_and_said(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.add_breakdowns([Breakdown(TARGET, "lost", OTHER.hash, (("0" * 32, 1),))])
    failed = replace(record(1, x="y"), latency_us=None, failure="no memory")
    lost = Measurement(TARGET, OTHER.hash, "network", 5.0, labels={"network": "lost"})
    store.add([record(10), lost, replace(lost, signature=CELL.hash), failed])
    with caplog.at_level(logging.WARNING):
        (row,) = load_networks(TARGET, [store])
    assert row.latency_us == 10
    assert "3 of 4 networks of t4/tensorrt-8.6/fp16 are left out" in caplog.text


def test_nothing_to_learn_from_is_an_error(store: Store) -> None:
    with pytest.raises(InputError, match="no whole network of t4/"):
        load_networks(TARGET, [store])
    store.add([record(10)])
    with pytest.raises(InputError, match="only whole networks"):
        dataset.load(TARGET, [store])  # cell by cell there is still nothing
