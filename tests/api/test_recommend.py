"""Which GPU keeps a budget: the same answers as `predict`, ranked by what people choose by."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import hybridlat
from hybridlat.engines import device_sheets
from hybridlat.engines.tensorrt import lowering
from hybridlat.errors import InputError
from hybridlat.report import prediction_table
from hybridlat.schema.shown import Estimates
from tests.cli.shell import call
from tests.networks import ROOT

NET = str(ROOT / "data/nets/resnet18.onnx")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("recommend") / "s.db")


@pytest.mark.parametrize("words", [{}, {"batch": 4}])
def test_each_row_is_the_answer_of_predict(words: dict[str, Any], store: str) -> None:
    rows = hybridlat.recommend(NET, "[ol][r4]*", fps=600, store=store, **words)
    targets = [row.target for row in rows]
    some = {"orin-nano/tensorrt/fp16", "orin-nano-7w/tensorrt/int8", "l4/tensorrt/fp32"}
    assert some.issubset(targets)
    for row in [*rows[:3], rows[targets.index("orin-nano/tensorrt/fp16")], rows[-1]]:
        one = hybridlat.predict(NET, row.target, measure="never", store=store, **words)
        one = one.against(fps=600)
        for name in ("latency_us", "high_us", "probability_within"):
            assert getattr(row, name) == pytest.approx(getattr(one, name), rel=1e-4)
        same = "target", "answered_as", "rests_on", "memory", "check", "verdict"
        assert [getattr(row, n) for n in same] == [getattr(one, n) for n in same]


def test_rows_are_ranked_by_verdict_power_and_memory(store: str) -> None:
    rows = hybridlat.recommend(NET, "orin-*", max_latency_us=1500.0, precision="fp16", store=store)
    assert len({row.verdict for row in rows}) == 3
    order = {"within": 0, "unsure": 1, "over": 2}
    memories = [(row.memory and row.memory.device_bytes) or 0 for row in rows]
    ranks = [(order[r.verdict or ""], r.power_w, m) for r, m in zip(rows, memories, strict=True)]
    assert ranks == sorted(ranks)
    assert all(s.power_w for s in map(device_sheets.load, device_sheets.names()) if s.kind == "gpu")


def test_an_order_against_a_sheet_is_said(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {row.target: row for row in hybridlat.recommend(NET, "l4", store=store)}
    whole, half = known["l4/tensorrt/fp32"], known["l4/tensorrt/fp16"]
    slow, text = replace(half, latency_us=1e6), "FP16 comes out slower than FP32"
    assert text in str(Estimates([whole, slow])) and not prediction_table.order_note([slow, slow])
    assert not prediction_table.order_note([whole, replace(slow, batch=2)])
    lowered = Mock(wraps=lowering.lower)
    monkeypatch.setattr(lowering, "lower", lowered)
    hybridlat.predict(NET, half.target, batch=3, store=store)
    assert lowered.call_count == 1  # by its own kernels no other precision is the slower one
    monkeypatch.setattr(prediction_table, "_LATER", 1e-9)
    assert text in hybridlat.predict(NET, half.target, store=store).warnings[0].text
    shown = call("recommend", NET, "l4", "--store", store).out
    assert "comes out slower than" in " ".join(shown.split())
    codes = {warning.code for warning in half.warnings}
    assert ("known-network" in codes) == (half.grade in ("rough", "order of magnitude"))
    assert not {"host", "unlike-known"} & codes
    small, ada = NET.replace("resnet18", "squeezenet"), "rtx-4090/tensorrt-10.0/int8"
    wide = hybridlat.predict(small, ada, store=store)
    assert wide.beside_share > 0.3 and "host" in {warning.code for warning in wide.warnings}
    assert ("beside the cells: starting" in str(half)) == (half.beside_share > 0.1)
    measured = hybridlat.predict(small, "h200/tensorrt-8.6/fp16", store=store)
    shown = " ".join(str(measured).split())
    assert "beside the cells: starting a run, or errors of the cells" in shown


def test_a_pattern_names_devices_or_targets_and_what_fits_nothing_is_refused(store: str) -> None:
    rows = hybridlat.recommend(NET, "l4/*/fp32", store=store)
    assert {"tensorrt", "torch"} <= {row.target.split("/")[1] for row in rows}
    for pattern, of in (
        ("Jetson*", "jetson"),
        ("GeForce RTX 409*", "rtx-409*"),
        ("L4/Torch", "l4/torch/*"),
    ):
        by_wording, by_name = (
            [row.target for row in hybridlat.recommend(NET, one, precision="FP16", store=store)]
            for one in (pattern, of)
        )
        assert by_wording == by_name
    jetsons = {row.target for row in hybridlat.recommend(NET, "jetson", store=store)}
    assert {"orin-nano/tensorrt/fp16", "thor-agx/tensorrt/int8", "tx2/tensorrt/fp16"} <= jetsons
    with pytest.raises(InputError, match="'gtx-1080' fits no target at bf16, but at fp32, int8"):
        hybridlat.recommend(NET, "gtx-1080", precision="bf16", store=store)
    for pattern in ("resnet34", "nets/b.ONNX"):
        with pytest.raises(InputError, match="recommend takes one: behind it stands a pattern"):
            hybridlat.recommend(NET, pattern, store=store)
    for pattern, precision in (("jetson-?", None), ("gtx-1080", "bf16")):
        with pytest.raises(InputError, match=r"fits no target.*`hybridlat targets`, no versions"):
            hybridlat.recommend(NET, pattern, precision=precision, store=store)


@pytest.mark.parametrize(("budget", "code"), [("5ms", 0), ("1.45ms", 3), ("1us", 1)])
def test_the_command_prints_a_table_and_writes_csv_and_page(
    budget: str, code: int, store: str, tmp_path: Path
) -> None:
    words = ("recommend", NET, "orin-nano", "--precision", "FP16", "--store", store)
    table, page = tmp_path / "t.csv", tmp_path / "p.html"
    options = ("--max-latency", budget, "--csv", str(table), "--html", str(page))
    out = call(*words, *options, code=code).out
    assert "orin-nano/tensorrt/fp16   15 W" in out and "1 " in out.splitlines()[-1]
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert row["verdict"] == {0: "within", 1: "over", 3: "unsure"}[code]
    assert float(row["power_w"]) == 15.0 and row["memory_verdict"] == "fits"
    shown = page.read_text()  # the table, and no page for each target
    assert all(words in shown for words in (">15 W<", ">rests on<", "1 target against"))
    assert "side by side</h1>" not in shown and "<section id" not in shown
    (body,) = call(*words, "--json").body
    assert body["power_w"] == 15.0 and body["verdict"] is None and "cells" not in body
    call(*words, "--fps", "30", "--max-latency", "1ms", code=2)
