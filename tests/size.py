"""What the project's size is: ``make size`` prints it, and tests hold the imports by it.

Standard library only. Imports count wherever they stand: in functions and for types alone too.
"""

import ast
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "hybridlat"
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


@functools.cache
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


def names_bound(path: Path) -> Iterator[str]:
    """The names that a file gives: variables, parameters, fields, functions and classes."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


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


def _count(path: Path, words: bool = False) -> int:
    text = path.read_text(encoding="utf-8")
    return len(text.split() if words else text.splitlines())


def main() -> None:
    """Print the counts."""
    files = modules(ROOT / PACKAGE)
    rows: dict[str, list[Path]] = {}
    for path in files.values():
        room = path.relative_to(ROOT / PACKAGE).parts[0]
        rows.setdefault("(top)" if room.endswith(".py") else room, []).append(path)
    rows = {room: rows[room] for room in sorted(rows)} | {PACKAGE: list(files.values())}
    rows |= {folder: list((ROOT / folder).rglob("*.py")) for folder in ("tests", "experiments")}
    print(f"{'room':14}{'lines':>8}{'modules':>9}")
    for room, paths in rows.items():
        print(f"{room:14}{sum(map(_count, paths)):8,}{len(paths):9}")
    graph = imports(files)
    print(f"\nimport circle: {', '.join(circle(graph)) or 'none'}")
    importers = Counter(target for targets in graph.values() for target in targets)
    single = [n for n in files if importers[n] == 1 and files[n].name != "__init__.py"]
    print(f"modules with one importer: {len(single)}")
    longest = max(files.values(), key=_count)
    print(f"longest file: {longest.relative_to(ROOT)} {_count(longest)}")
    inner = set((ROOT / "docs" / "contributing").glob("*.md"))
    pages = {
        f"README.md ({_count(ROOT / 'README.md')} lines)": {ROOT / "README.md"},
        "docs, for users": set((ROOT / "docs").rglob("*.md")) - inner,
        "docs, for contributors": inner,
        "experiments": set((ROOT / "experiments").rglob("*.md")),
    }
    for title, members in pages.items():
        counts = [_count(page, words=True) for page in members]
        print(f"{title}: {sum(counts):,} words on {len(counts)} pages, {max(counts):,} on one")


if __name__ == "__main__":
    main()
