"""A registered model as MLflow serves it: ONNX files in, latencies and intervals out.

MLflow gets this module's name when a model is kept (see ``evaluation.tracking``), and
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridlat.api.session import Options, Session, estimate
from hybridlat.api.sources import open_source
from hybridlat.engines.registry import ResolvedEngine
from hybridlat.errors import HybridlatError
from hybridlat.estimate.lookup.models import read_target
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.partition import Partitioner
from hybridlat.schema.estimate import Estimate
from hybridlat.store import Store

if TYPE_CHECKING:
    import pandas as pd

_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_NOTHING = {"latency_us": math.nan, "low_us": math.nan, "high_us": math.nan, "measured_share": 0.0}


class ServedModel:
    """Answers for ONNX files on the target whose model files lie in ``folder``."""

    def __init__(self, folder: Path, store: str | None = None) -> None:
        target, opened = read_target(folder), Store(store)
        self._session = Session(
            ResolvedEngine(target), target, Options(measure="never"), opened,
            TargetData(target, opened, models=[folder]), Partitioner(target, opened),
        )  # fmt: skip

    def predict(
        self, model_input: object, params: Mapping[str, object] | None = None
    ) -> pd.DataFrame:
        """One row per file; ``params`` may hold ``batch`` (0: the file's) and ``confidence``.

        A file that cannot be answered has no latency and a ``reason``, and costs the others
        nothing.
        """
        import pandas as pd

        chosen = dict(params or {})
        batch = int(str(chosen.get("batch") or 0)) or None
        confidence = float(str(chosen.get("confidence") or 0.9))
        session = replace(
            self._session, options=replace(self._session.options, confidence=confidence)
        )
        rows = []
        for number, body in enumerate(_files(model_input)):
            row: dict[str, object] = {**_NOTHING, "network": f"network {number}", "reason": ""}
            started = time.perf_counter()
            try:
                opened = open_source(body, batch=batch, name=str(row["network"]))
                row.update(_row(estimate(session, opened, started)))
            except HybridlatError as error:
                row["reason"] = str(error)
            rows.append(row)
        return pd.DataFrame(rows)


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


def _files(model_input: Any) -> Iterable[bytes]:
    """The files of a list, an array, or the first column of a table."""
    if hasattr(model_input, "iloc"):
        model_input = model_input.iloc[:, 0] if model_input.ndim > 1 else model_input
    for body in model_input.ravel() if hasattr(model_input, "ravel") else model_input:
        yield _decoded(body.encode() if isinstance(body, str) else bytes(body))


def _decoded(body: bytes) -> bytes:
    """The file itself: over HTTP it comes as base64, and the server decodes some requests only."""
    return base64.b64decode(body) if _BASE64.fullmatch(body) else body


def _load_pyfunc(path: str) -> ServedModel:
    """What MLflow calls."""
    return ServedModel(Path(path))
