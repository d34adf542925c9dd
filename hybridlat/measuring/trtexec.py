"""trtexec's ``--exportLayerInfo``, ``--exportProfile`` and ``--exportTimes``, TensorRT 8.2 to 11.

The profiler waits after every layer, so the sum of a profile is above the engine's latency, by
about one constant a layer on one GPU; :func:`fit_constant` finds it from engines whose latency is
known, :class:`ProfileReport` takes it off and shows it.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridlat.errors import InputError
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.schema.measurement import Measurement, Visit
from hybridlat.schema.target import Target

_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_FEWEST_TIMES = 5


@dataclass(frozen=True, slots=True)
class ExportedLayer:
    """One layer of a built engine; ``nodes`` are the ONNX nodes in it, where the engine tells."""

    name: str
    kind: str = ""
    tactic: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerTime:
    """A profiled layer: mean over ``runs`` and, where the version exports it, the median."""

    name: str
    mean_us: float
    median_us: float | None = None

    @property
    def time_us(self) -> float:
        """The median where there is one, else the mean."""
        return self.mean_us if self.median_us is None else self.median_us


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


def _read(path: str | Path) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return read_tolerant(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_layers(path: str | Path) -> list[ExportedLayer]:
    """The layers of an engine, from ``--exportLayerInfo`` or the engine inspector's JSON."""
    layers = layers_of(_read(path))
    if not layers:
        raise InputError(f"{path} lists no layers: build with --profilingVerbosity=detailed")
    return layers


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
        str(entry.get("TacticName", "") or entry.get("TacticValue", "")),
        nodes or _nodes_of_name(name),
    )


def _nodes_of_name(name: str) -> tuple[str, ...]:
    """Before 8.6 the ONNX nodes are told by the layer's name alone, joined by plus signs."""
    if name.startswith("Reformatting CopyNode"):
        return ()
    return tuple(part.strip() for part in re.split(r" \+ |\|\|", name) if part.strip())


def read_profile(path: str | Path) -> list[LayerTime]:
    """Layer times from ``--exportProfile`` (microseconds; 8.4 and later know the median)."""
    content = _read(path)
    if isinstance(content, Mapping) and "profile" in content:
        content = content["profile"]
    layers = profile_of(content)
    if not layers:
        raise InputError(f"{path} is no profile of trtexec: it has no layer with averageMs")
    return layers


def profile_of(content: Any) -> list[LayerTime]:
    """The layer times in a parsed export; empty where it is something else."""
    layers = []
    for entry in content if isinstance(content, list) else []:
        if not isinstance(entry, Mapping) or "name" not in entry:
            continue
        if "median_us" in entry:  # a runner's own dump
            layers.append(LayerTime(entry["name"], entry["median_us"], entry["median_us"]))
        elif "averageMs" in entry:
            median = entry.get("medianMs")
            layers.append(
                LayerTime(
                    str(entry["name"]),
                    float(entry["averageMs"]) * 1e3,
                    None if median is None else float(median) * 1e3,
                )
            )
    return layers


def read_times(path: str | Path, warm_up_ms: float = 0.0) -> list[float]:
    """GPU compute time of every inference in ``--exportTimes``, microseconds.

    Inferences that began before ``warm_up_ms`` (the value of ``--warmUp``) are left out; some
    versions export them. Raises InputError for another file.
    """
    content = _read(path)
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


def to_measurement(
    times_us: Sequence[float], network: Network, target: Target, source: str
) -> Measurement:
    """A whole-network record of exported times; ``source`` says where they are from."""
    if len(times_us) < _FEWEST_TIMES:
        raise InputError(f"{source} has {len(times_us)} times: a record needs {_FEWEST_TIMES}")
    median = statistics.median(times_us)
    error = 1.2533 * statistics.stdev(times_us) / len(times_us) ** 0.5
    return Measurement(
        target=target,
        signature=sign(network).hash,
        kind="network",
        latency_us=median,
        spread_share=error / median,
        visits=(Visit(tuple(times_us)),),
        protocol="trtexec --exportTimes",
        environment={"source": source},
        labels={"network": network.name},
    )


@dataclass(frozen=True, slots=True)
class ProfiledEngine:
    """An engine whose profile and latency are both known."""

    layers: int
    sum_us: float
    latency_us: float


def fit_constant(engines: Sequence[ProfiledEngine]) -> float:
    """Microseconds that the profiler adds to a layer, by least squares of the relative error.

    With S the sum of a profile, n its layers and m the engine's latency, the c that minimises
    the sum of ((S - c n - m) / m)² is Σ (n/m)·((S - m)/m) / Σ (n/m)². InputError for no engines.
    """
    above = sum(e.layers / e.latency_us * (e.sum_us / e.latency_us - 1.0) for e in engines)
    below = sum((e.layers / e.latency_us) ** 2 for e in engines)
    if below == 0:
        raise InputError("a profile's constant needs at least one engine with layers and a latency")
    return above / below


@dataclass(frozen=True)
class ProfileReport:
    """A profile with the profiler's constant taken off every layer, and what that makes of the sum.

    ``latency_us`` is the engine's own, None where only the profile is there.
    """

    layers: tuple[LayerTime, ...]
    constant_us: float
    latency_us: float | None

    @property
    def sum_us(self) -> float:
        """Sum of the profile as exported."""
        return sum(layer.time_us for layer in self.layers)

    @property
    def corrected_us(self) -> float:
        """Sum with the constant off; what it estimates is the engine's latency."""
        return sum(self.corrected(layer) for layer in self.layers)

    def corrected(self, layer: LayerTime) -> float:
        """A layer's own time; never below zero."""
        return max(0.0, layer.time_us - self.constant_us)

    def lines(self) -> list[str]:
        """The report as text, longest layers first."""
        out = [f"{'layer':60} {'profiled µs':>12} {'corrected µs':>13} {'share %':>8}"]
        total = self.corrected_us or 1.0
        for layer in sorted(self.layers, key=lambda each: -each.time_us):
            own = self.corrected(layer)
            out.append(
                f"{layer.name[:60]:60} {layer.time_us:12.2f} {own:13.2f} {100 * own / total:8.1f}"
            )
        out.append(f"{'sum':60} {self.sum_us:12.2f} {self.corrected_us:13.2f} {100.0:8.1f}")
        if self.latency_us is not None:
            out.append(f"{'the engine itself':60} {self.latency_us:12.2f}")
        out.append(f"constant per layer: {self.constant_us:.2f} µs")
        return out


def report(
    profile: Sequence[LayerTime], latency_us: float | None, constant_us: float | None = None
) -> ProfileReport:
    """A report; without ``constant_us`` the engine's own latency tells it, where that is known."""
    if constant_us is None:
        total = sum(layer.time_us for layer in profile)
        known = latency_us is not None and len(profile) > 0
        constant_us = (total - latency_us) / len(profile) if known and latency_us else 0.0
    return ProfileReport(tuple(profile), max(0.0, constant_us), latency_us)
