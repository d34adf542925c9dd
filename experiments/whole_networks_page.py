"""experiments/gpus.md, its picture and its runs in MLflow, from the lines of whole_networks.csv."""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binom

from experiments.pictures import picture, text
from experiments.whole_networks_data import FAMILIES, family_of
from experiments.whole_networks_lines import Line
from hybridlat.evaluation import tracking
from hybridlat.evaluation.family_laws import HELD_OUT
from hybridlat.evaluation.leaderboard import number_text
from hybridlat.evaluation.metrics import OWN
from hybridlat.report.table import Table, titled

FOLDER = Path(__file__).parent
PAGE, FIGURES = FOLDER / "gpus.md", FOLDER / "figures"
LARGE = 20
"""Latencies of a table that other methods can learn from, and that has a row on the page."""
CHOSEN = re.compile(
    r"v100/paddle-tensorrt-|t4/paddle-tensorrt-2020/|t4/tensorrt/|t4/tensorrt-7|(jetson|xavier|orin)-|"
    r"rtx-3090/torch-2\.1|rtx-4090/torch-(compile-)?2\.4|v100/torch-ngc"
)
"""Tables that sizes, shares or Jetsons' sheets were chosen on; all others are reported alone."""
REGIMES = {
    "unseen": OWN, "unseen_family": OWN, "zero_shot": OWN, "known@1": OWN, "few@10": "chosen"
}  # fmt: skip
"""What a table is judged in, and the method of its line."""
_IN_FILE = ("90 % holds", "half-width", "noise", *(f"best, {regime}" for regime in HELD_OUT))
"""Columns that the page leaves to the file of all targets."""
BETTER = 0.9
"""Of the best other method's error: at most this is better."""
CAME_TO = (
    "device left out, TensorRT: mean of medians, %", "worst device", "90 % holds, half-width",
    "one known, TensorRT: mean of medians, %", "worst device ", "90 % holds, half-width ",
    "one constant by all latencies of a table: mean of medians, %",
    "0.9 of the best other or less: `unseen`", "… `unseen_family`", "`unseen` holds 85 to 97 %",
    "… expected of exact 90 % intervals",
)  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """All lines of one target; ``latencies`` are the rows of its table."""

    target: str
    lines: Sequence[Line]

    @property
    def latencies(self) -> int:
        return max(one.latencies for one in self.lines)

    def own(self, regime: str) -> Line | None:
        """Our line in a regime, or that of its noise; None where it was not judged."""
        method = "noise" if regime == "repeated" else REGIMES.get(regime, OWN)
        return next((o for o in self.lines if (o.regime, o.method) == (regime, method)), None)

    def best(self, regime: str) -> Line | None:
        """The other method with the least error."""
        others = [o for o in self.lines if o.regime == regime and o.method != OWN]
        return min(others, key=lambda other: other.rmspe, default=None)


def judged(lines: Sequence[Line]) -> list[Judged]:
    """By target, in the order of the families."""
    order = list(FAMILIES)
    targets = sorted({one.target for one in lines}, key=lambda t: (order.index(family_of(t)), t))
    return [Judged(target, [o for o in lines if o.target == target]) for target in targets]


def write_page(lines: Sequence[Line]) -> None:
    """The page below its heading *Figures*, the table of all targets, and the picture."""
    targets = judged(lines)
    (FIGURES / "gpus.csv").write_text(table(targets).csv(), encoding="utf-8")
    (FIGURES / "gpus.svg").write_text(drawn(targets), encoding="utf-8")
    head, mark, _ = PAGE.read_text(encoding="utf-8").partition("## Figures\n")
    large = table([one for one in targets if one.latencies >= LARGE]).without(
        dict.fromkeys(_IN_FILE, True)
    )
    tables = f"{about(lines)}\n\n{goals(targets).markdown()}\n\n{large.markdown()}\n"
    PAGE.write_text(f"{head}{mark}\n{tables}", encoding="utf-8")


def about(lines: Sequence[Line]) -> str:
    """How the folds of these figures were made, and what each method has learned from."""
    counts = {
        name: (sum(one.latencies for one in own), len(own))
        for name in FAMILIES
        if (own := [one for one in judged(lines) if family_of(one.target) == name])
    }
    learned = ", ".join(f"{n:,} of {many} tables ({name})" for name, (n, many) in counts.items())
    return (
        f"{folds_text(lines)} Other methods learn from the table that they are judged on, each "
        f"without the fold in question; hybridlat from all latencies of its family: {learned}."
    )


def folds_text(lines: Sequence[Line]) -> str:
    """What was held out, and how often: of all lines, the fewest draws."""
    own = [one for one in lines if one.regime in HELD_OUT and one.method == OWN]
    draws = min((one.draws for one in own), default=1)
    if any(one.known_kernels is None for one in own):
        return (
            "Folds are one draw by architectures' names alone: networks of the same kernels "
            "under other names may have been learned from."
        )
    known = statistics.fmean(one.known_kernels or 0 for one in own if one.regime == "unseen")
    drawn = f"means of {draws} draws, ± their standard deviation" if draws > 1 else "of one draw"
    return (
        f"Figures of folds are {drawn}. Twins, of which one has over nine tenths of its time in "
        f"kernels of the other, are held out together; in the mean {known:.0f} % of a table's rows "
        "have that in kernels of several others."
    )


def table(targets: Sequence[Judged]) -> Table:
    """A row for every target: RMSPE and median, intervals, other methods."""
    with_bounds = ("unseen", "zero_shot", "known@1")
    rows = []
    for one in targets:
        lines = {regime: one.own(regime) for regime in (*REGIMES, "repeated")}
        unseen = lines["unseen"]
        errors = [f"{rmspe_text(o)}/{o.median:.1f}" if o else "–" for o in lines.values()]
        held = [
            "/".join(number_text(getattr(lines[r], name, None), 0) for r in with_bounds)
            for name in ("coverage", "half_width")
        ]
        best = [one.best(regime) for regime in HELD_OUT]
        theirs = "/".join(number_text(o and o.rmspe, 1) for o in best)
        others = [theirs, *(o.method if o else "" for o in best)]
        size = f"{one.latencies}/{unseen.networks}" if unseen else str(one.latencies)
        marked = one.target + "*" * bool(CHOSEN.match(one.target))
        rows.append([marked, size, *errors[:-1], *held, errors[-1], *others])
    titles = titled("rows/networks", *REGIMES, *_IN_FILE[:3], "best others", right=True)
    return Table([*titled("target"), *titles, *titled(*_IN_FILE[3:])], rows)


def rmspe_text(one: Line) -> str:
    """In percent, with its standard deviation over draws where there are several."""
    return f"{one.rmspe:.1f}" + ("" if one.rmspe_sd is None else f"±{one.rmspe_sd:.1f}")


def goals(targets: Sequence[Judged]) -> Table:
    """What all tables come to, those that sizes were chosen on, and the others."""
    chosen = [one for one in targets if CHOSEN.match(one.target)]
    others = [one for one in targets if one not in chosen]
    rows = list(zip(CAME_TO, *map(_came_to, (targets, chosen, others)), strict=True))
    return Table([*titled(""), *titled("all tables", "chosen on", "others", right=True)], rows)


def _came_to(targets: Sequence[Judged]) -> list[str]:
    found = []
    for regime in ("zero_shot", "known@1"):
        lines = _under_tensorrt(targets, regime)
        devices: dict[str, list[float]] = {}
        for one in lines:
            devices.setdefault(one.target.split("/")[0], []).append(max(one.median, 0.1))
        means = {name: statistics.geometric_mean(own) for name, own in devices.items()}
        worst = max(means, key=means.__getitem__, default="")
        held = [one for one in lines if one.half_width is not None]
        holds, wide = [one.coverage or 0 for one in held], [one.half_width or 0 for one in held]
        found += [
            _mean_of_medians(lines),
            f"{means[worst]:.1f} {worst}" if lines else "–",
            f"{statistics.fmean(holds):.0f}, ±{statistics.median(wide):.0f}" if held else "–",
        ]
    found.append(_mean_of_medians(_under_tensorrt(targets, "one_constant")))
    for regime in HELD_OUT:
        pairs = [(one.own(regime), one.best(regime)) for one in targets]
        better = [own.rmspe <= BETTER * best.rmspe for own, best in pairs if own and best]
        found.append(f"{sum(better)} of {len(better)}")
    large = [own for one in targets if one.latencies >= LARGE and (own := one.own("unseen"))]
    within = sum(85 <= (one.coverage or 0) <= 97 for one in large)
    by_chance = sum(_chance_within(one.networks, 0.85, 0.97) for one in large)
    return [*found, f"{within} of {len(large)}", f"{by_chance:.1f}"]


def _chance_within(networks: int, least: float, most: float) -> float:
    """How often intervals that hold 90 % hold a share between two of so many networks."""
    counts = math.ceil(least * networks) - 1, math.floor(most * networks)
    low, high = binom.cdf(counts, networks, 0.9)
    return float(high - low)


def _under_tensorrt(targets: Sequence[Judged], regime: str) -> list[Line]:
    lines = [own for one in targets if (own := one.own(regime)) is not None]
    return [one for one in lines if family_of(one.target) == "tensorrt"]


def _mean_of_medians(lines: Sequence[Line]) -> str:
    medians = [max(one.median, 0.1) for one in lines]
    return f"{statistics.geometric_mean(medians):.1f} ({len(lines)})" if lines else "–"


MARKS = {
    "unseen": ("other networks known", '<circle class="ours" cx="{x:.1f}" cy="{y}" r="3.5"/>'),
    "known@1": ("one network known", '<path class="dot" d="M{x:.1f} {y}m-4 3.5h8l-4 -7z"/>'),
    "zero_shot": ("device left out", '<circle class="hollow" cx="{x:.1f}" cy="{y}" r="3"/>'),
    "repeated": ("figures repeated", '<path class="tick" d="M{x:.1f} {y}m0 -5v10"/>'),
}
LABEL, PLOT, ROW, TOP = 232, 176, 15, 96
_STYLE = (
    "<style>.hollow { fill: none; stroke: #8b6508; stroke-width: 1.5 } .line { stroke: #a9b6c4 } "
    ".tick { stroke: #cf222e; stroke-width: 2 } text.tiny { font-size: 11px }</style>"
)


def drawn(targets: Sequence[Judged]) -> str:
    """Median errors of every target, in two columns."""
    parts = [_STYLE]
    for x, (words, mark) in zip((30, 200, 360, 500), MARKS.values(), strict=True):
        parts += [mark.format(x=x, y=66), text(x + 10, 70, words, "small")]
    half = -(-len(targets) // 2)
    for left, some in ((LABEL + 8, targets[:half]), (LABEL + 440, targets[half:])):
        for percent in (1, 3, 10, 30, 100):
            x = left + _place(percent)
            lines = f'<path class="line" d="M{x:.1f} {TOP}v{ROW * len(some)}" stroke-width="0.5"/>'
            parts += [lines, text(x, TOP - 4, f"{percent} %", "tiny", "middle")]
        for y, one in enumerate(some):
            y = TOP + ROW * y + 8
            lines = {regime: own for regime in MARKS if (own := one.own(regime)) is not None}
            at = {regime: left + _place(own.median) for regime, own in lines.items()}
            ends = f"M{min(at.values()):.1f} {y}H{max(at.values()):.1f}" if at else ""
            parts += [text(left - 8, y + 4, one.target, "tiny", "end")]
            parts += [f'<path class="line" d="{ends}"/>'] if ends else []
            parts += [MARKS[regime][1].format(x=x, y=y) for regime, x in at.items()]
    title = f"Median error on {len(targets)} GPU targets, by what was known of each"
    note = "Tables of three or more published latencies; a logarithmic scale."
    return picture(title, note, TOP + ROW * half + 14, parts)


def _place(percent: float) -> float:
    """Of a percentage on the scale, which ends at 1 and at 100."""
    return PLOT * math.log10(min(max(percent, 1.0), 100.0)) / 2


def log(lines: Sequence[Line], place: str) -> None:
    """A run for every target and one that compares them, in MLflow at a URI or in a file."""
    import mlflow

    uri = place if "://" in place else f"sqlite:///{Path(place).resolve()}"
    targets = judged(lines)
    with tracking.opened("", uri):
        for one in targets:
            chosen_on = CHOSEN.match(one.target) is not None
            about = {"target": one.target, "family": family_of(one.target), "chosen_on": chosen_on}
            figures = {
                f"{line.regime}/{line.method}/{name}".replace("@", "_at_"): value
                for line in one.lines
                for name in ("latencies", "rmspe", "median", "bias", "coverage", "half_width")
                if (value := getattr(line, name)) is not None
            }
            with tracking.run(one.target, {"kind": "gpus", "target": one.target}):
                mlflow.log_params(about | {"rows": one.latencies})
                mlflow.log_metrics(figures)
        tags = {"kind": "comparison", "mlflow.note.content": goals(targets).markdown()}
        with tracking.run(f"{len(targets)} GPU targets · comparison", tags):
            mlflow.log_text(table(targets).markdown(), "gpus.md")
