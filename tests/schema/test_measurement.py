"""Records survive JSON unchanged, and damage is named."""

import gzip
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from hybridlat.schema.files import decode_or_none
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store.packs import shipped_packs
from tests.strategies import breakdowns, measurements

TARGET = Target("fake", "fake-1.0", "fp32", 1)
HASH = "0123456789abcdef" * 2
VISIT: dict[str, Any] = {"samples_us": [1.0], "drift": 1.0, "process": 0}


def record(**changes: Any) -> dict[str, Any]:
    visits = (Visit((10.0, 11.0), 1.1, 3),)
    body = Measurement(TARGET, HASH, "cell", 9.5, 0.02, visits, labels={"network": "a"}).to_json()
    return {**body, **changes}


@given(measurements())
def test_measurement_round_trip(measurement: Measurement) -> None:
    again = Measurement.from_json(json.loads(json.dumps(measurement.to_json())))
    assert again == measurement
    assert again.id == measurement.id


@given(breakdowns)
def test_breakdown_round_trip(breakdown: Breakdown) -> None:
    again = Breakdown.from_json(json.loads(json.dumps(breakdown.to_json())))
    assert again == breakdown
    assert again.id == breakdown.id


def test_the_id_is_of_the_content_and_stays() -> None:
    sound = Measurement.from_json(record())
    assert not list(sound.problems())
    assert sound.id == "70279d929c200bc77123dd2f2ffec1d7"
    assert Measurement(TARGET, HASH, "cell", 3).id == Measurement(TARGET, HASH, "cell", 3.0).id
    changes: tuple[dict[str, Any], ...]
    changes = {"latency_us": 9.6}, {"measured_at": "x"}, {"labels": {}}, {"visits": []}
    for change in changes:
        assert Measurement.from_json(record(**change)).id != sound.id


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 3}, "newer"),
        ({"format": 2}, "missing required field launch"),
        ({"launch": "graph"}, "unknown field launch"),
        ({"format": 0}, "format 0"),
        ({"format": "1"}, "format '1'"),
        ({"target": "h100"}, "h100"),
        ({"target": 5}, "target: expected str, got int"),
        ({"signature": HASH.upper()}, "not 32 hex digits"),
        ({"kind": "kernel"}, "kernel"),
        ({"latency_us": 0.0}, "latency_us 0.0"),
        ({"latency_us": math.nan}, "nan"),
        ({"latency_us": True}, "latency_us: expected"),
        ({"latency_us": 10**400}, "latency_us: number out of range"),
        ({"latency_us": None}, "either a latency_us or a failure"),
        ({"failure": "crashed"}, "either a latency_us or a failure"),
        ({"spread_share": -0.1}, "spread_share -0.1"),
        ({"spread_share": math.nan}, "spread_share nan"),
        ({"overhead_us": math.inf}, "overhead_us inf"),
        ({"visits": [{"samples_us": [1.0], "drift": 1.0}]}, "missing required field process"),
        ({"visits": [VISIT | {"samples_us": [math.nan]}]}, "sample is no time"),
        ({"latency_us": 1e308}, "latency_us 1e+308 is no latency"),
        ({"latency_us": 5e-324}, "latency_us 5e-324 is no latency"),
        ({"visits": [VISIT | {"drift": 1e-300}]}, "drift 1e-300"),
        ({"visits": [VISIT | {"samples_us": ["1"]}]}, "samples_us[0]: expected float"),
        ({"environment": {"threads": 1}}, "environment"),
        ({"note": "extra"}, "note"),
    ],
)
def test_damage_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Measurement.from_json(record(**change))
    assert named in str(caught.value)


@pytest.mark.parametrize("body", [None, [], "x", 3, {}])
def test_other_json_is_refused(body: object) -> None:
    for read in (Measurement.from_json, Breakdown.from_json):
        with pytest.raises(ValueError, match=r"JSON object|format"):
            read(body)


@pytest.mark.parametrize(
    ("note", "facts"),
    [
        ("CUDA graph", ("graph", None, False)),
        ("no CUDA graph", ("stream", None, False)),
        ("including IO", (None, True, False)),
        ("not including IO", (None, False, False)),
        ("suspect", (None, None, True)),
        ("without CUDA graphs", (None, None, False)),
        ("", (None, None, False)),
    ],
)
def test_notes_of_format_1_state_facts_by_exact_words(note: str, facts: tuple[object, ...]) -> None:
    body = record(labels={"note": note})
    read = Measurement.from_json(body)
    assert (read.launch, read.copies, read.suspect) == facts
    assert read.to_json() == body  # its id stays


def test_facts_are_fields_of_their_own() -> None:
    plain = Measurement.from_json(record())
    marked = msgspec.structs.replace(plain, launch="graph", copies=False, suspect=True)
    body = marked.to_json()
    facts = [body[name] for name in ("format", "launch", "copies", "suspect")]
    assert facts == [2, "graph", False, True]
    assert Measurement.from_json(body) == marked
    unlike_its_note = msgspec.structs.replace(plain, labels={"note": "suspect"})
    assert Measurement.from_json(unlike_its_note.to_json()) == unlike_its_note
    with pytest.raises(ValueError, match="launch"):
        Measurement.from_json({**body, "launch": "fast"})


def test_a_missing_field_is_damage() -> None:
    for name in record().keys() - {"format"}:
        body = record()
        del body[name]
        with pytest.raises(ValueError, match=name):
            Measurement.from_json(body)


@pytest.mark.parametrize("cells", [[[HASH]], [[HASH, 0]], [[HASH, "1"]], [["x", 1]], [HASH], 3])
def test_damaged_breakdowns_are_refused(cells: object) -> None:
    body = Breakdown(TARGET, "resnet18", HASH, ((HASH, 2),)).to_json()
    with pytest.raises(ValueError, match=r"cells|count|hex digits"):
        Breakdown.from_json({**body, "cells": cells})


@pytest.mark.parametrize(
    ("table", "read"),
    [("measurements", Measurement.from_json), ("breakdowns", Breakdown.from_json)],
)
def test_the_records_of_the_shipped_pack_are_written_as_they_were(
    table: str, read: Callable[[object], Measurement | Breakdown]
) -> None:
    pack = next(p for p in shipped_packs() if p.target.threads)
    with gzip.open(pack.folder / f"{table}.jsonl.gz", "rb") as lines:
        for line in itertools.islice(lines, 0, None, 4):
            body = read(json.loads(line)).to_json()
            assert json.dumps(body, separators=(",", ":")).encode() + b"\n" == line


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    counts: dict[str, int]


@pytest.mark.parametrize(
    "text",
    [None, "", "x", '{"name":"a","counts":{"b":1', "[]", '{"name":1,"counts":{}}', b"\xff",
     "\ud800", '{"name":"a","counts":{},"more":1}'],
)  # fmt: skip
def test_a_damaged_document_counts_as_missing(text: str | bytes | None) -> None:
    assert decode_or_none(text, Entry) is None
