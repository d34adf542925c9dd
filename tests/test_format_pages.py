"""The page on file formats and the changelog say what the code writes."""

import ast
import dataclasses
import re

import pytest

from hybridlat.board import journal, plan
from hybridlat.cli import doctor
from hybridlat.estimate import partition
from hybridlat.estimate.compose import composition
from hybridlat.evaluation.metrics import ResultRow, score
from hybridlat.graph import signature
from hybridlat.model import model_files
from hybridlat.model.family import shipped
from hybridlat.onnx_io import facts
from hybridlat.report import compare
from hybridlat.schema import estimate, measurement, structure
from hybridlat.store import database, packs
from tests.networks import ROOT
from tests.report.estimates import untrusted

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


def test_the_page_has_the_number_of_every_format() -> None:
    matches = re.findall(r"^\| ([a-z ]+) \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: int(number) for name, number in matches} == FORMATS


def test_the_changelog_begins_with_the_number_of_every_format() -> None:
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = log.partition("### Formats\n\n")[2].partition(".\n")[0]
    matches = {
        name: int(number)
        for name, number in re.findall(r"([a-z ]+) (\d+)", " ".join(newest.split()))
    }
    assert {name.strip(): number for name, number in matches.items()} == FORMATS


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
    ],
)  # fmt: skip
def test_every_field_is_named(what: str, names: list[str]) -> None:
    missing = [name for name in names if not re.search(rf"\b{name}\b", PAGE)]
    assert not missing, f"fields of a {what} that the page does not name"
