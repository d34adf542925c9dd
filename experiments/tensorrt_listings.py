"""The rules of classic TensorRT held against published listings of engines' layers.

    python experiments/tensorrt_listings.py [--data ../shared/data/trt_listings] [--all]
        [--page yolox_s_fp16]

``--data`` holds ``listings.parquet`` (a row for each layer, with the operators of the file in it,
or the Concat that a copy fills), ``sources.csv`` and ``nets``. Prints the table of
experiments/tensorrt_listings.md: the share of operators in identical groups, a Concat with a copied
part being a group of its own. Left out are views, what Myelin compiled without names, and what
neither side runs. Then every kind of disagreement; ``--all``: each one by name. ``--page`` prints
one listing kernel by kernel instead: experiments/yolo_on_orin.md.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat.engines import registry
from hybridlat.graph.network import Network
from hybridlat.graph.operators import VIEWS
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

DATA = ROOT.parent / "shared/data/trt_listings"
Group = frozenset[int]


@dataclass(frozen=True)
class Verdict:
    """What one listing says of the rules; ``ours`` and ``theirs`` by operator, none: not run."""

    network: Network
    ours: dict[int, Group]
    theirs: dict[int, Group]
    copies: tuple[int, int]
    """Copies of parts of Concats: those of the rules, and those listed for a known Concat."""

    @property
    def compared(self) -> list[int]:
        return sorted({*self.ours, *self.theirs})

    @property
    def differing(self) -> list[int]:
        return [i for i in self.compared if self.ours.get(i) != self.theirs.get(i)]

    @property
    def agreement(self) -> float:
        return 1 - len(self.differing) / len(self.compared)

    def kinds(self, name: Callable[[int], str]) -> Counter[tuple[str, str]]:
        """Disagreements as (rules, listing), operators written by ``name``."""
        counts: Counter[tuple[str, str]] = Counter()
        seen: set[tuple[Group | None, Group | None]] = set()
        for i in self.differing:
            sides = self.ours.get(i), self.theirs.get(i)
            if sides not in seen:
                seen.add(sides)
                ours, theirs = ("+".join(map(name, sorted(side or ()))) for side in sides)
                counts[ours or f"no {name(i)}", theirs or f"no {name(i)}"] += 1
        return counts


def verdict(network: Network, target: Target, rows: pd.DataFrame, left_out: list[str]) -> Verdict:
    """The rules for a target beside the rows of one listing."""
    place = {node.name: i for i, node in enumerate(network.nodes)}
    aside = {i for i, node in enumerate(network.nodes) if node.op in VIEWS}
    aside |= {place[name] for name in left_out}

    def by_operator(groups: list[set[int]]) -> dict[int, Group]:
        return {i: frozenset(held - aside) for held in groups for i in held - aside}

    layers = [{place[name] for name in names} for names in rows.nodes]
    filled = [place[name] for name in rows.concat.dropna()]
    lowered = registry.lower(network, target)
    theirs = by_operator([*layers, *({concat} for concat in filled)])
    copies = [kernel for kernel in lowered.network.nodes if kernel.op == "Concat"]
    ours = by_operator([set(origins) for origins in lowered.origins])
    return Verdict(network, ours, theirs, (len(copies), len(filled)))


def verdicts(folder: Path) -> dict[str, Verdict]:
    """Of each listing in a folder, by its name."""
    sources = pd.read_csv(folder / "sources.csv").set_index("id")
    listings = pd.read_parquet(folder / "listings.parquet")
    made = {}
    for name, rows in listings.groupby("listing", sort=False):
        source = sources.loc[name]
        network = read_network(folder / "nets" / f"{source.onnx}.onnx")
        target = Target.parse(source.target_compared)
        made[str(name)] = verdict(network, target, rows, json.loads(source.excluded_nodes))
    return made


def table(answers: dict[str, Verdict]) -> list[str]:
    """One line for each listing, and the mean."""
    head = "| listing | operators | equal % | copies listed | copies by rules |"
    lines = [head, "|---|---|---|---|---|"]
    for name, one in answers.items():
        ours, listed = one.copies
        counts = f"{len(one.compared)} | {100 * one.agreement:.1f} | {listed} | {ours}"
        lines.append(f"| {name} | {counts} |")
    mean = sum(one.agreement for one in answers.values()) / len(answers)
    return [*lines, f"| mean | | {100 * mean:.1f} | | |"]


def page(one: Verdict) -> list[str]:
    """One line for each kernel of the rules, in order, and what the engine has instead."""

    def text(group: Group) -> str:
        nodes = [one.network.nodes[i] for i in sorted(group)]
        prefix = nodes[0].name.rpartition("/")[0].removeprefix("/")
        return f"`{'+'.join(node.op for node in nodes)}` | {prefix}"

    lines = ["| | kernel by the rules | module | in the engine |", "|--:|---|---|---|"]
    for number, group in enumerate(dict.fromkeys(one.ours.values()), 1):
        theirs = {one.theirs.get(i, frozenset()) for i in group} - {group}
        instead = " and ".join(text(each).split(" | ")[0] if each else "none" for each in theirs)
        lines.append(f"| {number} | {text(group)} | {instead or 'the same'} |")
    return lines


def main() -> None:
    """Judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--all", action="store_true", help="every disagreement by name")
    parser.add_argument("--page", metavar="LISTING", help="one listing kernel by kernel")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"skipped: there is no {arguments.data}, which the project does not redistribute")
        return
    answers = verdicts(arguments.data)
    if arguments.page:
        print(*page(answers[arguments.page]), sep="\n")
        return
    print(
        *table(answers), "", "| listing | rules | engine | count |", "|---|---|---|---|", sep="\n"
    )
    for listing, one in answers.items():
        nodes = one.network.nodes
        of = (lambda i, n=nodes: n[i].name) if arguments.all else (lambda i, n=nodes: n[i].op)
        for (ours, theirs), count in one.kinds(of).most_common():
            print(f"| {listing} | `{ours}` | `{theirs}` | {count} |")


if __name__ == "__main__":
    main()
