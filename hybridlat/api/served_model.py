"""A model of MLflow's registry as MLflow loads it: networks in, latencies out.

It answers from its own folder alone: what this machine has measured or installed does not count.
"""

import math
import time
from pathlib import Path
from typing import Any

from hybridlat.api.arguments import Item, Options, Query
from hybridlat.api.session import Session, Sessions, estimate
from hybridlat.engines.registry import resolve
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.models import read_model, read_target
from hybridlat.store import Store


class ServedModel:
    """The pyfunc of the model files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        """StoreError where the files are damaged or of another format."""
        self.model, self.target = read_model(folder), read_target(folder)
        # The device is the one trained for, whatever is known of it here.
        options = Options(measure="never", device=self.model.device, models=(folder,))
        first = Session(resolve(self.target), self.target, options, Store("sqlite://"))
        self.sessions = Sessions(first, resolve)

    def predict(self, rows: Any, params: object = None) -> Any:
        """A data frame of latency and interval in µs, for each row of a data frame.

        ``path`` names an ONNX file or a shipped network, at ``batch`` where there is one; else
        ``cell`` is the text of a cell's signature. InputError for a network of another target.
        """
        if "path" in rows:
            batches = rows["batch"] if "batch" in rows else [None] * len(rows)
            rows_us = [self._network(*row) for row in zip(rows["path"], batches, strict=True)]
        elif "cell" in rows:
            cells = self.model.predict(list(rows["cell"]))
            rows_us = [(one.latency_us, *(one.interval_us or (None, None))) for one in cells]
        else:
            raise InputError(f"the columns are {list(rows)}: one must be path, or cell")
        return type(rows)(rows_us, rows.index, ["latency_us", "low_us", "high_us"], float)

    def _network(self, path: str, batch: Any) -> tuple[float | None, ...]:
        if isinstance(batch, float):  # as pandas has whole numbers beside a missing one
            batch = None if math.isnan(batch) else int(batch) if batch.is_integer() else batch
        opened, started = Item(path).opened(Query(batch)), time.perf_counter()
        session = self.sessions.of(opened.file)
        if session is not self.sessions.first:
            raise InputError(f"{path} is of {session.target}, the model of {self.target}")
        answer = estimate(session, opened, started)
        return answer.latency_us, answer.low_us, answer.high_us
