"""The arrays and numbers of a model's files: read within bounds, and held to their form."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hybridlat.errors import HybridlatError, StoreError
from hybridlat.schema.files import MOST_BYTES

_LONGEST_REASON = 200


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """StoreError, after ``what``, for what a damaged file raises: it has no common class."""
    try:
        yield
    except HybridlatError:
        raise
    except Exception as error:  # noqa: BLE001
        raise StoreError(f"{what}: {error!r:.{_LONGEST_REASON}}") from None


def hash_of(data: bytes) -> str:
    """Of a file of a model, 16 hex digits."""
    return hashlib.sha256(data).hexdigest()[:16]


class Arrays(dict[str, NDArray[Any]]):
    """The arrays of an npz file by name, at most 256 MiB; what is damaged is for ``reading``."""

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            size = 0
            for entry in zipped.infolist():
                size += entry.file_size
                if size > MOST_BYTES or entry.compress_type not in (0, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"its arrays take more than {MOST_BYTES >> 20} MiB")
                with zipped.open(entry) as member:  # a size that is understated is an error too
                    content = member.read(entry.file_size + 1)
                self[entry.filename.removesuffix(".npy")] = _array(content)

    def take(
        self, name: str, *shape: int, kind: str = "f", low: float = -np.inf, high: float = np.inf
    ) -> NDArray[Any]:
        """The array of that shape (-1: any length) with finite numbers of a kind, within bounds.

        ``kind`` is numpy's: ``f`` for floats, ``iu`` for integers. ValueError where it is not so.
        """
        array = self[name]
        sizes = tuple(a if b < 0 else b for a, b in zip(array.shape, shape, strict=False))
        if array.shape != sizes or len(sizes) != len(shape) or array.dtype.kind not in kind:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not {shape}")
        ends = (array.min(), array.max()) if array.size else ()  # NaN where there is one
        if not all(np.isfinite(end) and low <= end <= high for end in ends):
            raise ValueError(f"{name} has numbers that it cannot have")
        return array


def _array(data: bytes) -> NDArray[Any]:
    stream = io.BytesIO(data)
    npy.read_magic(stream)  # of the first format: its headers hold up to 64 KiB
    shape, is_fortran, dtype = npy.read_array_header_1_0(stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError(f"an array is not {dtype} {shape}")
    return np.ndarray(shape, dtype, data, stream.tell(), order="F" if is_fortran else "C")
