"""From what a user calls a target to the engine on this machine, or why it is not here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hybridlat.engines import registry
from hybridlat.engines.base import Backend
from hybridlat.errors import BackendUnavailable, TargetError
from hybridlat.schema.target import Target

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResolvedEngine:
    """A target, and the backend that measures it here with the ``options`` that start it anew.

    ``backend`` is None where the target is another machine's; ``why_not`` says why.
    """

    target: Target
    backend: Backend | None = None
    options: Mapping[str, int | str] = field(default_factory=dict)
    why_not: str = ""


def resolve(target: str | Target | None, threads: int | None = None) -> ResolvedEngine:
    """The engine of ``target`` (None: this machine's CPU under ONNX Runtime).

    Raises TargetError for a target that makes no sense, BackendUnavailable where not even the
    default engine starts.
    """
    wanted = Target.parse(target) if isinstance(target, str) else target
    if wanted is not None and threads is not None and wanted.threads not in (None, threads):
        raise TargetError(f"--threads {threads} does not go with the target {wanted}")
    name = wanted.engine if wanted else "onnxruntime"
    if wanted is not None and not registry.has_backend(name):
        why = f"{wanted} cannot be measured here: there is no backend {name!r}"
        _log.info("%s", why)
        return ResolvedEngine(wanted, why_not=why)
    try:
        options = registry.load_backend(name).options_for(wanted, threads)
        backend = registry.open_backend(name, options)
    except BackendUnavailable as error:
        if wanted is None:
            raise
        why = f"{wanted} cannot be measured here: {error}"
        _log.info("%s", why)
        return ResolvedEngine(wanted, why_not=why)
    if wanted is None or wanted == backend.target:
        return ResolvedEngine(backend.target, backend, options)
    backend.close()
    why = f"{wanted} cannot be measured here: this machine is {backend.target}"
    _log.info("%s", why)
    return ResolvedEngine(wanted, why_not=why)


def precision_notes(requested: Target, precision: str, stated: str) -> list[str]:
    """What a user should know of a file's precision beside that of the requested target.

    ``precision`` is that of most of the file's convolutions and products, ``stated`` all of it in
    words.
    """
    notes = [f"the network computes in {stated}"] if stated != precision else []
    answered = registry.at_precision(requested, precision)
    if answered != requested:
        notes.append(
            f"{requested.engine} computes in the precision of the file, which is {precision}: "
            f"this is {answered}, not {requested}"
        )
    elif precision == "int8" and requested.precision != "int8":
        notes.append(
            f"the file is quantised, and {requested} computes all of it in {requested.precision}: "
            f"for int8 give --target {replace(requested, precision='int8')}"
        )
    return notes
