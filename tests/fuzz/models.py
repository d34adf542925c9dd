"""Damaged models in a user's folder: seeded mutations of each file of shipped ones.

A model is installed as ``train`` does (``installed``), saved with its hash (``saved``), or copied
as it is shipped, without any hash (``bare``). Unless it is bare, no damage moves a latency by more
than 2 % without a warning that names the folder; and none ever ends in an exception.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import random
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hybridlat import Predictor
from hybridlat.model.family import files
from hybridlat.onnx_io import to_onnx
from hybridlat.schema.plugins import shipped
from hybridlat.training.train import install
from tests.fuzz import mutations
from tests.fuzz.mutations import cut_short
from tests.networks import classifier

CELLS, FAMILY = "epyc-26-2_onnxruntime-1.31_fp32_1t", "family_torch"
TARGETS = {CELLS: "epyc-26-2/onnxruntime-1.31/fp32/1t", FAMILY: "v100/torch-2.9/fp32"}
FILES = {
    CELLS: ("model.json", "card.json", "composition.json", "arrays.npz", "trees.ubj", "spread.ubj"),
    FAMILY: ("family.json", "family.npz"),
}
WAYS = (("installed", CELLS), ("saved", FAMILY), ("bare", CELLS), ("bare", FAMILY))
VALUES: tuple[Any, ...] = (
    None, True, "x", "", -1, 0, 1e-300, 1e300, float("nan"), float("inf"), 10**400, [], {}, [[]],
    [1, "a"], "\x00", 99999, -1e9, 2**63,
)  # fmt: skip
MOST_CHANGE = 0.02


@functools.cache
def _root() -> Path:
    """Each way's folder of models, undamaged; kept until the process ends."""
    root = Path(tempfile.mkdtemp(prefix="hybridlat-fuzz-"))
    import atexit

    atexit.register(shutil.rmtree, root, True)
    install(shipped("models") / CELLS, root / "installed" / CELLS)
    (root / "saved" / FAMILY).mkdir(parents=True)
    files.save(files.load(shipped("models") / FAMILY), root / "saved" / FAMILY)
    for name in (CELLS, FAMILY):
        shutil.copytree(shipped("models") / name, root / "bare" / name)
    return root


def _file(way: str, model: str, name: str) -> Path:
    return next((_root() / way / model).rglob(name))


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """The files of these numbers: ways, files and mutations take turns."""
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        way, model = WAYS[number % len(WAYS)]
        name = rng.choice(FILES[model])
        mutate = rng.choice(BYTES + {".json": JSON, ".npz": NPZ}.get(Path(name).suffix, ()))
        data = _file(way, model, name).read_bytes()
        yield f"{number}/{way}/{model}/{name}/{mutate.__name__}", mutate(data, rng)


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
    _, way, model, name, _ = label.split("/")
    expected_us = _undamaged_us(TARGETS[model])
    source, user = _root() / way / model, folder / "hybridlat" / "models" / model
    damaged = user / _file(way, model, name).relative_to(source)
    shutil.copytree(source, user, copy_function=os.link)
    damaged.unlink()
    damaged.write_bytes(data)
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder)
    try:
        with Predictor(TARGETS[model], store="sqlite://", measure="never") as predictor:
            estimate = predictor.predict(_network(), name="net")
    finally:
        os.environ.pop("XDG_DATA_HOME")
        os.environ.update({} if before is None else {"XDG_DATA_HOME": before})
    us = estimate.latency_us
    if us is None or not (math.isfinite(us) and us > 0):
        return f"wrong latency {us}"
    if any(str(user) in str(warning) for warning in estimate.warnings):
        return "refused" if abs(us / expected_us - 1) < 1e-6 else f"wrong fallback {us} us"
    change = abs(us / expected_us - 1)
    return "answered" if way == "bare" or change <= MOST_CHANGE else f"wrong by {change:.1%}"


def flip_bytes(data: bytes, rng: random.Random) -> bytes:
    return mutations.flip_bytes(data, rng, most=300)


def splice(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 4000) :]


def put_nuls(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes(999) + data[at + 999 :]


def replace_all(data: bytes, rng: random.Random) -> bytes:
    return rng.choice((b"", b"[1, 2]", b"{}", b"{", b"[" * 100_000, b"\xff\xfe" + data[::-1]))


def _places(body: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    keys = list(body) if isinstance(body, dict) else range(len(body))
    if not isinstance(body, dict | list):
        return []
    return [each for key in keys for each in [(body, key), *_places_in(body[key])]]


def _places_in(value: Any) -> list[tuple[Any, Any]]:
    return _places(value) if isinstance(value, dict | list) else []


def change_value(data: bytes, rng: random.Random) -> bytes:
    body = json.loads(data)
    container, key = rng.choice(_places(body))
    container[key] = rng.choice(VALUES)
    return json.dumps(body).encode()


def scale_number(data: bytes, rng: random.Random) -> bytes:
    body = json.loads(data)
    numbers = [(c, k) for c, k in _places(body) if type(c[k]) in (int, float)]
    if numbers:
        container, key = rng.choice(numbers)
        container[key] *= rng.choice((-1, 0, 2, 10, 1000, 1e-6))
    return json.dumps(body).encode()


def drop_value(data: bytes, rng: random.Random) -> bytes:
    body = json.loads(data)
    container, key = rng.choice(_places(body))
    del container[key]
    return json.dumps(body).encode()


def repeat_value(data: bytes, rng: random.Random) -> bytes:
    body = json.loads(data)
    lists = [c[k] for c, k in _places(body) if isinstance(c[k], list) and c[k]]
    if lists:
        one = rng.choice(lists)
        one.append(one[0])
    return json.dumps(body).encode()


def change_array(data: bytes, rng: random.Random) -> bytes:
    with np.load(io.BytesIO(data)) as arrays:
        kept = dict(arrays)
    name = rng.choice([name for name in kept if not name.startswith("trees_")])
    array = kept[name]
    ways = {
        "row": lambda: array[1:], "column": lambda: array[..., 1:], "flat": array.ravel,
        "text": lambda: array.astype(str), "bool": lambda: array.astype(bool),
        "complex": lambda: array.astype(complex), "negative": lambda: -array - 1,
        "large": lambda: np.full_like(array, 99999 if array.dtype.kind == "i" else 6e4),
        "nan": lambda: array * np.nan, "empty": lambda: array[:0],
        "more": lambda: array.repeat(2, 0), "double": lambda: array.astype(np.float64),
        "whole": lambda: array.astype(np.int64),
    }  # fmt: skip
    way = rng.choice(list(ways))
    with np.errstate(all="ignore"):
        kept[name] = ways[way]()
    if rng.random() < 0.1:
        del kept[name]
    stream = io.BytesIO()
    np.savez(stream, **kept)
    return stream.getvalue()


@functools.cache
def _bombs() -> tuple[bytes, ...]:
    """A small file of 300 MB of zeros, and one whose header says that it is of 8 TB."""
    header = np.lib.format.magic(1, 0) + b"\x76\x00"
    header += b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(118)
    bombs = []
    for content in (bytes(300 << 20), header):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
            zipped.writestr("columns.npy", content)
        bombs.append(stream.getvalue())
    return tuple(bombs)


def bomb(data: bytes, rng: random.Random) -> bytes:
    return rng.choice(_bombs())


BYTES = (cut_short, flip_bytes, splice, put_nuls, replace_all)
JSON = (change_value, change_value, scale_number, drop_value, repeat_value)
NPZ = (change_array, change_array, change_array, bomb)
