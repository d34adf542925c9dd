"""A registered model as MLflow serves it: ONNX files in, latencies and intervals out.

MLflow is told this module's name when a model is kept (see ``evaluation.mlflow_tracker``), and
calls ``_load_pyfunc`` with the folder of its files: code from the package, data from the registry,
nothing pickled. Cells that the default store or a shipped pack knows are looked up, the others
predicted by the registered model; nothing is measured.
"""

from __future__ import annotations

import base64
import math
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat import onnx_io
from hybridlat.errors import HybridlatError
from hybridlat.estimate.model_folders import read_target
from hybridlat.estimate.network_estimate import Request, estimate_network
from hybridlat.estimate.partitioner import Partitioner
from hybridlat.estimate.target_data import TargetData
from hybridlat.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from hybridlat.schema.estimate import Estimate

_TOLERANCE = 0.05
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_NOTHING = {"latency_us": math.nan, "low_us": math.nan, "high_us": math.nan, "measured_share": 0.0}


class ServedModel:
    """Answers for ONNX files on the target whose model files lie in ``folder``."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        target = read_target(folder)
        kept = Store(store)
        self._partitioner = Partitioner(target, kept)
        self._data = TargetData(target, kept, models=[folder])

    def predict(
        self, model_input: object, params: Mapping[str, object] | None = None
    ) -> pd.DataFrame:
        """One row per file; ``params`` may hold ``batch`` (0: the file's) and ``confidence``.

        A file that cannot be answered has no latency and a ``reason``, and costs the others
        nothing.
        """
        import pandas as pd

        given = dict(params or {})
        batch = int(str(given.get("batch") or 0)) or None
        confidence = float(str(given.get("confidence") or 0.9))
        rows = []
        for number, body in enumerate(_files(model_input)):
            row: dict[str, object] = {**_NOTHING, "network": f"network {number}", "reason": ""}
            try:
                row.update(_row(self._estimate(body, str(row["network"]), batch, confidence)))
            except HybridlatError as error:
                row["reason"] = str(error)
            rows.append(row)
        return pd.DataFrame(rows)

    def _estimate(self, body: bytes, name: str, batch: int | None, confidence: float) -> Estimate:
        started = time.perf_counter()
        file = onnx_io.load(body, name)
        request = Request(
            file,
            self._partitioner.partition(file, batch, None),
            partial(file.network, batch, None),
            _TOLERANCE,
            confidence,
            started=started,
        )
        return estimate_network(request, self._data)


def _row(estimate: Estimate) -> dict[str, object]:
    low, high = estimate.interval_us or (math.nan, math.nan)
    answered = estimate.latency_us is not None
    return {
        "network": estimate.network,
        "latency_us": estimate.latency_us if answered else math.nan,
        "low_us": low,
        "high_us": high,
        "measured_share": estimate.measured_share,
        "reason": "" if answered else "; ".join(estimate.warnings),
    }


def _files(given: Any) -> Iterable[bytes]:
    """The files of a list, an array, or the first column of a table."""
    if hasattr(given, "iloc"):
        given = given.iloc[:, 0] if getattr(given, "ndim", 1) > 1 else given
    for body in given.ravel() if hasattr(given, "ravel") else given:
        yield _decoded(body.encode() if isinstance(body, str) else bytes(body))


def _decoded(body: bytes) -> bytes:
    """The file itself: over HTTP it comes as base64, and the server decodes some requests only."""
    return base64.b64decode(body) if _BASE64.fullmatch(body) else body


def _load_pyfunc(path: str) -> ServedModel:
    """What MLflow calls."""
    return ServedModel(Path(path))
