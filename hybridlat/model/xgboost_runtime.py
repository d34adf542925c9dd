"""Boosted trees in XGBoost's own file format, evaluated through its C library.

XGBoost's Python package imports scikit-learn and pandas where they are installed, which takes
seconds; the library under it loads in milliseconds. Measured on one core, 300 trees of depth 6:
100,000 rows in 0.22 s and 300 rows in 0.9 ms, against 0.66 s and 2.0 ms for the same trees as a
TreeEnsemble under ONNX Runtime. The C functions used here are public and documented as stable.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import MissingExtra, StoreError

_CONFIG = json.dumps(
    {
        "type": 1,  # sum of leaves, without the objective's transformation
        "training": False,
        "iteration_begin": 0,
        "iteration_end": 0,
        "strict_shape": False,
        "missing": float("nan"),
    }
).encode()


@cache
def _library() -> ctypes.CDLL:
    """XGBoost's shared library, found without importing its Python package."""
    spec = importlib.util.find_spec("xgboost")
    file = {"win32": "xgboost.dll", "darwin": "libxgboost.dylib"}.get(sys.platform, "libxgboost.so")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "lib" / file
        if path.exists():
            library = ctypes.CDLL(str(path))
            library.XGBGetLastError.restype = ctypes.c_char_p
            return library
    raise MissingExtra("xgboost", "train", "predicting with boosted trees")


def _check(code: int, what: str) -> None:
    if code:
        message = _library().XGBGetLastError().decode(errors="replace").strip().split("\n")[0]
        raise StoreError(f"{what}: {message}")


class Booster:
    """An ensemble of trees from the bytes of a UBJ file. Raises StoreError for damaged bytes."""

    def __init__(self, ubj: bytes, columns: int) -> None:
        self.ubj = ubj
        self.columns = columns
        self._handle = ctypes.c_void_p()
        if not (ubj.startswith(b"{") and ubj.endswith(b"}")):
            # XGBoost does not refuse a file that was cut off: it ends the process.
            raise StoreError(
                "the file of boosted trees is damaged: it is not a whole UBJSON object"
            )
        library = _library()
        _check(
            library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(self._handle)),
            "boosted trees cannot be created",
        )
        _check(
            library.XGBoosterLoadModelFromBuffer(self._handle, ubj, ctypes.c_uint64(len(ubj))),
            "the file of boosted trees is damaged",
        )
        _check(library.XGBoosterSetParam(self._handle, b"nthread", b"1"), "one thread is refused")
        wanted = ctypes.c_uint64()
        _check(
            library.XGBoosterGetNumFeature(self._handle, ctypes.byref(wanted)),
            "the file of boosted trees is damaged",
        )
        if wanted.value != columns:
            raise StoreError(
                f"the boosted trees read {wanted.value} features, the model has {columns}"
            )

    def __del__(self) -> None:
        if self._handle:
            _library().XGBoosterFree(self._handle)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """The sum of the leaves for every row."""
        if len(rows) == 0:
            return np.zeros(0)
        rows = np.ascontiguousarray(rows, np.float32)
        interface = json.dumps(
            {
                "data": [rows.ctypes.data, True],
                "shape": list(rows.shape),
                "typestr": "<f4",
                "version": 3,
            }
        ).encode()
        shape = ctypes.POINTER(ctypes.c_uint64)()
        dimensions = ctypes.c_uint64()
        result = ctypes.POINTER(ctypes.c_float)()
        code = _library().XGBoosterPredictFromDense(
            self._handle, interface, _CONFIG, None,
            ctypes.byref(shape), ctypes.byref(dimensions), ctypes.byref(result),
        )  # fmt: skip
        _check(code, "the boosted trees cannot be evaluated")
        return np.ctypeslib.as_array(result, (len(rows),)).astype(np.float64)
