"""Cells that a target's own model cannot speak for: what is said of them instead, in steps.

A cell without an answer is answered by the family of the target's engine, where that has a model
and the device a data sheet; else by the model of another device under the same engine; else by the
device's roofline and launch cost. Intervals are as wide as that was seen to be wrong. Nothing is
left out of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hybridlat.engines import device_sheets
from hybridlat.errors import TargetError
from hybridlat.estimate.composition import normal_quantile
from hybridlat.estimate.family_prior import FamilyAnswer, FamilyPrior, MeasuredNetwork
from hybridlat.estimate.model_folders import user_models_folder
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
_LAUNCH_US = {"gpu": 4.0, "cpu": 0.1}  # of a kernel, where the data sheet names no figure


@dataclass(frozen=True)
class Fallback:
    """What stands in for the target's own model.

    A family's law, the model of another device, or a device's roofline alone.
    """

    device: Device
    precision: str
    family: FamilyPrior | None = None
    sibling: SiblingModel | None = None

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
        """What the device could do at best, and how far from it kernels are found."""
        cells = geometry(texts)
        view = View(cells, self.device, self.precision)
        launch = self.device.launch_us or _LAUNCH_US[self.device.kind]
        each = np.bincount(cells.cell, view.roofline_us + launch, cells.cells).tolist()
        wider = normal_quantile(confidence) / normal_quantile(0.9)
        low, high = (math.exp(edge * wider) for edge in ROOFLINE_ERROR)
        reason = "guessed from the device's peaks and bandwidth: nothing of the kind was measured"
        return [CellPrediction(us, (us * low, us * high), True, reason) for us in each]


def fallback_for(target: Target, store: Store, model: CellModel | None) -> Fallback | None:
    """What stands in for a target's own model.

    The family of the engine, conditioned on the whole networks of the target that the store knows;
    where the engine has none and the target no model, that of another device; else the device's
    roofline. None for a device that nobody has described under an engine that nobody has used.
    """
    device = _described(target) or (model.device if model is not None else None)
    folder = None if device is None else _family_folder(target, device)
    if device is None or folder is None:
        sibling = sibling_of(target) if model is None else None
        if sibling is not None and device is not None and device.kind != sibling.model.device.kind:
            sibling = None
        if sibling is not None:
            device = device or sibling.model.device
            sibling = sibling.measured(_measured_cells(store, target))
        return None if device is None else Fallback(device, target.precision, sibling=sibling)
    law = shipped.load(folder)
    task = shipped.task_of(target, law)
    networks = measured_networks(store, target)
    prior = FamilyPrior.of(law, device, target.precision, task, networks)
    return Fallback(device, target.precision, prior)


def _measured_cells(store: Store, target: Target) -> dict[str, float]:
    """Latencies in µs of cells that the store knows of a target, by their texts."""
    measured = {
        record.signature: record.latency_us
        for record in store.measurements(target)
        if record.kind == "cell" and record.latency_us is not None
    }
    texts = store.signature_texts(measured)
    return {text: measured[signature] for signature, text in texts.items()}


def has_family(target: Target) -> bool:
    """Whether a family's law answers for a target, corrected by its measured networks."""
    device = _described(target)
    return device is not None and _family_folder(target, device) is not None


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
    for record in store.measurements(target):
        if record.kind == "network" and tells_latency(record):
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
    missing: Sequence[str],
    copied_bytes: float,
    confidence: float,
) -> tuple[dict[str, CellPrediction], FamilyAnswer | None]:
    """Predictions for the missing cells that the target's own model leaves out.

    ``uses`` are (signature, text, count) of all cells of the network. The answer is the family's,
    whose composition serves targets that have none of their own; None where none was asked.
    """
    empty = [h for h in missing if h not in own or own[h].latency_us is None]
    if not empty:
        return {}, None
    texts = [text for _, text, _ in uses]
    answer = fallback.answer(texts, [count for _, _, count in uses], copied_bytes, confidence)
    if answer is None:
        text_of = {signature: text for signature, text, _ in uses}
        guessed = fallback.by_roofline([text_of[h] for h in empty], confidence)
        return dict(zip(empty, guessed, strict=True)), None
    factor = math.exp(answer.half_width)
    made: dict[str, CellPrediction] = {}
    for (signature, _, _), us in zip(uses, answer.cells_us.tolist(), strict=True):
        if signature in empty:
            interval = (us / factor, us * factor)
            made[signature] = CellPrediction(us, interval, True, f"predicted from {answer.kin}")
    return made, answer
