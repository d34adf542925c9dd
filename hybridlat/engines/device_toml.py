"""A device's data sheet as a TOML file: read with its mistakes named, and written."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from hybridlat.errors import TargetError
from hybridlat.schema.device import Device
from hybridlat.schema.target import PRECISIONS

_NUMBERS = {  # key -> its unit in words
    "bandwidth_gb_per_s": "GB per second", "units": "a whole number", "clock_mhz": "MHz",
    "tensor_clock_mhz": "MHz", "memory_gb": "GB", "launch_us": "microseconds",
    "bus_bits": "bits", "data_rate_gbit_per_s": "Gbit per second", "cores_per_unit": "a count",
}  # fmt: skip
_TEXTS = ("title", "kind", "architecture", "compute_capability", "source")
_RATES = ("peak_tflops", "sustained_tflops")  # tables by precision
_TABLES = (*_RATES, "cache_kib", "sources")
_SOURCED = ("architecture", "compute_capability", "cache_kib")  # beside the numbers and peaks
_KEYS = (*_TEXTS, *_NUMBERS, *_TABLES)
_WHOLE = ("units", "bus_bits", "cores_per_unit")
_OWN = "not stated"


def read(file: Path | str, name: str | None = None) -> Device:
    """The data sheet in ``file``, whose stem is the device's name unless one is given.

    TargetError says in one sentence what is wrong with it. Numbers become base units (FLOP per
    second, bytes, hertz).
    """
    path = Path(file)
    try:
        sheet: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        _refuse(path, f"it cannot be read ({error.strerror or error})")
    except ValueError as error:
        _refuse(path, f"it is not TOML ({error})")
    _check_keys(path, sheet)
    kind = sheet.get("kind")
    if kind not in ("gpu", "cpu"):
        _refuse(path, f'kind is {kind!r}, but must be "gpu" or "cpu"')
    memory = _optional(path, sheet, "memory_gb")
    source = str(sheet.get("source", _OWN))
    device = name or path.stem
    return Device(
        name=device,
        kind=kind,
        peak_flops=_peaks(path, sheet),
        sustained_flops=_rates(path, sheet, "sustained_tflops"),
        bandwidth_bytes_per_s=_number(path, sheet, "bandwidth_gb_per_s") * 1e9,
        units=int(_number(path, sheet, "units")),
        clock_hz=_number(path, sheet, "clock_mhz", zero=kind == "cpu") * 1e6,
        cache_bytes=_caches(path, sheet),
        source=source,
        title=str(sheet.get("title") or device),
        architecture=str(sheet.get("architecture", "")),
        compute_capability=str(sheet.get("compute_capability", "")),
        memory_bytes=None if memory is None else int(memory * 2**30),
        launch_us=_optional(path, sheet, "launch_us"),
        sources=_sources(path, sheet, source),
    )


def to_toml(device: Device) -> str:
    """A device as the text of a data sheet, so that a measured one can be kept."""
    lines = [f"title = {_quoted(device.title or device.name)}", f"kind = {_quoted(device.kind)}"]
    for key in ("architecture", "compute_capability", "source"):
        if getattr(device, key):
            lines.append(f"{key} = {_quoted(getattr(device, key))}")
    lines += [f"units = {device.units}", f"clock_mhz = {device.clock_hz / 1e6:.6g}"]
    lines.append(f"bandwidth_gb_per_s = {device.bandwidth_bytes_per_s / 1e9:.6g}")
    if device.memory_bytes is not None:
        lines.append(f"memory_gb = {device.memory_bytes / 2**30:.6g}")
    if device.launch_us is not None:
        lines.append(f"launch_us = {device.launch_us:.6g}")
    lines.append(f"cache_kib = [{', '.join(f'{size / 1024:g}' for size in device.cache_bytes)}]")
    written = {line.partition(" = ")[0] for line in lines}
    for table, rates in zip(_RATES, (device.peak_flops, device.sustained_flops), strict=True):
        if rates:
            lines += ["", f"[{table}]"]
            lines += [f"{k} = {v / 1e12:.6g}" for k, v in sorted(rates.items())]
            written |= {f"{table}.{precision}" for precision in rates}
    others = {k: t for k, t in device.sources.items() if k in written and t != device.source}
    for table in ("sources", *(f"sources.{rates}" for rates in _RATES)):
        prefix = table.partition(".")[2]
        inside = {k: t for k, t in others.items() if k.rpartition(".")[0] == prefix}
        if inside:
            lines += ["", f"[{table}]"]
            lines += [f"{k.split('.')[-1]} = {_quoted(t)}" for k, t in sorted(inside.items())]
    return "\n".join(lines) + "\n"


def _refuse(path: Path, why: str) -> NoReturn:
    raise TargetError(f"{path} is not a data sheet of a device: {why}") from None


def _check_keys(path: Path, sheet: Mapping[str, Any]) -> None:
    for key, value in sheet.items():
        if key not in _KEYS:
            _refuse(path, f"{key} is no key of it; choose from {', '.join(_KEYS)}")
        if key in _NUMBERS:
            _number(path, sheet, key, zero=key == "clock_mhz")
        if key in _TEXTS and not isinstance(value, str):
            _refuse(path, f"{key} is {value!r}, but must be a text in quotes")


def _number(path: Path, sheet: Mapping[str, Any], key: str, *, zero: bool = False) -> float:
    if key not in sheet:
        _refuse(path, f"it lacks {key} ({_NUMBERS[key]})")
    value = sheet[key]
    if not _is_number(value) or value < 0 or (value == 0 and not zero):
        _refuse(path, f"{key} is {value!r}, but must be a positive number ({_NUMBERS[key]})")
    if key in _WHOLE and value != int(value):
        _refuse(path, f"{key} is {value!r}, but must be a whole number")
    return float(value)


def _optional(path: Path, sheet: Mapping[str, Any], key: str) -> float | None:
    return _number(path, sheet, key) if key in sheet else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _peaks(path: Path, sheet: Mapping[str, Any]) -> dict[str, float]:
    peaks = sheet.get("peak_tflops")
    if not isinstance(peaks, dict) or "fp32" not in peaks:
        _refuse(path, "it needs a table [peak_tflops] with at least fp32")
    return _rates(path, sheet, "peak_tflops")


def _rates(path: Path, sheet: Mapping[str, Any], table: str) -> dict[str, float]:
    """FLOP per second by precision, of a table that may be missing."""
    rates = sheet.get(table, {})
    if not isinstance(rates, dict):
        _refuse(path, f"{table} must be a table: [{table}] with one number for each precision")
    for precision, value in rates.items():
        if precision not in PRECISIONS:
            _refuse(path, f"{table} knows no {precision}; choose from {', '.join(PRECISIONS)}")
        if not _is_number(value) or value <= 0:
            _refuse(path, f"{table}.{precision} is {value!r}, but must be a positive number")
    return {precision: float(value) * 1e12 for precision, value in rates.items()}


def _caches(path: Path, sheet: Mapping[str, Any]) -> tuple[int, ...]:
    caches = sheet.get("cache_kib", [])
    if not isinstance(caches, list) or not all(_is_number(c) and c > 0 for c in caches):
        _refuse(path, f"cache_kib is {caches!r}, but must be a list of sizes in KiB, nearest first")
    return tuple(int(c * 1024) for c in caches)


def _sources(path: Path, sheet: Mapping[str, Any], source: str) -> dict[str, str]:
    """Where each number comes from: what [sources] says of it, else ``source``.

    One text for ``peak_tflops`` or ``sustained_tflops`` stands for all precisions.
    """
    stated = sheet.get("sources", {})
    if not isinstance(stated, dict):
        _refuse(path, "sources must be a table: [sources] with one text for each key")
    places = {k: source for k in sheet if k in (*_NUMBERS, *_SOURCED)}
    rates = {f"{table}.{p}": source for table in _RATES for p in sheet.get(table, ())}
    named: dict[str, object] = {}
    for key, text in stated.items():
        if key in _RATES and isinstance(text, dict):
            named.update({f"{key}.{precision}": one for precision, one in text.items()})
        elif key in _RATES:
            named.update({k: text for k in rates if k.startswith(f"{key}.")})
        else:
            named[key] = text
    sources = places | rates
    for toml_key, one in named.items():
        if toml_key not in sources:
            _refuse(path, f"sources names {toml_key}, which the sheet does not have")
        if not isinstance(one, str) or not one.strip():
            _refuse(path, f"the source of {toml_key} is {one!r}, but must be a text")
        sources[toml_key] = one
    return sources


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's basic strings know JSON's escapes
