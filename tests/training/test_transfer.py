"""A new machine starts from another one's model, and what is thought of cells learns at once."""

from __future__ import annotations

import numpy as np
import pytest

from hybridlat.estimate.sibling import sibling_of
from hybridlat.model.doubt import KernelSpace
from hybridlat.model.geometry import geometry
from hybridlat.schema import resources
from hybridlat.schema.target import Target
from hybridlat.training.curriculum import Ground
from hybridlat.training.guesses import Guesses
from hybridlat.training.transfer import start_us
from hybridlat.training.visit_costs import cell_visit_s
from tests.model.rows import DEVICE, latencies_us, texts

SHIPPED = "epyc-26-2"


@pytest.fixture(autouse=True)
def _shipped_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridlat.estimate.model_folders.shipped", resources.shipped)


def test_the_kin_runs_the_same_engine() -> None:
    found = sibling_of(Target.parse("some-cpu/onnxruntime-1.31/fp32/1t"))
    assert found is not None and found.target.device == SHIPPED
    newer = sibling_of(Target.parse("some-cpu/onnxruntime-9.9/fp32/2t"))
    assert newer is not None and newer.target.device == SHIPPED
    assert sibling_of(Target.parse("some-cpu/openvino-2025.4/fp32/1t")) is None
    assert sibling_of(Target.parse("some-cpu/onnxruntime-1.31/int8/1t")) is None
    own = sibling_of(Target.parse(f"{SHIPPED}/onnxruntime-1.31/fp32/1t"))
    assert own is None or own.target.device != SHIPPED


def test_what_the_kin_does_not_know_starts_from_the_roofline() -> None:
    cells = texts(20)  # of another engine: its operators are not the kin's
    found = sibling_of(Target.parse("some-cpu/onnxruntime-1.31/fp32/1t"))
    assert found is not None
    with_kin = start_us(cells, found.model, DEVICE, "fp32")
    assert np.isfinite(with_kin).all() and (with_kin > 0).all()
    assert (start_us(cells, None, DEVICE, "fp32") > 0).all()


def test_guesses_learn_from_what_is_measured_and_judge_themselves() -> None:
    cells = {f"{place:032x}": text for place, text in enumerate(texts(160))}
    truth = dict(zip(cells, latencies_us(list(cells.values())).tolist(), strict=True))
    guesses = Guesses(Ground(KernelSpace.over(list(cells.values()), DEVICE)), None, DEVICE, "fp32")
    guesses.learn_of(cells)
    new = list(cells)[120:]

    def error() -> float:
        return float(np.median([abs(np.log(guesses.said_us[h] / truth[h])) for h in new]))

    guesses.fit({})
    before = error()
    guesses.fit({h: (truth[h], 0.05) for h in list(cells)[:120]})
    assert error() < 0.5 * before
    honest = guesses.honest(1.0)
    guesses.compare({h: 5 * truth[h] for h in cells})
    assert guesses.honest(1.0) > honest == 1.0  # what was said turned out far off


def test_a_visit_takes_longer_for_slow_cells_and_many_copies() -> None:
    cells = geometry(texts(30))
    quick, slow = (cell_visit_s(cells, np.full(cells.cells, us)) for us in (10.0, 10_000.0))
    assert (slow > quick).all() and quick.min() > 0.02
    assert cell_visit_s(cells, np.full(cells.cells, np.nan)) == pytest.approx(
        cell_visit_s(cells, np.full(cells.cells, 100.0))
    )
