"""The plan that the gate asks for: networks whole, and the cells that nobody has measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hybridlat.engines import registry
from hybridlat.graph.network import Network
from hybridlat.graph.reference_networks import gpu_reference_network
from hybridlat.measuring.plans.builder import Draft, Lower
from hybridlat.schema.target import Target


def draft_for(
    networks: Sequence[tuple[str, Network]],
    target: Target,
    *,
    lower: Lower | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
    whole: bool = True,
    cells: bool = True,
    rounds: int = 3,
) -> Draft:
    """A plan that measures ``networks`` (name, network) on the device of ``target``.

    ``wanted`` says of a cell's signature hash whether it is to be measured (the gate's answer, or
    "not in the store"); ``lower`` is the engine's lowering (default: that of the target's runtime).
    ``whole`` networks come first, then cells by the differential. What comes back belongs to
    ``target``, with the version that the board's engine has. Raises InputError, TargetError.
    """
    lower = lower or partial(registry.lower, target=target)
    draft = Draft(target.device, target.runtime, rounds=rounds)
    draft.add_reference(gpu_reference_network(), target.precision)
    for name, network in networks:
        if whole:
            draft.add_network(name, network, target.precision)
    for name, network in networks:
        lowered = lower(network)
        if cells:
            draft.add_cells(name, network, lowered, target.precision, wanted=wanted)
        draft.add_breakdown(name, network, lowered, target.precision)
    return draft


def write(
    networks: Sequence[tuple[str, Network]],
    target: Target,
    out_dir: str | Path,
    *,
    lower: Lower | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
    whole: bool = True,
    cells: bool = True,
    rounds: int = 3,
) -> Draft:
    """Write the plan of ``draft_for`` to a folder; InputError where it asks for nothing."""
    draft = draft_for(
        networks, target, lower=lower, wanted=wanted, whole=whole, cells=cells, rounds=rounds
    )
    draft.write(Path(out_dir))
    return draft
