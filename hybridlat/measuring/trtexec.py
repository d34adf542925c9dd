"""What trtexec exports with ``--exportLayerInfo`` and ``--exportTimes``, TensorRT 8.2 to 11."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridlat.errors import InputError

_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class ExportedLayer:
    """One layer of a built engine; ``nodes`` are its ONNX nodes, where the engine names them."""

    name: str
    kind: str = ""
    nodes: tuple[str, ...] = ()


def read_tolerant(text: str) -> Any:
    """JSON as TensorRT writes it: raw control characters in strings, commas before a bracket.

    Raises InputError for text that cannot be read even so.
    """
    for attempt in (text, re.sub(r",(\s*[\]}])", r"\1", text)):
        try:
            return json.loads(attempt, strict=False)
        except ValueError as error:
            problem = error
    raise InputError(f"this is not JSON as trtexec writes it: {problem}")


def read_export(path: str | Path) -> Any:
    """What trtexec wrote to a file; InputError where it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return read_tolerant(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def layers_of(content: Any) -> list[ExportedLayer]:
    """The layers in a parsed export; empty where it is something else."""
    if isinstance(content, Mapping) and "engine" in content:  # a runner's own dump
        content = content["engine"]
    entries = content.get("Layers", []) if isinstance(content, Mapping) else []
    return [_layer(entry) for entry in entries if isinstance(entry, str | Mapping)]


def _layer(entry: str | Mapping[str, Any]) -> ExportedLayer:
    if isinstance(entry, str):  # only the names, when built without detailed verbosity
        return ExportedLayer(entry, nodes=_nodes_of_name(entry))
    name = str(entry.get("Name", ""))
    nodes = tuple(dict.fromkeys(_ONNX_NODE.findall(str(entry.get("Metadata", "")))))
    return ExportedLayer(
        name,
        str(entry.get("LayerType", "")),
        nodes or _nodes_of_name(name),
    )


def _nodes_of_name(name: str) -> tuple[str, ...]:
    """Before 8.6 only the layer's name holds the ONNX nodes, joined by plus signs."""
    if name.startswith("Reformatting CopyNode"):
        return ()
    return tuple(part.strip() for part in re.split(r" \+ |\|\|", name) if part.strip())


def read_times(path: str | Path, warm_up_ms: float = 0.0) -> list[float]:
    """GPU compute time of every inference in ``--exportTimes``, microseconds.

    Inferences that began before ``warm_up_ms`` (the value of ``--warmUp``) are left out; some
    versions export them. Raises InputError for another file.
    """
    content = read_export(path)
    times_us = []
    for entry in content if isinstance(content, list) else []:
        if not isinstance(entry, Mapping) or not ("computeMs" in entry or "compute" in entry):
            continue
        if float(entry.get("startComputeMs", warm_up_ms)) >= warm_up_ms:
            times_us.append(
                float(entry["computeMs"] if "computeMs" in entry else entry["compute"]) * 1e3
            )
    if not times_us:
        raise InputError(f"{path} holds no times of trtexec (after {warm_up_ms:g} ms of warm-up)")
    return times_us
