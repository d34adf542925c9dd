"""The plan that the gate asks for: networks whole, and the cells that nobody has measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybridlat.engines import registry
from hybridlat.graph.network import Network
from hybridlat.graph.reference_networks import gpu_reference_network
from hybridlat.measuring.plans.builder import Draft, Lower
from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target

Wanted = Callable[[Kind, str], bool]
"""Whether a cell or a network, told by kind and signature hash, is to be measured."""


@dataclass(frozen=True)
class PlanRequest:
    """What to measure on the device of ``target``.

    ``networks`` are (name, network) pairs. ``lower`` is the engine's lowering (default: that of
    the target's engine, version and precision). Every model is visited in ``rounds``. What comes
    back belongs to ``target``, with the version that the board's engine has.
    """

    networks: Sequence[tuple[str, Network]]
    target: Target
    wanted: Wanted = lambda kind, signature: True
    lower: Lower | None = None
    rounds: int = 3


def draft_for(request: PlanRequest) -> Draft:
    """The plan for a request: whole networks first, then cells by the differential.

    Raises InputError for a precision that no plan can ask for, TargetError for a target that
    nobody has said how it fuses.
    """
    target, wanted = request.target, request.wanted
    lower = request.lower or partial(registry.lower, target=target)
    draft = Draft(target.device, target.runtime, rounds=request.rounds)
    draft.add_reference(gpu_reference_network(), target.precision)
    for name, network in request.networks:
        draft.add_network(name, network, target.precision, wanted=partial(wanted, "network"))
    for name, network in request.networks:
        lowered = lower(network)
        draft.add_cells(name, network, lowered, target.precision, wanted=partial(wanted, "cell"))
        draft.add_breakdown(name, network, lowered, target.precision)
    return draft


def write(request: PlanRequest, folder: str | Path) -> Draft:
    """Write the plan for a request to a folder; InputError where it asks for nothing."""
    draft = draft_for(request)
    draft.write(Path(folder))
    return draft
