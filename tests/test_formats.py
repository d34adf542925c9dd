"""What earlier versions wrote opens as they left it; the pages say what this one writes."""

import ast
import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from hybridlat.board import journal, plan
from hybridlat.cli import doctor
from hybridlat.errors import StoreError
from hybridlat.estimate import partition
from hybridlat.estimate.compose import composition
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import SHARED
from hybridlat.evaluation.metrics import ResultRow, score
from hybridlat.graph import signature
from hybridlat.graph.signature import hash_of
from hybridlat.measuring import plan_results
from hybridlat.measuring.measurer import MeasureReport
from hybridlat.model import model_files
from hybridlat.model.family import shipped
from hybridlat.model.model_files import load_model
from hybridlat.onnx_io import facts
from hybridlat.report import compare
from hybridlat.schema import estimate, measurement, structure
from hybridlat.schema.target import Target
from hybridlat.store import Store, database, packs
from hybridlat.store.cache import CacheSweep
from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.records import TargetStats
from hybridlat.store.store import ImportCounts, Removal
from hybridlat.training.onboarding import Onboarded
from hybridlat.training.train import Trained
from tests.model.rows import texts
from tests.networks import ROOT
from tests.report.estimates import untrusted
from tests.store.records import HASHES, OTHER, TARGET, TEXTS, filled

PAGE = "".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8")
    for page in ("contributing/file-formats.md", "reference/output.md")
)
FORMATS = {
    "signature": signature.SIGNATURE_FORMAT,
    "measurement record": measurement.RECORD_FORMAT,
    "pack": packs.PACK_FORMAT,
    "store": database.SCHEMA,
    "partition": partition.PARTITION_FORMAT,
    "file": facts.FACTS_FORMAT,
    "model": model_files.MODEL_FORMAT,
    "composition": composition.COMPOSITION_FORMAT,
    "family model": shipped.FORMAT,
    "plan": plan.PLAN_FORMAT,
    "journal": journal.FORMAT,
    "estimate": estimate.ESTIMATE_FORMAT,
    "checkup": doctor.CHECKUP_FORMAT,
    "comparison": compare.COMPARISON_FORMAT,
}


def test_the_page_and_the_changelog_have_the_number_of_every_format() -> None:
    matches = re.findall(r"^\| ([a-z ]+) \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: int(number) for name, number in matches} == FORMATS
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = log.partition("### Formats\n\n")[2].partition(".\n")[0]
    matches = re.findall(r"([a-z ]+) (\d+)", " ".join(newest.split()))
    assert {name.strip(): int(number) for name, number in matches} == FORMATS


def test_no_format_of_the_code_is_forgotten() -> None:
    constants = [
        f"{path.relative_to(ROOT)}: {target.id}"
        for path in sorted((ROOT / "hybridlat").rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and (target.id == "SCHEMA" or re.fullmatch(r"_?([A-Z]+_)?FORMAT", target.id))
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    ]
    assert len(constants) == len(FORMATS), constants


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("record", measurement.Measurement.__struct_fields__),
        ("breakdown", measurement.Breakdown.__struct_fields__),
        ("estimate", list(untrusted().to_json())),
        ("cell", [f.name for f in dataclasses.fields(structure.CellEstimate)]),
        ("comparison", list(compare.Comparison((untrusted(),)).to_json())),
        ("evaluation", list(ResultRow("t", "r", "m", score(()), None,
                                None, 0, 0).to_json())),
        ("composition", list(composition.Composition().to_json())),
        ("tables", list(database.TABLES)),
        *(
            (kind.__name__, [f.name for f in dataclasses.fields(kind)])
            for kind in (MeasureReport, Trained, Onboarded, ImportCounts, Removal, CacheSweep,
                         IntegrityProblem, TargetStats)
        ),
    ],
)  # fmt: skip
def test_every_field_is_named(what: str, names: list[str]) -> None:
    missing = [name for name in names if not re.search(rf"\b{name}\b", PAGE)]
    assert not missing, f"fields of a {what} that the page does not name"


GOLDEN = Path(__file__).parent / "golden"


def test_a_store_of_schema_2(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(GOLDEN / "store_schema_2.db", path)
    with Store(path) as store, filled(Store("sqlite://")) as made:
        assert store.check() == []
        assert store.targets() == [TARGET, OTHER]
        assert list(store.measurements()) == list(made.measurements())
        assert list(store.breakdowns()) == list(made.breakdowns())
        assert store.latencies(TARGET, HASHES) == made.latencies(TARGET, HASHES)
        assert store.signature_texts(HASHES) == TEXTS
        assert store.add(made.measurements()) == 0  # the same records have the same ids
        store.cache_put({"new/1": "1"})
        assert store.cache_sweep(max_bytes=0).dropped == 1


def test_a_composition_of_format_2() -> None:
    body = json.loads((GOLDEN / "composition_format_2.json").read_text())
    composition = Composition.from_json(body)
    assert (composition.overhead_us, composition.scale, composition.networks) == (12.5, 1.03, 17)
    assert composition.shared_share == SHARED
    assert composition.quantiles == ((0.2, 1.5), (0.4, 1.4))
    assert composition.levels == ((0.5, 0.4), (0.9, 1.1))
    assert (composition.wander_share, composition.shown_ratio) == (0.02, 1.05)
    assert Composition.from_json(composition.to_json()) == composition


def test_a_model_of_format_2() -> None:
    model = load_model(GOLDEN / "model_format_2")
    answers = model.predict(texts(3, seed=9))
    assert [a.latency_us for a in answers] == pytest.approx([138.464, 37.6912, 233.262], rel=1e-4)
    assert answers[0].interval_us == pytest.approx((27.5215, 894.494), rel=1e-4)
    assert model.card["date"] == "2026-01-01"


def test_a_plan_of_format_2_and_its_results() -> None:
    """Its models and manifest are checked by hash; results are one journal of one board."""
    results = plan_results.read_results(GOLDEN / "plan_format_2")
    records, (breakdown,) = results.measurements, results.breakdowns
    assert {r.signature for r in records} <= set(results.signatures)
    assert {r.target for r in records} == {Target.parse("board/fake-1.0/fp32")}
    latencies = {(r.kind, r.labels["network"], round(r.latency_us or 0)) for r in records}
    cells = {("cell", "small8", us) for us in (9, 5, 0, 3)}
    assert latencies == {("network", "small8", 16)} | cells
    assert sum(count for _, count in breakdown.cells) == 4


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (
            "board",
            {"board": {"engine": "fake", "engine_version": "2.0"}},
            "boards of two kinds, by",
        ),
        ("visit", {"reference_us": 99.0}, "1 visits are there twice, with other samples"),
        ("visit", {}, ""),
    ],
)
def test_a_journal_with_a_line_that_contradicts_it_is_refused(
    tmp_path: Path, kind: str, change: dict[str, object], words: str
) -> None:
    shutil.copytree(GOLDEN / "plan_format_2", tmp_path, dirs_exist_ok=True)
    results = tmp_path / "results.jsonl"
    lines = list(map(json.loads, results.read_text().splitlines()))
    copied = next(line for line in lines if line["kind"] == kind) | change
    results.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, copied]))
    if not words:
        assert plan_results.read_results(tmp_path).measurements
        return
    with pytest.raises(StoreError, match=words):
        plan_results.read_results(tmp_path)


def test_a_plan_with_signatures_of_another_format_is_refused(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "plan_format_2", tmp_path, dirs_exist_ok=True)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    text = "hybridlat-signature 1\n"
    manifest["signatures"] = {hash_of(text): text}
    new = plan.name_of(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"plan": new}))
    results = tmp_path / "results.jsonl"
    results.write_text(results.read_text().replace(manifest["plan"], new))
    with pytest.raises(StoreError, match="another version of hybridlat: plan again"):
        plan_results.read_results(tmp_path)
