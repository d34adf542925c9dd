"""Tables of accuracy in README and on the page about it, of the figures in docs/figures.json."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.whole_networks_lines import FIGURES, read
from experiments.whole_networks_page import about
from hybridlat.evaluation.family_laws import HELD_OUT
from hybridlat.evaluation.metrics import OWN
from hybridlat.report.table import Table, titled

ROOT = Path(__file__).resolve().parents[1]
README, ACCURACY = "README.md", "docs/background/accuracy.md"
Found = Mapping[str, float]
GPUS = {
    "v100": "V100, TensorRT 8.0 FP32 in Paddle", "t4": "T4, TensorRT FP32 in Paddle, 2020",
    "rtx-4090": "RTX 4090, torch.compile 2.9", "rtx-3090": "RTX 3090, PyTorch 2.4",
}  # fmt: skip
FIRST = ("v100", "t4", "rtx-4090")
"""Of the README."""
METHODS = {
    "kernel_forest": "forest per kernel", "per_kind_linear": "linear per kind",
    "roofline": "roofline", "flops_linear": "line over FLOPs", "wave_model": "wave model",
    "layerwise_learned": "model per layer type",
}  # fmt: skip
REGIMES = {"unseen": "other networks", "unseen_family": "no variant of the network either"}
CELLS = {
    "cells@300": ("V100, TensorRT FP16, public records", "`cells@300`", "12,851 cells"),
    "four-fifths": ("same", "four fifths of the cells", "2,631 cells"),
    "gated": ("same", "and a fifth of the others gated", "2,631 cells"),
}


def written(found: Found) -> dict[str, str]:
    """The text of each page, with what stands between its marks made anew."""
    made = {README: _readme(found), ACCURACY: _accuracy(found)}
    return {page: _between(page, text) for page, text in made.items()}


def _between(page: str, text: str) -> str:
    old = (ROOT / page).read_text(encoding="utf-8")
    new, count = re.subn(
        r"(<!-- accuracy -->\n).*?(<!-- /accuracy -->)",
        lambda match: f"{match[1]}{text}\n{match[2]}", old, flags=re.DOTALL,
    )  # fmt: skip
    assert count == 1, page
    return new


def _errors(found: Found, key: str, rivals: Sequence[str], median: str = "") -> tuple[str, str]:
    """Ours and the best rival's, the lesser in bold; ``median`` is the word for the median."""
    errors = {m: found[at] for m in rivals if (at := f"{key}/{m}/rmspe") in found}
    ours, best = found[f"{key}/hybridlat/rmspe"], min(errors, key=errors.__getitem__)

    def text(method: str, value: float, is_best: bool) -> str:
        middle = found.get(f"{key}/{method}/median")
        spread = found.get(f"{key}/{method}/rmspe_sd")
        shown = f"{value}" if spread is None else f"{value} ± {spread}"
        shown = f"**{shown}**" if is_best else shown
        return f"{shown} ({median}{middle})" if median and middle is not None else shown

    theirs = errors[best]
    return text("hybridlat", ours, ours <= theirs), (
        f"{text(best, theirs, theirs < ours)}, {METHODS[best]}"
    )


def _gpus(
    found: Found, gpus: Sequence[str], median: str
) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Both regimes of each GPU's table, one below the other: who is ahead may differ."""
    for gpu in gpus:
        for regime in REGIMES:
            key = f"{gpu}/{regime}"
            tested = f"{found[f'{key}/hybridlat/tested']:.0f} latencies"
            holds = f"{found[f'{key}/hybridlat/holds']:.0f} %"
            ours, theirs = _errors(found, key, tuple(METHODS), median)
            title = GPUS[gpu] if regime == "unseen" else "same"
            yield title, regime, tested, ours, theirs, holds


def _readme(found: Found) -> str:
    rows = []
    for title, regime, known in (
        ("EPYC core, ONNX Runtime FP32", "unseen", "nothing of the network"),
        ("same", "gated@5%", f"what the gate measures at 5 % (noise: {found['cpu/noise-floor']})"),
    ):
        tested = f"{found[f'cpu/{regime}/hybridlat/tested']:.0f} networks"
        rows.append([title, known, tested, *_errors(found, f"cpu/{regime}", tuple(METHODS))])
    for title, regime, tested, *errors, _ in _gpus(found, FIRST, " "):
        rows.append([title, REGIMES[regime], tested, *errors])
    columns = titled("target", "known beforehand", "tested on", "RMSPE (median) %", "best rival")
    table = Table(columns, [[cell.replace("( ", "(") for cell in row] for row in rows]).markdown()
    draws = min(one.draws for one in read(FIGURES) if one.regime in HELD_OUT and one.method == OWN)
    return (
        f"{table}\n\n±: standard deviation over {draws} draws of folds, of which this is the mean. "
        "Networks of nearly the same kernels are held out together. On GPUs other methods learn "
        "from the table in question, hybridlat from all tables of its family "
        "([how many](docs/background/accuracy.md))."
    )


def _accuracy(found: Found) -> str:
    floor, rows = found["cpu/noise-floor"], []
    for regime in ("measured", "unseen", "gated@5%"):
        key = f"cpu/{regime}/hybridlat"
        rows.append([
            "EPYC core, ONNX Runtime FP32" if regime == "measured" else "same", f"`{regime}`",
            f"{found[f'{key}/tested']:.0f} networks",
            *_errors(found, f"cpu/{regime}", tuple(METHODS)),
            f"{floor}", f"{found[f'{key}/within_10']:.0f} %", f"{found[f'{key}/holds']:.0f} %",
        ])  # fmt: skip
    for name, (title, known, tested) in CELLS.items():
        errors = _errors(found, f"cells/{name}", tuple(METHODS))
        holds = f"{found[f'cells/{name}/hybridlat/holds']:.0f} %"
        rows.append([title, known, tested, *errors, "–", "–", holds])
    for title, regime, tested, *errors, holds in _gpus(found, tuple(GPUS), "median "):
        rows.append([title, f"`{regime}`", tested, *errors, "–", "–", holds])
    columns = titled(
        "target", "regime", "tested on", "RMSPE %", "best rival", "noise floor", "within 10 %",
        "90 % interval holds",
    )  # fmt: skip
    return f"{Table(columns, rows).markdown()}\n\n{about(read(FIGURES))}"
