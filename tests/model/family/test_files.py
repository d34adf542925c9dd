import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hybridlat.errors import StoreError
from hybridlat.model.conformal import calibrate
from hybridlat.model.family import shipped as files
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import kernel_set
from hybridlat.model.family.physics import KernelTable
from hybridlat.model.family.tasks import Task
from hybridlat.model.family.trees import weighed
from hybridlat.schema.device import Device
from tests.model.family.worlds import GPU, HERE, OTHER, THERE, observations, table

OFF = np.where(np.arange(40) % 2, 0.2, -0.2)
"""What a law of forty networks is off, so that trees have a say."""


@pytest.fixture(scope="module")
def model() -> FamilyModel:
    rows = [*observations(30, 1), *observations(10, 2, THERE)]
    return fit(rows, Embedding(Hyper(), size=40))


def law(
    model: FamilyModel, kernels: KernelTable, device: Device, task: Task
) -> tuple[float, float]:
    """(log latency, its spread) of a network."""
    one = model.predict(kernel_set(kernels, device, "fp32"), task)
    return float(np.log(one.median_us)), one.log_sd


def test_what_is_saved_answers_alike(model: FamilyModel, tmp_path: Path) -> None:
    calibration = calibrate(np.linspace(-1, 1, 51), np.full(51, 0.1), ["gpu"] * 51)
    rows = observations(40, 1)
    own = weighed(rows, [(np.array([one.architecture for one in rows]), OFF)])
    assert own is not None
    with_trees = replace(model, trees={HERE: own}, calibration=calibration)
    files.save(with_trees, tmp_path)
    loaded = files.read(tmp_path)
    assert loaded.calibration is not None
    half_widths = [one.half_width(0.2, "gpu") for one in (loaded.calibration, calibration)]
    assert half_widths[0] == pytest.approx(half_widths[1], rel=1e-3)
    kernels = table(np.random.default_rng(6))
    for device, task in ((GPU, HERE), (OTHER, THERE), (GPU, Task("new", "engine-2", "fp16"))):
        plain, before, after = (law(m, kernels, device, task) for m in (model, with_trees, loaded))
        assert after == pytest.approx(before, rel=1e-3)
        # Trees move their own task's latency alone, and no spread.
        assert (plain[0] != before[0]) == (task == HERE) and plain[1] == before[1]


def test_the_less_is_shared_the_wider(model: FamilyModel) -> None:
    kernels = table(np.random.default_rng(7))
    tasks = (HERE, Task("gpu", "engine-2", "fp32"), Task("new", "engine-9", "int8"))
    known, version, strange = (law(model, kernels, GPU, task)[1] for task in tasks)
    assert known < version < strange


def test_a_damaged_model_is_named(model: FamilyModel, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no family model"):
        files.read(tmp_path)
    files.save(model, tmp_path)
    head = tmp_path / "family.json"
    # A law of before is relative to another base of kernels: read as one of today it would mislead.
    for number in (1, 2, 3, 4, 7, 99):
        changed = {**json.loads(head.read_text()), "format": number}
        head.write_text(json.dumps(changed))
        with pytest.raises(StoreError, match=f"format {number}, this version reads 8"):
            files.read(tmp_path)
