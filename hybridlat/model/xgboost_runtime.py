"""Boosted trees in XGBoost's own file format, evaluated through its C library.

XGBoost's Python package imports scikit-learn and pandas where they are installed, which takes
seconds; the library under it loads in milliseconds, and is two to three times as quick as the same
trees under ONNX Runtime. The C functions used here are public and documented as stable.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import runpy
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridlat.errors import StoreError, UnavailableError

_log = logging.getLogger(__name__)
_SUM_OF_LEAVES = 1  # without the objective's transformation
_CONFIG = json.dumps({
    "type": _SUM_OF_LEAVES, "training": False, "iteration_begin": 0, "iteration_end": 0,
    "strict_shape": False, "missing": float("nan"),
}).encode()  # fmt: skip


@cache
def _library() -> ctypes.CDLL:
    """XGBoost's shared library, found without importing its Python package."""
    package = importlib.util.find_spec("xgboost")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for path in _candidates(Path(folder)):
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            library.XGBGetLastError.restype = ctypes.c_char_p
            return library
    raise UnavailableError(
        "predicting with boosted trees needs the library of the package 'xgboost', which is not "
        "here or cannot be loaded: install it with `pip install xgboost-cpu` (or `xgboost`)"
    )


def _candidates(folder: Path) -> list[str]:
    """Where the package's own finder, a small module run alone, sees the library."""
    try:
        finder = runpy.run_path(str(folder / "libpath.py"))
        return [str(path) for path in finder["find_lib_path"]()]
    except Exception as error:  # noqa: BLE001 - another package's module: whatever it raises
        _log.debug("xgboost's own finder of its library failed: %s", error)
        return []


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
        library, damaged = _library(), "the file of boosted trees is damaged"
        created = library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(self._handle))
        _check(created, "boosted trees cannot be created")
        size = ctypes.c_uint64(len(ubj))
        _check(library.XGBoosterLoadModelFromBuffer(self._handle, ubj, size), damaged)
        _check(library.XGBoosterSetParam(self._handle, b"nthread", b"1"), "one thread is refused")
        width = ctypes.c_uint64()
        _check(library.XGBoosterGetNumFeature(self._handle, ctypes.byref(width)), damaged)
        if width.value != columns:
            raise StoreError(
                f"the boosted trees read {width.value} features, the model has {columns}"
            )

    def __reduce__(self) -> tuple[type[Booster], tuple[bytes, int]]:
        """As its bytes, to cross processes; never to be kept so."""
        return Booster, (self.ubj, self.columns)

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
            self._handle,
            interface,
            _CONFIG,
            None,
            ctypes.byref(shape),
            ctypes.byref(dimensions),
            ctypes.byref(result),
        )
        _check(code, "the boosted trees cannot be evaluated")
        return np.ctypeslib.as_array(result, (len(rows),)).astype(np.float64)
