"""The plan that the gate asks for: networks whole, and the cells that nobody has measured."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

from hybridlat.core.network import Constant, Network, Node, TensorType
from hybridlat.core.target import Target
from hybridlat.errors import TargetError
from hybridlat.plan.draft import Draft, Lower


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
    lower = lower or lowering_for(target)
    draft = Draft(target.device, target.runtime, rounds=rounds)
    draft.add_reference(reference_network(), target.precision)
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


def lowering_for(target: Target) -> Lower:
    """The lowering of the target's runtime; TargetError where there is none."""
    try:
        module = importlib.import_module(f"hybridlat.lowering.{target.engine}")
    except ModuleNotFoundError as error:
        raise TargetError(
            f"there is no lowering for {target.engine!r}, which {target} runs: "
            "plans are for tensorrt"
        ) from error
    lower: Lower = module.lower
    return lower


def reference_network() -> Network:
    """A 3x3 convolution of 64 channels at 56x56: some microseconds on a GPU, far from trivial."""
    data = TensorType("float32", (1, 64, 56, 56))
    weight = Constant(TensorType("float32", (64, 64, 3, 3)))
    attributes = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    node = Node("reference", "Conv", ("x", "w"), ("y",), attributes, version=11)
    return Network("reference", (node,), ("x",), ("y",), {"x": data, "y": data}, {"w": weight})
