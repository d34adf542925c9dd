"""A space of blocks that was measured once, kept as a file: what ``budget_search.py`` searches in.

The file holds every block of ``MOBILENET`` at one image size as the cells that it adds, what the
target's model said of every cell before anything was measured, what measuring each came to, and
some networks measured whole. So a search is played again anywhere, without engine or device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from experiments.block_spaces import MOBILE_STAGES, NONE, SLOTS, mobilenet_blocks
from hybridlat import Predictor
from hybridlat.cli.output import ProgressShown
from hybridlat.estimate.block_space import BlockSpace, BlockTable
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.geometry import geometry

IMAGE = 224
SETTINGS = MeasurementConfig(rounds=2, processes=2, max_processes=2)
Choice = Mapping[str, str]


@dataclass(frozen=True)
class MeasuredSpace:
    """The space as it was believed before, what was measured of its cells, and whole networks.

    ``measured`` is (µs, relative noise) by signature, ``flop`` the arithmetic of one use of each
    cell; ``whole`` are (choice, µs) of networks measured as a whole.
    """

    predicted: BlockSpace
    measured: Mapping[str, tuple[float, float]]
    flop: Mapping[str, float]
    whole: Sequence[tuple[Choice, float]]

    @property
    def truth(self) -> BlockSpace:
        """The space with every cell measured."""
        return self.predicted.observe(self.measured)

    def flop_of(self, choice: Choice) -> float:
        """The arithmetic of a network."""
        space = self.predicted
        return math.fsum(
            count * self.flop[h] for b in choice.items() for h, count in space.blocks[b].items()
        )

    def cost_s(self, signatures: Sequence[str]) -> float:
        """Device time that measuring these cells takes, as the gate counts it."""
        priors, cells = self.predicted.posterior.priors, self.predicted.cells
        return math.fsum(priors[cells[h]].cost_s for h in signatures)


def read(path: Path) -> MeasuredSpace:
    """What ``write`` wrote."""
    body = json.loads(path.read_text(encoding="utf-8"))
    # All candidates share the machine's pace, and what was measured was measured at one.
    composition = replace(Composition.from_json(body["composition"]), wander_share=0.0)
    priors = [
        CellPrior(
            h,
            1,
            cell["predicted_us"],
            cell["spread_share"],
            trusted=cell["trusted"],
            cost_s=cell["cost_s"],
            kinds=tuple((kind, share) for kind, share in cell["kinds"]),
            coordinates=tuple(cell["coordinates"]),
        )
        for h, cell in body["cells"].items()
    ]
    names = list(body["cells"])
    space = BlockSpace(
        body["target"],
        composition,
        ErrorPosterior.start(priors, composition.correlation),
        {
            (position, block): {names[i]: count for i, count in cells}
            for position, block, cells in body["blocks"]
        },
        0.05,
        (),
        {},
    )
    measured = {h: tuple(cell["measured"]) for h, cell in body["cells"].items()}
    flop = {h: cell["flop"] for h, cell in body["cells"].items()}
    return MeasuredSpace(space, measured, flop, [(c, us) for c, us in body["whole"]])


def write(path: Path, space: MeasuredSpace, check: BlockTable) -> None:
    """Keep a measured space; ``check`` is the table of all of it measured."""
    names = {h: i for i, h in enumerate(space.predicted.cells)}
    cells = {
        prior.signature: {
            "predicted_us": prior.latency_us,
            "spread_share": prior.spread_share,
            "trusted": prior.trusted,
            "cost_s": prior.cost_s,
            "kinds": prior.kinds,
            "coordinates": prior.coordinates,
            "measured": space.measured[prior.signature],
            "flop": space.flop[prior.signature],
        }
        for prior in space.predicted.posterior.priors
    }
    blocks = [
        [*block, [[names[h], count] for h, count in held.items()]]
        for block, held in space.predicted.blocks.items()
    ]
    body: dict[str, Any] = {
        "target": space.predicted.target,
        "composition": space.predicted.composition.to_json(),
        "check": None if check.check is None else asdict(check.check),
        "cells": cells,
        "blocks": blocks,
        "whole": [[dict(choice), us] for choice, us in space.whole],
    }
    lines = json.dumps(body, indent=1, separators=(",", ":"))
    path.write_text(lines + "\n", encoding="utf-8")


def measure(
    store: str, target: str | None, whole: Sequence[tuple[Choice, ModelProto]]
) -> tuple[MeasuredSpace, BlockTable]:
    """The space as predicted, and as measured; real time. ``store`` has no records before."""
    blocks = mobilenet_blocks(IMAGE)
    with Predictor(target, store=store, measure="never") as predictor:
        predicted = predictor.space(blocks)
    with (
        ProgressShown() as shown,
        Predictor(
            target, store=store, measure="always", progress=shown, settings=SETTINGS
        ) as predictor,
    ):
        known = predictor.store
        measured = predictor.space(blocks)
        texts = known.signature_texts(list(measured.cells))
        latencies = [
            (choice, predictor.measure(network, what="network").latency_us or math.nan)
            for choice, network in whole
        ]
    posterior = measured.posterior
    found = {
        h: (float(posterior.latencies_us[i]), max(float(posterior.covariance[i, i]), 0.0) ** 0.5)
        for h, i in measured.cells.items()
    }
    flop = {h: float(geometry([texts[h]]).column("flop").sum()) for h in found}
    # What the machine's first measurements tell of its composition is known to both.
    predicted = replace(predicted, composition=measured.composition)
    return MeasuredSpace(predicted, found, flop, latencies), measured.table


# ---- a stand-in for accuracy -------------------------------------------------------------------

_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 8.0)


def entropy(choice: Choice) -> float:
    """A score that costs nothing and stands for accuracy: how much a network could express.

    Σ over stages of weight · ln(pixels · channels of the stage) · Σ over its convolutions and
    those before it of ln(inputs of one output). Source: the multi-scale entropy of DeepMAD (Shen
    et al., CVPR 2023), with its weights: 1 for every stage but the last, 8 for that. How good a
    stand-in it is, is not asked here.
    """
    score = depth = 0.0
    before, size = 16, IMAGE // 2
    depth += math.log(3 * 9) + math.log(9) + math.log(16)
    for stage, (channels, stride, _, _) in enumerate(MOBILE_STAGES):
        size = -(-size // stride)
        for slot in range(SLOTS):
            words = choice[f"stage{stage + 1}.block{slot + 1}"]
            if words == NONE:
                continue
            kernel, expansion = (int(part.split()[-1]) for part in words.split(","))
            inner = before * expansion
            depth += math.log(before) + math.log(kernel**2) + math.log(inner)
            before = channels
        score += _WEIGHTS[stage] * math.log(size * size * channels) * depth
    return score
