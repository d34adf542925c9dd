"""Cells that a target's own model cannot speak for: what is said of them instead, in steps.

A cell without an answer, and one far from all that the target's model was trained on, is answered
by the same device and engine at another version or precision;
else by the family of the target's engine, where that has a model and the device a data sheet; else
by the model of another device under the same engine; else by the device's roofline and launch cost.
Intervals are as wide as that was seen to be wrong. Nothing is left out of the sum. In place of a
cell far from its training because sums of cells come nearer to measured networks that way than with
the model's own word, or with both weighted by certainty (`experiments/26_strange_cells.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hybridlat.engines import device_sheets
from hybridlat.errors import TargetError
from hybridlat.estimate.composition import normal_quantile
from hybridlat.estimate.family_prior import FamilyAnswer, FamilyPrior, MeasuredNetwork
from hybridlat.estimate.model_folders import user_models_folder
from hybridlat.estimate.near_targets import LAUNCH_US, NearTarget
from hybridlat.estimate.sibling import SiblingModel, sibling_of
from hybridlat.estimate.whole_networks import tells_latency
from hybridlat.model.family import shipped
from hybridlat.model.geometry import geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import CellPrediction
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.model.cell_model import CellModel
    from hybridlat.schema.measurement import Measurement
    from hybridlat.store import Store

MOST_NETWORKS = 300
"""Measured networks that a family is conditioned on: more cost seconds and add little."""
ROOFLINE_ERROR = (-1.6, 0.7)
"""Between these lie nine of ten ln(measured / (roofline + launch)) of the 10,713 cells and random
kernels of the shipped CPU pack."""


@dataclass(frozen=True)
class Fallback:
    """What stands in for the target's own model.

    What other versions and precisions of the target know, surest first; a family's law, the model
    of another device, or a device's roofline alone. ``device`` None is one that nobody described.
    """

    device: Device | None
    precision: str
    family: FamilyPrior | None = None
    sibling: SiblingModel | None = None
    near: tuple[NearTarget, ...] = ()

    @property
    def copies(self) -> bool:
        """Whether moving inputs and outputs belongs to the latency."""
        return self.family is not None and self.family.task.copies

    def answer(
        self, texts: Sequence[str], counts: Sequence[int], copied_bytes: float, confidence: float
    ) -> FamilyAnswer | None:
        """What the family or the sibling says of the whole network; None where there is neither."""
        if self.family is not None:
            return self.family.predict(texts, counts, copied_bytes, confidence)
        if self.sibling is None:
            return None
        cells_us = self.sibling.cells_us(texts)
        unknown = np.flatnonzero(~np.isfinite(cells_us))
        guessed = self.by_roofline([texts[i] for i in unknown.tolist()], confidence)
        cells_us[unknown] = [cell.latency_us for cell in guessed]
        return self.sibling.answer(cells_us, confidence)

    def by_roofline(self, texts: Sequence[str], confidence: float) -> list[CellPrediction]:
        """What the device could do at best, and how far from it kernels are found.

        Cells of a device that nobody described have no latency.
        """
        if not texts:
            return []
        if self.device is None:
            return [CellPrediction(None, None, False, "nobody described the device")] * len(texts)
        cells = geometry(texts)
        view = View(cells, self.device, self.precision)
        launch = self.device.launch_us or LAUNCH_US[self.device.kind]
        each = np.bincount(cells.cell, view.roofline_us + launch, cells.cells).tolist()
        wider = normal_quantile(confidence) / normal_quantile(0.9)
        low, high = (math.exp(edge * wider) for edge in ROOFLINE_ERROR)
        reason = "guessed from the device's peaks and bandwidth: nothing of the kind was measured"
        return [CellPrediction(us, (us * low, us * high), True, reason) for us in each]

    def nearest(
        self,
        texts: Mapping[str, str],
        answer: FamilyAnswer | None,
        confidence: float,
        *,
        untrusted: bool = False,
    ) -> dict[str, CellPrediction]:
        """What other versions and precisions say of cells (signature → text), the surest of each.

        Those are left out that are less sure than what the family or the sibling says.
        """
        found: dict[str, CellPrediction] = {}
        for one in self.near:
            if answer is None or one.spread < answer.spread_share:
                rest = {h: text for h, text in texts.items() if h not in found}
                found.update(one.cells(rest, self.device, confidence, untrusted=untrusted))
        return found

    def as_near(self, cells: int, confidence: float) -> FamilyAnswer:
        """What a run costs beside its cells as the nearest target has it; nothing of its cells."""
        nearest = self.near[0]
        beside_us = nearest.data.composition.overhead_us
        kin = f"{nearest.target}: {nearest.difference}"
        return FamilyAnswer([0.0] * cells, beside_us, 0.0, confidence, kin)


def fallback_for(
    target: Target, store: Store, model: CellModel | None, near: tuple[NearTarget, ...] = ()
) -> Fallback | None:
    """What stands in for a target's own model.

    ``near``, other versions and precisions of the engine on the device; beside them the engine's
    family, conditioned on the whole networks of the target and of those that the store knows; where
    the engine has none and the target no model, that of another device; else the device's roofline.
    None for a device that nobody has described under an engine that nobody has used.
    """
    device = _device(target, model)
    folder = None if device is None else _family_folder(target, device)
    if device is None or folder is None:
        sibling = sibling_of(target) if model is None else None
        if sibling is not None and device is not None and device.kind != sibling.model.device.kind:
            sibling = None
        if sibling is not None:
            device = device or sibling.model.device
            sibling = sibling.measured(_measured_cells(store, target))
        if device is None:
            device = next((d for one in near if (d := one.device) is not None), None)
        if device is None and not near:
            return None
        return Fallback(device, target.precision, sibling=sibling, near=near)
    law = shipped.load(folder)
    task = shipped.task_of(target, law)
    networks = measured_networks(store, target)
    for one in near:
        theirs = measured_networks(store, one.target)[: MOST_NETWORKS - len(networks)]
        networks += [replace(network, target=one.target) for network in theirs]
    prior = FamilyPrior.of(law, device, target.precision, task, networks)
    return Fallback(device, target.precision, prior, near=near)


def _measured_cells(store: Store, target: Target) -> dict[str, float]:
    """Latencies in µs of cells that the store knows of a target, by their texts."""
    measured = {
        record.signature: record.latency_us
        for record in store.measurements(target, "cell")
        if record.latency_us is not None
    }
    texts = store.signature_texts(measured)
    return {text: measured[signature] for signature, text in texts.items()}


def has_family(target: Target, model: CellModel | None = None) -> bool:
    """Whether a family's law answers for a target, corrected by its measured networks.

    ``model``, the target's own, describes the device where it has no data sheet.
    """
    device = _device(target, model)
    return device is not None and _family_folder(target, device) is not None


def _device(target: Target, model: CellModel | None) -> Device | None:
    return _described(target) or (model.device if model is not None else None)


def _described(target: Target) -> Device | None:
    try:
        return device_sheets.load(target.device)
    except TargetError:
        return None


def _family_folder(target: Target, device: Device) -> Path | None:
    name = shipped.family_name(target.engine)
    if name is None or device.kind != "gpu":
        return None
    return shipped.folder_of(name, user_models_folder())


def measured_networks(store: Store, target: Target) -> list[MeasuredNetwork]:
    """Whole networks of a target whose cells the store can name, 300 at most."""
    latest: dict[str, Measurement] = {}
    for record in store.measurements(target, "network"):
        if tells_latency(record):
            latest[record.signature] = record
    measured: list[MeasuredNetwork] = []
    partitions = store.breakdowns(target) if latest else ()
    # A network imported again has two: the older one does not tell what it copies.
    for breakdown in sorted(partitions, key=lambda b: "copied_bytes" not in b.labels):
        record_of = latest.pop(breakdown.signature, None)
        if record_of is None or record_of.latency_us is None or len(measured) >= MOST_NETWORKS:
            continue
        hashes = [signature for signature, _ in breakdown.cells]
        texts = store.signature_texts(hashes)
        if all(signature in texts for signature in hashes):
            copied_bytes = float(breakdown.labels.get("copied_bytes", "0"))
            counts = tuple(count for _, count in breakdown.cells)
            cells = tuple(texts[signature] for signature in hashes)
            measured.append(MeasuredNetwork(cells, counts, copied_bytes, record_of.latency_us))
    return measured


def fill_in(
    fallback: Fallback,
    uses: Sequence[tuple[str, str, int]],
    own: Mapping[str, CellPrediction],
    asked: Sequence[str],
    copied_bytes: float,
    confidence: float,
) -> tuple[dict[str, CellPrediction], FamilyAnswer | None]:
    """Predictions for the cells that are asked for.

    ``uses`` are (signature, text, count) of all cells of the network. A roofline does not stand in
    for a cell of which ``own``, the target's model, says anything at all. The answer is the
    family's, whose composition serves targets that have none of their own; None where none was
    asked.
    """
    if not asked:
        return {}, None
    texts = [text for _, text, _ in uses]
    answer = fallback.answer(texts, [count for _, _, count in uses], copied_bytes, confidence)
    text_of = {signature: text for signature, text, _ in uses}
    made = fallback.nearest({h: text_of[h] for h in asked}, answer, confidence)
    rest = [h for h in asked if h not in made]
    if answer is None:
        silent = {h: text_of[h] for h in rest if h not in own or own[h].latency_us is None}
        made |= fallback.nearest(silent, None, confidence, untrusted=True)
        silent = {h: text for h, text in silent.items() if h not in made}
        guessed = fallback.by_roofline(list(silent.values()), confidence)
        answer = fallback.as_near(len(uses), confidence) if made else None
        made |= dict(zip(silent, guessed, strict=True))
    else:
        factor = math.exp(answer.half_width)
        for (signature, _, _), us in zip(uses, answer.cells_us, strict=True):
            if signature in rest:
                interval = (us / factor, us * factor)
                reason = f"predicted from {answer.kin}"
                made[signature] = CellPrediction(us, interval, True, reason)
    return made, answer and _narrowed(answer, uses, made)


def _narrowed(
    answer: FamilyAnswer,
    uses: Sequence[tuple[str, str, int]],
    made: Mapping[str, CellPrediction],
) -> FamilyAnswer:
    """The answer with the width that its cells have by their shares of the time."""
    total = widths = 0.0
    for (signature, _, count), us in zip(uses, answer.cells_us, strict=True):
        cell = made.get(signature)
        half = answer.half_width
        if cell is not None and cell.latency_us is not None and cell.interval_us is not None:
            us, half = cell.latency_us, math.log(cell.interval_us[1] / cell.latency_us)
        total += count * us
        widths += count * us * half
    return replace(answer, half_width=widths / total) if total > 0 else answer
