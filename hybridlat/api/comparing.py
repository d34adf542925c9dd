"""Networks side by side, on one target or on several, and how their errors go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybridlat.api.session import Session
from hybridlat.api.sources import ManySource, Opened, Query, items_of
from hybridlat.report.views import Comparison

if TYPE_CHECKING:
    from hybridlat.api.predictor import Predictor
    from hybridlat.estimate.predict.family import Family


def compared(
    predictors: Sequence[Predictor], sources: Sequence[ManySource], query: Query
) -> Comparison:
    """Every network on every target; the first on the first is what others are compared with."""
    options: dict[str, Any] = {"input": query.example, "batch": query.batch}
    options |= {"shapes": query.shapes, "describe": True}
    estimates = [one for each in predictors for one in each.predict_many(sources, **options)]
    if not all(cell.source == "predicted" for one in estimates for cell in one.cells):
        return Comparison(tuple(estimates))
    opened = [item.opened(query) for item in items_of(sources)]
    pairs = [(each.sessions.of(one.file), one) for each in predictors for one in opened]
    return Comparison(tuple(estimates), _correlations(pairs))


def _correlations(pairs: Sequence[tuple[Session, Opened]]) -> tuple[float, ...]:
    """Of the errors with the first's, where one family of GPUs predicts all of them."""
    laws: list[Family] = [law for session, _ in pairs if (law := session.law) is not None]
    if len(laws) < len(pairs) or len({law.model.tasks for law in laws}) > 1:
        return ()
    networks = [session.given(opened, math.nan) for session, opened in pairs]
    return tuple(laws[0].correlations(list(zip(laws, networks, strict=True))))
