"""Records of a target or a time are taken back whole, with what was cached of them."""

import datetime
import json
from pathlib import Path

from click.testing import CliRunner, Result

from hybridlat.cli.store import store as command
from hybridlat.store import Store
from tests.store.conftest import Execute
from tests.store.records import HASHES, OTHER, TARGET, filled, measured

FEBRUARY = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)


def test_a_target_is_forgotten_with_what_was_cached_of_it(store: Store, execute: Execute) -> None:
    filled(store)
    store.cache_put(f"wandering/4/{TARGET}/6-2026", "{}")
    store.cache_put(f"wandering/4/{OTHER}/1-2026", "{}")
    planned = store.forget(TARGET, dry_run=True)
    assert (planned.cells, planned.networks, planned.layers, planned.cached) == (4, 1, 1, 1)
    assert len(list(store.measurements(TARGET))) == planned.records == 6
    assert store.forget(TARGET) == planned
    assert not list(store.measurements(TARGET)) and not list(store.breakdowns(TARGET))
    assert store.targets() == [OTHER] == [row.target for row in store.stats()]
    assert store.cache_read(f"wandering/4/{TARGET}/6-2026", str) is None
    assert store.cache_read(f"wandering/4/{OTHER}/1-2026", str) == "{}"
    assert store.check() == []
    assert [tuple(row) for row in execute("SELECT count(*) FROM payload")] == [(1,)]
    # The same records may come back.
    assert store.add([measured(HASHES[0], 10.0)]) == 1 and TARGET in store.targets()


def test_a_time_is_forgotten_of_all_targets(store: Store) -> None:
    filled(store)
    store.add([measured(HASHES[1], 30.0, measured_at="")])
    dated = {r.id for r in store.measurements() if r.measured_at >= "2026-02"}
    assert store.forget(since=FEBRUARY).records == len(dated) == 1
    assert not dated & {r.id for r in store.measurements()}
    assert len(list(store.breakdowns(TARGET))) == 1
    assert store.forget(until=FEBRUARY).records == 6
    # What has no date goes with its target alone.
    assert [r.measured_at for r in store.measurements()] == [""]
    assert store.forget(OTHER).records == 0


def test_the_command_says_how_many_and_asks(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with filled(Store(path)):
        pass

    def forget(*words: str) -> Result:
        return CliRunner().invoke(command, ["forget", "--store", str(path), *words])

    assert "say which records" in forget().stderr
    assert "not a time" in forget("--since", "noon").stderr
    assert "no such records" in str(forget("--since", "2030-01-01").exception)
    assert forget("--target", str(TARGET), "--json").exit_code == 2
    asked = forget("--target", str(TARGET))
    assert "6 records (1 of networks, 4 of cells, 1 of layers)" in asked.stdout
    assert asked.exit_code != 0  # without an answer nothing is removed
    refused = CliRunner().invoke(
        command, ["forget", "--store", str(path), "--target", str(TARGET)], input="n\n"
    )
    assert "nothing was removed" in refused.stderr
    done = forget("--target", str(TARGET), "--since", "2026-02-01", "--yes", "--json")
    assert json.loads(done.stdout) == {
        "cells": 1,
        "networks": 0,
        "layers": 0,
        "cached": 0,
        "records": 1,
    }
    done = forget("--target", str(TARGET), "--yes")
    assert done.exit_code == 0 and "5 records" in done.stdout
    with Store(path) as store:
        assert store.targets() == [OTHER]
