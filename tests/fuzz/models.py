"""Damaged models in a user's folder: seeded mutations of each file of shipped ones.

No damage moves a latency by more than 2 % without a warning that names the folder, and none ever
ends in an exception.
"""

import atexit
import functools
import io
import math
import os
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hybridlat import Predictor
from hybridlat.model.family import shipped as files
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.plugins import shipped
from hybridlat.training.train import install
from tests.fuzz.mutations import damaged, odd_json
from tests.networks import classifier

CELLS, FAMILY = "epyc-26-2_onnxruntime-1.31_fp32_1t", "family_torch"
TARGETS = {CELLS: "epyc-26-2/onnxruntime-1.31/fp32/1t", FAMILY: "v100/torch-2.9/fp32"}
FILES = {
    CELLS: ("model.json", "card.json", "composition.json", "arrays.npz", "trees.ubj", "spread.ubj"),
    FAMILY: ("family.json", "family.npz"),
}
MOST_CHANGE = 0.02


@functools.cache
def _root() -> Path:
    """The folder of undamaged models, as training leaves them; kept until the process ends."""
    root = Path(tempfile.mkdtemp(prefix="hybridlat-fuzz-"))
    atexit.register(shutil.rmtree, root, True)
    install(shipped("models") / CELLS, root / CELLS)
    (root / FAMILY).mkdir(parents=True)
    files.save(files.read(shipped("models") / FAMILY), root / FAMILY)
    return root


def _file(model: str, name: str) -> Path:
    return next((_root() / model).rglob(name))


def made(number: int, rng: random.Random) -> tuple[str, bytes]:
    of_ending = {".json": (odd_json,), ".npz": (odd_array,)}
    model = (CELLS, FAMILY)[number % 2]
    name = rng.choice(FILES[model])
    mutate = rng.choice((damaged, *of_ending.get(Path(name).suffix, ())))
    data = mutate(_file(model, name).read_bytes(), rng)
    return f"{number}/{model}/{name}/{mutate.__name__}", data


@functools.cache
def _network() -> bytes:
    return to_onnx(classifier(24, classes=77), seed=1)  # no record knows its cells


@functools.cache
def _undamaged_us(target: str) -> float:
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        us = predictor.predict(_network(), name="net").latency_us
    assert us is not None
    return us


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Predict with the damaged file in the user's folder."""
    _, model, name, _ = label.split("/")
    expected_us = _undamaged_us(TARGETS[model])
    source, user = _root() / model, folder / "hybridlat" / "models" / model
    file = user / _file(model, name).relative_to(source)
    shutil.copytree(source, user, copy_function=os.link)
    file.unlink()
    file.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        with Predictor(TARGETS[model], store="sqlite://", measure="never") as predictor:
            estimate = predictor.predict(_network(), name="net")
    us = estimate.latency_us
    if us is None or not (math.isfinite(us) and us > 0):
        return f"wrong latency {us}"
    change = abs(us / expected_us - 1)
    if any(str(user) in str(warning) for warning in estimate.warnings):
        return "refused" if change < 1e-6 else f"wrong fallback {us} us"
    return "answered" if change <= MOST_CHANGE else f"wrong by {change:.1%}"


def odd_array(data: bytes, rng: random.Random) -> bytes:
    with np.load(io.BytesIO(data)) as arrays:
        kept = dict(arrays)
    name = rng.choice([name for name in kept if not name.startswith("trees_")])
    array = kept.pop(name)
    large = np.full_like(array, 99999 if array.dtype.kind == "i" else 6e4)
    with np.errstate(all="ignore"):
        odd = [array.astype(kind) for kind in (str, bool, complex, np.float64, np.int64)]
        odd += [array[1:], array[..., 1:], array.ravel(), array[:0], array.repeat(2, 0)]
        odd += [large, -array - 1, array * np.nan]
    if rng.random() < 0.9:
        kept[name] = rng.choice(odd)
    stream = io.BytesIO()
    np.savez(stream, **kept)
    return stream.getvalue()
