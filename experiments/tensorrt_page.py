"""The published page of the rules of TensorRT against its compiler, as Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from experiments.tensorrt_networks import JUDGING, PRECISIONS, SHAPING, UNSEEN, family
from experiments.tensorrt_verdicts import NAMES_ONLY, Kind, Verdict

SHAPING_HALF, OTHER_HALF = "half that shaped the rules", "the other half"
PARTS = (SHAPING_HALF, OTHER_HALF, SHAPING, JUDGING, UNSEEN)
TOLD_KINDS = 10


def figures(verdicts: Sequence[Verdict]) -> list[str]:
    """Agreement of each part in each precision, and how far kernels and bytes are off."""
    lines = [
        "| networks | precision | n | mean of networks % | all operators % | worst % "
        "| kernels off % | bytes off % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [(part, lambda v, p=part: v.part == p) for part in PARTS]
    both = (f"{JUDGING}, with {UNSEEN}", lambda v: v.part in (JUDGING, UNSEEN))
    for part, belongs in [*rows[:4], *([both] if _has(verdicts, UNSEEN) else []), *rows[4:]]:
        for precision in PRECISIONS:
            chosen = [v for v in verdicts if v.precision == precision and belongs(v)]
            if chosen:
                pooled = sum(v.agreement * v.nodes for v in chosen) / sum(v.nodes for v in chosen)
                lines.append(
                    f"| {part} | {precision} | {len(chosen)} | {_mean(chosen, _agreement)} "
                    f"| {100 * pooled:.1f} | {100 * min(map(_agreement, chosen)):.1f} "
                    f"| {_mean(chosen, lambda v: abs(v.kernels))} "
                    f"| {_mean(chosen, lambda v: abs(v.bytes))} |"
                )
    return lines


def families(verdicts: Iterable[Verdict]) -> list[str]:
    """Agreement of the families of the judging third that differ anywhere, the worst first."""
    grouped: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.part in (JUDGING, UNSEEN):
            grouped[family(verdict.name)].append(verdict)
    ordered = sorted(grouped.items(), key=lambda item: statistics.fmean(map(_agreement, item[1])))
    lines = ["| family | networks | FP32 % | FP16 % |", "|---|---|---|---|"]
    for name, chosen in ordered:
        if min(map(_agreement, chosen)) == 1:
            continue
        by = [[v for v in chosen if v.precision == p] for p in PRECISIONS]
        cells = " | ".join(_mean(part, _agreement) if part else "" for part in by)
        lines.append(f"| {name} | {len({v.name for v in chosen})} | {cells} |")
    return lines


def kinds_table(verdicts: Iterable[Verdict], parts: Sequence[str], most: int = 0) -> list[str]:
    """Kinds of disagreement of some parts: what they cost, how often they were met, and where.

    Ordered by part, then by the operators concerned; ``most`` of them, or all.
    """
    grouped: dict[tuple[str, str, str], list[tuple[Kind, str]]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.part in parts:
            for kind in verdict.kinds:
                grouped[verdict.part, kind.rules, kind.compiler].append((kind, verdict.name))
    ordered = sorted(
        grouped.items(), key=lambda item: (parts.index(item[0][0]), -len(item[1]), item[0])
    )
    lines = [
        "| part | rules | compiler | costs | bytes of the network % | count | networks |",
        "|---|---|---|---|---|---|---|",
    ]
    for (part, rules, compiler), met in ordered[: most or None]:
        sides = [f"`{side}`".replace("|", "\\|") for side in (rules, compiler)]
        names = sorted({name for _, name in met})
        told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        share = 100 * statistics.fmean(kind.bytes_share for kind, _ in met)
        lines.append(
            f"| {part} | {sides[0]} | {sides[1]} | {met[0][0].costs} | {share:+.2f} "
            f"| {len(met)} | {told} |"
        )
    return lines


def costs(verdicts: Iterable[Verdict], parts: Sequence[str]) -> list[str]:
    """How many disagreements cost a kernel or bytes, and how many are names only."""
    counts: dict[str, list[float]] = {
        NAMES_ONLY: [], "other bytes": [], "kernels more": [], "kernels less": [],
    }  # fmt: skip
    for verdict in verdicts:
        for kind in verdict.kinds if verdict.part in parts else ():
            direction = "kernels more" if kind.kernels > 0 else "kernels less"
            counts[direction if kind.kernels else kind.costs].append(abs(kind.bytes_share))
    total = sum(map(len, counts.values())) or 1
    return [
        "| disagreement | count | share % | mean of the network's bytes % |",
        "|---|---|---|---|",
        *(
            f"| {name} | {len(met)} | {100 * len(met) / total:.0f} "
            f"| {100 * statistics.fmean(met) if met else 0:.2f} |"
            for name, met in counts.items()
        ),
    ]


def networks(verdicts: Iterable[Verdict]) -> list[str]:
    """The networks of both halves that differ anywhere."""
    grouped: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        if verdict.part in (SHAPING_HALF, OTHER_HALF):
            grouped[verdict.name][verdict.precision] = verdict
    return [
        "| network | shaped the rules | operators | FP32 % | FP16 % |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {'yes' if by['fp32'].part == SHAPING_HALF else 'no'} | {by['fp32'].nodes} "
            f"| {100 * by['fp32'].agreement:.1f} | {100 * by['fp16'].agreement:.1f} |"
            for name, by in grouped.items()
            if min(map(_agreement, by.values())) < 1
        ),
    ]


def page(verdicts: Sequence[Verdict], truth: str, command: str, day: str) -> str:
    """The whole page."""
    asked = len({v.name for v in verdicts if v.part in (SHAPING, JUDGING, UNSEEN)})
    folder = [
        f"A folder of further networks ({asked} that the compiler was asked for and took) is split "
        "by the hash of their names, further sizes and deployed forms with the network they belong "
        "to; no network "
        "of `data/nets` judges. Their disagreements are listed for the two thirds that shape, and "
        "were never looked at for the third that judges: of it, these figures are all there is.",
        "",
        "## Families of the third that judges, but for those that agree wholly",
        "",
        *families(verdicts),
        "",
    ] if asked else []  # fmt: skip
    shaping = (SHAPING_HALF, SHAPING)
    return "\n".join([
        "# The rules of TensorRT against TensorRT-RTX's compiler",
        "",
        f"Made by `{command}` on {day}. Machine: two-core AMD EPYC VM, no GPU. Truth: {truth}, "
        "batch 1, SM of no particular GPU, no auxiliary streams.",
        "",
        "Agreement is the share of a network's operators that stand in the same kernel with the "
        "same others, or are removed, in both. Kernels and bytes off: how far the rules' number of "
        "kernels, and the bytes that they read and write, are from the compiler's, as the mean of "
        "absolute shares over networks. One half of `data/nets` shaped the rules "
        "(`tests/golden/rtx_layers/halves.json`), the other did not; relatives of it are in the "
        "folder that shaped them later. The compiler stands in for classic TensorRT's grouping, "
        "which has not been seen here.",
        "",
        *figures(verdicts),
        "",
        *folder,
        "## What disagreements cost",
        "",
        "Of the networks that shaped the rules. Names only: as many kernels that move the same "
        "bytes, as where a view is told with one kernel or with none.",
        "",
        *costs(verdicts, shaping),
        "",
        "## Kinds of disagreement",
        "",
        "Kernels are set apart by `|`. Counted once for each connected set of operators, in both "
        "precisions. The rules' bytes less the compiler's, as a share of the network's.",
        "",
        *kinds_table(verdicts, (SHAPING_HALF, OTHER_HALF)),
        "",
        *([f"The {TOLD_KINDS} most frequent of the two thirds that shape:", "",
           *kinds_table(verdicts, (SHAPING,), TOLD_KINDS), ""] if asked else []),
        "## Networks of data/nets that differ",
        "",
        *networks(verdicts),
        "",
    ])  # fmt: skip


def _has(verdicts: Iterable[Verdict], part: str) -> bool:
    return any(v.part == part for v in verdicts)


def _agreement(verdict: Verdict) -> float:
    return verdict.agreement


def _mean(verdicts: Iterable[Verdict], of: Callable[[Verdict], float]) -> str:
    return f"{100 * statistics.fmean(map(of, verdicts)):.1f}"
