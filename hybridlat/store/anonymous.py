"""Records without what names a person or a machine, for packs that go to others.

Facts and labels stay by a list of names: what a plug-in, a table or a board adds is left out unless
it is known to name no one. A release of a kernel may be one's own, so its version alone stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from msgspec.structs import replace

from hybridlat.schema.measurement import Breakdown, Measurement, facts_of_note
from hybridlat.schema.plugins import shipped

_FACT = re.compile(
    "cache|clock_mhz|cores|cpu|cpu_family_model|driver|engine|engine_code|engine_version|gpu|jetpack|"
    "load|load_cores|max_sm_mhz|rounds_missing|model|power_limit_w|power_mode|python|runner|"
    "steal_share|virtual_machine|(sm_mhz|temperature_c)_(before|after)"
)
_LABEL = re.compile("batch|copied_bytes|layout|lowering|repeat|role|size|sweep")
_SYSTEM = re.compile(r"[A-Za-z]+ [0-9]+\.[0-9]+")
_IDENTITY = re.compile(r"[/\\@]|(?i:GPU-)?[0-9a-f]{8}-[0-9a-f]{4}-")  # paths, addresses, UUIDs
FAILED = "it failed (the reason is left out)"

_Item = TypeVar("_Item", Measurement, Breakdown)


def anonymous(item: _Item) -> _Item:
    """The record without identities; names of networks that are not shipped become hashes."""
    labels = _kept(_LABEL, item.labels)
    if "network" in item.labels:
        labels["network"] = _network(item.labels["network"])
    if isinstance(item, Breakdown):
        return replace(item, network=_network(item.network), labels=labels)
    note = item.labels.get("note", "")
    if facts_of_note(note) != facts_of_note(""):
        labels["note"] = note
    facts, system = _kept(_FACT, item.environment), item.environment.get("system", "")
    if known := _SYSTEM.match(system):
        facts["system"] = known[0]
    failure = None if item.failure is None else FAILED
    return replace(item, environment=facts, labels=labels, failure=failure)


def _kept(names: re.Pattern[str], facts: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in facts.items() if names.fullmatch(k) and not _IDENTITY.search(v)}


@cache
def _shipped() -> frozenset[str]:
    return frozenset(file.stem for file in shipped("data", "nets").glob("*.onnx"))


def _network(name: str) -> str:
    if name in _shipped():
        return name
    return f"network-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
