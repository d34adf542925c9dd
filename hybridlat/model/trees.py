"""Boosted trees: grown by XGBoost's package, evaluated through its C library.

The package imports scikit-learn and pandas where they are installed, which takes seconds. The
library under it loads in milliseconds, and is two to three times as quick as the same trees under
ONNX Runtime. The C functions used here are public and documented as stable.
"""

import ctypes
import importlib.util
import json
import logging
import runpy
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hybridlat.errors import StoreError, UnavailableError
from hybridlat.model.geometry import Array, Flags, Float32, Positions

_log = logging.getLogger(__name__)
_COMMON: dict[str, object] = {
    "subsample": 0.7, "colsample_bynode": 0.3, "base_score": 0.0, "nthread": 1,
    "tree_method": "hist",
}  # fmt: skip
_CONFIG = json.dumps({
    # Type 1 is the sum of leaves, without the objective's transformation.
    "type": 1, "training": False, "iteration_begin": 0, "iteration_end": 0,
    "strict_shape": False, "missing": float("nan"),
}).encode()  # fmt: skip


@cache
def _library() -> ctypes.CDLL:
    """XGBoost's shared library, found without importing its Python package."""
    package = importlib.util.find_spec("xgboost")
    for folder in (package.submodule_search_locations or ()) if package else ():
        try:  # the package's own finder is a small module, which runs alone
            paths = runpy.run_path(str(Path(folder, "libpath.py")))["find_lib_path"]()
        except Exception as error:  # noqa: BLE001 - another package's module: whatever it raises
            _log.debug("xgboost's own finder of its library failed: %s", error)
            continue
        for path in paths:
            with suppress(OSError):
                library = ctypes.CDLL(str(path))
                library.XGBGetLastError.restype = ctypes.c_char_p
                return library
    raise UnavailableError(
        "predicting with boosted trees needs the library of the package 'xgboost', which is not "
        "here or cannot be loaded: install it with `pip install xgboost-cpu` (or `xgboost`)"
    )


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
        damaged = "the file of boosted trees is damaged"
        if not (ubj.startswith(b"{") and ubj.endswith(b"}")):
            # XGBoost does not refuse a file that was cut off: it ends the process.
            raise StoreError(f"{damaged}: it is not a whole UBJSON object")
        library, handle = _library(), self._handle
        self._free = library.XGBoosterFree  # at Python's end no module can be found any more
        created = library.XGBoosterCreate(None, ctypes.c_uint64(0), ctypes.byref(handle))
        _check(created, "boosted trees cannot be created")
        size, width = ctypes.c_uint64(len(ubj)), ctypes.c_uint64()
        _check(library.XGBoosterLoadModelFromBuffer(handle, ubj, size), damaged)
        _check(library.XGBoosterSetParam(handle, b"nthread", b"1"), "one thread is refused")
        _check(library.XGBoosterGetNumFeature(handle, ctypes.byref(width)), damaged)
        if width.value != columns:
            raise StoreError(
                f"the boosted trees read {width.value} features, the model has {columns}"
            )

    def __reduce__(self) -> "tuple[type[Booster], tuple[bytes, int]]":
        """As its bytes, to cross processes; never to be kept so."""
        return Booster, (self.ubj, self.columns)

    def __del__(self) -> None:
        if self._handle:
            self._free(self._handle)

    def predict(self, rows: Float32) -> Array:
        """The sum of the leaves for every row."""
        if len(rows) == 0:
            return np.zeros(0)
        rows = np.ascontiguousarray(rows, np.float32)
        interface = json.dumps(rows.__array_interface__).encode()
        shape, dimensions = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
        result = ctypes.POINTER(ctypes.c_float)()
        answers = map(ctypes.byref, (shape, dimensions, result))
        predict = _library().XGBoosterPredictFromDense
        code = predict(self._handle, interface, _CONFIG, None, *answers)
        _check(code, "the boosted trees cannot be evaluated")
        return np.ctypeslib.as_array(result, (len(rows),)).astype(np.float64)


def _served(grown: Any) -> Booster:
    return Booster(bytes(grown.save_raw("ubj")), grown.num_features())


class Table:
    """Rows with their weights; a choice of them is sorted into bins once."""

    def __init__(self, rows: Float32, weights: Array, seed: int) -> None:
        self.rows, self._weights, self._seed = rows, weights, seed
        self._binned: dict[bytes, Any] = {}

    def with_last(self, column: Array) -> "Table":
        """The same rows with other numbers in the last column."""
        rows = self.rows.copy()
        rows[:, -1] = column
        return Table(rows, self._weights, self._seed)

    def grown(self, taken: Flags, values: Array, trees: int, **shape: object) -> Booster:
        """So many trees by gradient boosting on the rows ``taken``, of XGBoost's parameters."""
        import xgboost

        if (key := taken.tobytes()) not in self._binned:
            weights = self._weights[taken]
            self._binned[key] = xgboost.DMatrix(self.rows[taken], weight=weights)
        self._binned[key].set_label(values[taken])
        parameters = {**_COMMON, "seed": self._seed, **shape}
        return _served(xgboost.train(parameters, self._binned[key], trees))


def grown_on_sums(
    rows: Float32, base: Array, owner: Positions, beside: Array, logs: Array, seed: int
) -> Booster:
    """Trees boosted on sums: rows are parts, their logarithms to ``base`` what the trees answer.

    ``owner`` is the sum of each part, ``beside`` what a sum holds besides them, ``logs`` the
    logarithms that the sums come to. The gradient of half a squared error in logarithms is the
    part's share of the sum times the error; the curvature is taken as the share.
    """
    import xgboost

    each = len(rows) / len(logs)  # shares of about 1, for the trees' penalties

    def slopes(margins: Array, _: object) -> tuple[Array, Array]:
        parts = base * np.exp(margins)
        sums = np.bincount(owner, parts, len(logs)) + beside
        share = each * parts / sums[owner]
        return share * (np.log(sums) - logs)[owner], share

    shape = {**_COMMON, "seed": seed, "max_depth": 4, "eta": 0.1}
    return _served(xgboost.train(shape, xgboost.DMatrix(rows), 200, obj=slopes))
