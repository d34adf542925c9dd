"""No module imports itself in a circle, and the import contract catches what it says it catches.

A contract whose modules were renamed, or whose exceptions grew too wide, is kept for ever and means
nothing. So each contract of ``pyproject.toml`` is broken here once, on purpose, in a copy of the
package: one import that it forbids is added, and exactly that contract must be the one broken.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.networks import ROOT
from tests.size import circle, foreign_privates, imports, modules, names_bound, tree_of
from tests.size import main as count_sizes

CONTRACTS: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "pyproject.toml").read_text(encoding="utf-8")
)["tool"]["importlinter"]["contracts"]
LAYERS = "Rooms: each may use those below it; siblings do not know each other"

PARTICIPLES = frozenset({"told", "asked", "found", "said", "given", "wanted"})
MOST_PARTICIPLES = 2
"""Names that hold one of them today: none comes to them, and those that go lower it."""

# Contract -> the module that gets a forbidden import, and that import.
OFFENCES = {
    LAYERS: ("measuring/schedule.py", "hybridlat.api"),
    "Boards have the standard library alone": ("board/visits.py", "hybridlat.errors"),
    "Values are pure: no engine, file format, database or clock": ("graph/cells.py", "time"),
    "The steps of an estimate: each may use those below it":
        ("estimate/lookup/whole_networks.py", "hybridlat.estimate.compose.composition"),
    "Posterior, gate and composition are arithmetic on what they are given":
        ("estimate/gate.py", "os"),
    "Reports show what they are given": ("report/units.py", "hybridlat.store.database"),
    "Only onnx_io imports onnx": ("engines/host.py", "onnx"),
    "Only the tracker imports mlflow": ("evaluation/metrics.py", "mlflow"),
    "Only the store speaks SQL": ("training/train.py", "sqlite3"),
    "Only models import xgboost and scikit-learn": ("training/train.py", "xgboost"),
    "Only the command line imports click": ("api/predictor.py", "click"),
}  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package and of its contract, to be spoilt."""
    shutil.copytree(
        ROOT / "hybridlat", tmp_path / "hybridlat", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def lint(tree: Path) -> tuple[int, set[str], str]:
    """Exit code, the contracts that are broken, and all that was said."""
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()",
         "--no-cache"],
        cwd=tree, env={"PYTHONPATH": str(tree), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    broken = set(re.findall(r"^(.+) BROKEN\b", result.stdout, re.MULTILINE))
    return result.returncode, broken, result.stdout + result.stderr


def test_every_contract_has_an_offence_here() -> None:
    assert {contract["name"] for contract in CONTRACTS} == OFFENCES.keys()


@pytest.mark.parametrize("name", OFFENCES)
def test_a_forbidden_import_breaks_its_contract_and_no_other(name: str, tree: Path) -> None:
    module, forbidden = OFFENCES[name]
    with (tree / "hybridlat" / module).open("a", encoding="utf-8") as file:
        file.write(f"\nimport {forbidden}\n")
    code, broken, said = lint(tree)
    assert (code, broken) == (1, {name}), said


def test_a_new_room_must_be_given_its_place(tree: Path) -> None:
    (tree / "hybridlat" / "attic.py").write_text('"""Things that fit nowhere."""\n')
    code, _, said = lint(tree)
    assert code != 0, said
    assert "attic" in said


def test_no_import_circle_and_no_private_name_of_another_module() -> None:
    """Imports in functions and for types alone count too."""
    files = modules(ROOT / "hybridlat")
    assert circle(imports(files)) == []
    privates = {name: foreign_privates(path, files) for name, path in files.items()}
    assert {name: taken for name, taken in privates.items() if taken} == {}


def test_no_room_names_a_module_above_it() -> None:
    """An import by name is one that the contracts cannot see."""
    layers = next(contract for contract in CONTRACTS if contract["name"] == LAYERS)["layers"]
    height = {room: -n for n, line in enumerate(layers) for room in line.split(" | ")}
    upwards = [
        f"{name} -> {node.value}"
        for name, path in modules(ROOT / "hybridlat").items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (match := re.fullmatch(r"hybridlat\.(\w+)[\w.:]*", node.value))
        if height.get(match[1], -99) > height.get(f"{name}.".split(".")[1], 0)
    ]
    assert upwards == []


def test_names_are_nouns_and_no_participles() -> None:
    """CONTRIBUTING, style 3; ``tolerance_given`` is a field of documents."""
    counts = {
        name: sum(not PARTICIPLES.isdisjoint(_words(bound)) for bound in names_bound(path))
        for name, path in modules(ROOT / "hybridlat").items()
    }
    assert sum(counts.values()) <= MOST_PARTICIPLES, {n: c for n, c in counts.items() if c}


def _words(name: str) -> list[str]:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")


def test_the_count_of_sizes_runs(capsys: pytest.CaptureFixture[str]) -> None:
    count_sizes()
    shown = capsys.readouterr().out
    assert re.search(r"^onnx_io +\d,\d{3} +\d+$", shown, re.MULTILINE), shown
    assert "import circle: none" in shown
