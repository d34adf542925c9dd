"""The black-box fusion test against engines whose fusion is known.

``python experiments/05_blackbox_fusion.py [--write] [onnxruntime] [openvino]``

Prints for every chain of operators what timing says of its last one and what the engine says when
it is asked. ``--write`` makes ``experiments/blackbox_fusion.md`` of it. Timings need a quiet
machine.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import blackbox

from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.engines.fusion import rewriter
from hybridlat.errors import HybridlatError

PAGE = ROOT / "experiments" / "blackbox_fusion.md"


def section(backend: Backend, findings: Sequence[blackbox.FusionTest]) -> list[str]:
    """An engine's chains, its score, and the rules that follow, as Markdown."""
    lines = [
        f"## {backend.target} ({backend.environment()['engine']})",
        "",
        "| chain | T₁ µs | T₂ µs | T₁₂ µs | saved | found | true |",
        "|---|---|---|---|---|---|---|",
    ]
    right = asked = 0
    for finding in findings:
        true = blackbox.truth(backend.lower, finding.case)
        asked += true is not None
        right += finding.fused == true
        wrong = true is not None and true != finding.fused
        lines.append(
            f"| {finding.case.label} | {finding.first_us:.1f} | {finding.second_us:.1f} "
            f"| {finding.together_us:.1f} | {finding.saved_share:.2f} | {said(finding.fused)} "
            f"| {said(true)}{' (wrong)' if wrong else ''} |"
        )
    table = blackbox.table(findings)
    whole = blackbox.Case(max((f.case.ops for f in findings if f.fused), key=len, default=()))
    names = ", ".join(rule.name.removeprefix("found: ") for rule in table)
    lines += [
        "",
        f"{right} of {asked} decisions are right. The table that follows has {len(table)} rules: "
        f"{names}.",
    ]
    if whole.ops:
        network = blackbox.framed(whole.ops, whole, *whole.maps[0])
        groups = rewriter.apply(network, table).kernels
        made = ["+".join(network.nodes[i].op for i in group) for group in groups if len(group) > 1]
        lines.append(f"Applied to {whole.label} it makes the kernel {', '.join(made)}.")
    return [*lines, ""]


def said(fused: bool | None) -> str:
    """One word for a decision; a dash where the engine had none to make."""
    return "–" if fused is None else "fused" if fused else "apart"


def page(sections: Sequence[str], command: str) -> str:
    """The published page."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return "\n".join([
        "# Fusion found by timing alone",
        "",
        f"Made by `{command}` on {day}. Machine: two-core AMD EPYC VM, no GPU; one thread, one "
        "core, nothing else running.",
        "",
        "T₁ is the chain without its last operator, T₂ that operator alone, T₁₂ both; each less "
        "the frame it stands in, the quickest of five builds, one of four in a row, summed over "
        "three sizes of feature maps. "
        "Saved is (T₁ + T₂ − T₁₂) / min(T₁, T₂); above 0.5 they are fused. True is what the engine "
        "says when it is asked; a dash: the chain before is not one kernel, so there is nothing to "
        "decide.",
        "",
        *sections,
    ])  # fmt: skip


def main() -> None:
    """Test each engine and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", default=["onnxruntime", "openvino"])
    parser.add_argument("--write", action="store_true", help="write experiments/blackbox_fusion.md")
    arguments = parser.parse_args()
    sections: list[str] = []
    for name in arguments.engines:
        try:
            backend = registry.open_backend(name)
        except HybridlatError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        sections += section(backend, blackbox.find(backend))
    text = page(sections, "python experiments/05_blackbox_fusion.py --write")
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
