"""What the project's size is: ``make size`` prints it, and tests hold the imports by it.

Standard library only. Imports count wherever they stand: in functions and for types alone too.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "hybridlat"
MOST_SHOWN = 5
_OF_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})
Graph = Mapping[str, frozenset[str]]


def modules(package: Path) -> dict[str, Path]:
    """The files of a package by the names of their modules."""
    named: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports(files: Mapping[str, Path]) -> Graph:
    """The modules of the package that each of them imports."""
    return {
        name: frozenset(target for target, _ in _imported(tree_of(path), files)) - {name}
        for name, path in files.items()
    }


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _imported(tree: ast.Module, files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Each module of the package that a file imports, and the name that it takes from there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module in files:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner, "") if inner in files else (str(node.module), alias.name)


def circle(graph: Graph) -> list[str]:
    """Modules that import each other in a circle; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return sorted(set(error.args[1]))
    return []


def foreign_privates(path: Path, files: Mapping[str, Path]) -> set[str]:
    """Names with an underscore that a file takes from other modules of the package.

    Imported ones, and attributes of values (not of ``self``) that the file itself does not define.
    """
    tree = tree_of(path)
    used = {name for _, name in _imported(tree, files) if _is_private(name)}
    own: set[str] = set()
    others: set[str] = set()  # modules of other packages
    accesses: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Import):
            others.update((a.asname or a.name).partition(".")[0] for a in node.names)
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner in ("self", "cls"):
                own.add(node.attr)
            else:
                accesses.append((owner, node.attr))
    used.update(
        name
        for owner, name in accesses
        if _is_private(name) and name not in own and owner not in others
    )
    return used - _OF_TUPLES


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def importers(graph: Graph) -> Counter[str]:
    """How many modules import each."""
    return Counter(target for targets in graph.values() for target in targets)


def words(path: Path) -> int:
    """Words of a page."""
    return len(path.read_text(encoding="utf-8").split())


def _lines(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _pages(title: str, paths: list[Path]) -> str:
    counts = {path: words(path) for path in paths}
    longest = max(counts, key=counts.__getitem__)
    return (
        f"{title}: {sum(counts.values()):,} words on {len(counts)} pages, "
        f"most on {longest.relative_to(ROOT)} ({counts[longest]:,})"
    )


def main() -> int:
    """Print the counts."""
    files = modules(ROOT / PACKAGE)
    rooms: dict[str, list[Path]] = {}
    for path in files.values():
        first = path.relative_to(ROOT / PACKAGE).parts[0]
        rooms.setdefault(first if not first.endswith(".py") else "(top)", []).append(path)
    rows = [(room, paths) for room, paths in sorted(rooms.items())]
    rows.append((PACKAGE, list(files.values())))
    rows += [
        (folder, [p for p in sorted((ROOT / folder).rglob("*.py")) if "__pycache__" not in p.parts])
        for folder in ("tests", "experiments")
    ]
    print(f"{'room':14}{'lines':>8}{'modules':>9}")
    for room, paths in rows:
        print(f"{room:14}{_lines(paths):8,}{len(paths):9}")
    graph = imports(files)
    print(f"\nimport circle: {', '.join(circle(graph)) or 'none'}")
    single = [n for n, count in importers(graph).items() if count == 1 and n in files]
    single = [n for n in single if files[n].name != "__init__.py"]
    print(f"modules with one importer: {len(single)}")
    longest = sorted(files.values(), key=lambda path: -_lines([path]))[:MOST_SHOWN]
    print("longest files: " + ", ".join(f"{p.relative_to(ROOT)} {_lines([p])}" for p in longest))
    privates = {n: foreign_privates(path, files) for n, path in files.items()}
    print(f"names with an underscore of other modules: {sum(map(len, privates.values()))}")
    print(_pages("README", [ROOT / "README.md"]))
    print(_pages("docs", sorted((ROOT / "docs").rglob("*.md"))))
    print(_pages("experiments", sorted((ROOT / "experiments").rglob("*.md"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
