"""Which column of a table is which field, by a TOML file or by the columns' names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from hybridlat.errors import InputError, StoreError
from hybridlat.schema.wire import phrase_of

FIELDS: Mapping[str, tuple[str, ...]] = {
    "network": ("network", "net", "architecture", "arch", "model_name", "model"),
    "onnx": ("onnx", "onnx_file"),
    "target": ("target",),
    "device": ("device", "gpu", "accelerator", "hardware"),
    "engine": ("engine", "runtime", "framework", "backend", "software"),
    "version": ("engine_version", "runtime_version", "framework_version", "version"),
    "precision": ("precision", "dtype", "data_type"),
    "threads": ("threads",),
    "batch": ("batch", "batch_size", "infer_batch_size", "bs"),
    "size": ("size", "input_size", "image_size", "img_size", "infer_img_size", "resolution"),
    "height": ("height",),
    "width": ("width",),
    "layout": ("layout", "memory_format"),
    "source": ("source",),
    "note": ("note", "notes", "comment"),
    "latency": (
        "latency", "median_latency", "latency_median", "median", "inference_time", "mean_latency",
        "latency_mean", "mean", "infer_step_time", "time",
    ),
    "throughput": (
        "images_per_second", "images_per_sec", "samples_per_second", "samples_per_sec",
        "infer_samples_per_sec", "img_per_sec", "throughput", "fps",
    ),
}  # fmt: skip
"""Fields, and the names by which their columns are known without a mapping."""
US_OF_UNIT: Mapping[str, float] = {
    "ns": 1e-3, "nanoseconds": 1e-3,
    "us": 1.0, "µs": 1.0, "μs": 1.0, "usec": 1.0, "microseconds": 1.0,
    "ms": 1e3, "msec": 1e3, "milliseconds": 1e3,
    "s": 1e6, "sec": 1e6, "seconds": 1e6,
}  # fmt: skip
_UNIT_IN_NAME = re.compile(
    rf"(.+?)[ _]?[ _(\[]({'|'.join(sorted(US_OF_UNIT, key=len, reverse=True))})[)\]]?",
    re.IGNORECASE,
)


class ColumnMap(Struct, frozen=True, forbid_unknown_fields=True):
    """What a mapping file says.

    ``columns`` field → column; ``constants`` field → value for rows that state none; ``units``
    of the latency; ``values`` field → the table's word → hybridlat's; ``labels`` further columns
    that records keep.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


def read_column_map(path: Path) -> ColumnMap:
    """The mapping in a TOML file; InputError names what it cannot say, and the choices."""
    try:
        read = msgspec.convert(_texts(tomllib.loads(path.read_text(encoding="utf-8"))), ColumnMap)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} is no mapping: {phrase_of(error)} (it may hold tables of texts, [columns], "
            "[constants], [units] and [values.FIELD], and a list of texts, labels)"
        ) from None
    choices = ", ".join(FIELDS)
    for name in ("columns", "constants", "values"):
        known = FIELDS.keys() - ({"latency", "throughput"} if name == "constants" else ())
        for unknown in getattr(read, name).keys() - known:
            raise InputError(f"{path}: {name} knows no field {unknown!r}: choose from {choices}")
    for key, unit in read.units.items():
        if key != "latency" or unit not in US_OF_UNIT:
            raise InputError(f"{path}: units has {key} = {unit!r}: write latency = ns, us, ms or s")
    return read


def _texts(value: object) -> object:
    """The TOML with numbers as texts."""
    if isinstance(value, dict):
        return {name: _texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return as_text(value) if type(value) in (int, float) else value


def completed(column_map: ColumnMap, path: Path, header: Sequence[str]) -> ColumnMap:
    """The mapping with the columns and the unit that a table's header names by itself.

    StoreError for what is missing in the table at ``path``.
    """
    for column in (*column_map.columns.values(), *column_map.labels):
        if column not in header:
            raise StoreError(
                f"{path} has no column {column!r}, which the mapping names: it has "
                + ", ".join(header)
            )
    columns = dict(column_map.columns)
    free = [column for column in reversed(header) if column not in columns.values()]
    plain = {_plain(column): column for column in free}
    timed = {name: column for column in free for name, unit in [_unit_of(column)] if unit}
    for name in FIELDS.keys() - {*columns, *column_map.constants}:
        named = timed if name == "latency" else plain
        known = [named[alias] for alias in FIELDS[name] if alias in named]
        if known:
            columns[name] = known[0]
    unit = column_map.units.get("latency") or _unit_of(columns.get("latency", ""))[1]
    if not {"latency", "throughput"} & columns.keys():
        bare = [c for c in header if _plain(c) in FIELDS["latency"]]
        raise StoreError(
            f"{path} has no column of latencies with a unit in its name (latency_us, latency_ms, "
            "latency_s) and none of images_per_second"
            + (f", and {bare[0]!r} does not say its unit" if bare else "")
            + ": rename it, or name it and its unit with --columns"
        )
    if "latency" in columns and not unit:
        raise StoreError(
            f"{path}: the unit of {columns['latency']!r} is not stated: add "
            '[units] latency = "ms" to the mapping'
        )
    if not {"network", "onnx"} & {*columns, *column_map.constants}:
        raise StoreError(
            f"{path} has no column network, model or onnx: rename it, or name it with --columns"
        )
    return msgspec.structs.replace(column_map, columns=columns, units={"latency": unit})


def _unit_of(column: str) -> tuple[str, str]:
    """``latency_ms`` or ``Latency (ms)`` as (latency, ms); no unit, no second."""
    match = _UNIT_IN_NAME.fullmatch(column.strip())
    return (_plain(match[1]), match[2].lower()) if match else (_plain(column), "")


def _plain(column: str) -> str:
    return re.sub(r"[\s_-]+", "_", column.strip().lower())


def as_text(value: object) -> str:
    """A cell of a table as text; empty for a missing one, and 8.0 is 8."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
