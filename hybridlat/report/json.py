"""The machine-readable answer: one JSON document, the same fields in the same order always."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hybridlat.schema.estimate import Estimate


def document(value: object) -> str:
    """Any JSON value as the text that is printed, in ASCII so that no terminal can spoil it.

    NaN and infinities are no JSON: ValueError.
    """
    return json.dumps(value, allow_nan=False, indent=2)


def estimates_document(estimates: Sequence[Estimate], *, as_list: bool) -> str:
    """``predict --json``: one object for one network, a list when several were asked for."""
    objects = [estimate.to_json() for estimate in estimates]
    return document(objects if as_list else objects[0])
