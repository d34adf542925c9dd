"""Which versions of engines there are: what was never published is refused, not predicted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hybridlat.errors import TargetError
from hybridlat.schema.target import version_key

_TENSORRT = {1: 0, 2: 1, 3: 0, 4: 0, 5: 1, 6: 0, 7: 2, 8: 6, 9: 3, 10: 30, 11: 4}
_OPENVINO = {2018: 5, 2019: 3, 2020: 4, 2021: 4, 2022: 3, 2023: 3, 2024: 6, 2025: 4, 2026: 4}
_LAST: Mapping[str, Mapping[int, int]] = {
    "onnxruntime": {1: 32},
    "openvino": _OPENVINO,
    "paddle-tensorrt": {**_TENSORRT, 2020: 12, 2021: 12},
    "tensorrt": _TENSORRT,
    "tensorrt-rtx": {1: 7},
    "torch": {0: 4, 1: 13, 2: 13},
    "torch-compile": {2: 13},
}
"""Of each engine the last minor version of every major one; the last of all is the newest known."""
_MOST_AHEAD = 20
_CONTAINER = re.compile(r"(1[7-9]|[2-9][0-9])\.(0[1-9]|1[0-2])(\.[0-9]+)?")


def refuse_version(engine: str, version: str) -> None:
    """TargetError for a version that an engine never had; those of unknown engines pass.

    The next major version passes, and twenty minor ones beyond the newest known.
    """
    last, (major, minor, *_) = _LAST.get(engine), (*version_key(version), 0, 0)
    if last is None or not version_key(version):
        return
    newest = max(major for major in last if major < 2000 or engine == "openvino")
    most = _MOST_AHEAD if major == newest + 1 else last.get(major, -1)
    if minor <= most + (_MOST_AHEAD if major == newest else 0):
        return
    known = f"the newest known is {newest}.{last[newest]}"
    if _CONTAINER.fullmatch(version):
        known = f"{version} is a container's year and month: write the version of {engine} in it"
    raise TargetError(
        f"{engine}-{version} names no version of {engine}: {known}, or leave it out for the newest "
        "on record"
    )
