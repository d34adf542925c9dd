"""PyTorch: what a module runs eagerly (engine ``torch``) and under ``torch.compile``.

Eagerly nothing is fused: one kernel for each ATen call, activations, batch normalisations and
residual additions too, and cuDNN's convolutions have their bias added by another.

Compiled, convolutions and matrix products are calls to a library, and everything else is code that
inductor writes: point-wise operators that hang together are one kernel, a reduction takes the
point-wise operators in front of it and those behind it that run over the same elements. Views cost
nothing: they are index arithmetic in whatever reads them. Nothing is folded into weights, so a
batch normalisation is one more point-wise operator.

:mod:`.module` says what is put back that an exporter folded, :mod:`.rules` what is joined.
"""

from __future__ import annotations

import re

from hybridlat.engines.fusion.groups import lowered_of
from hybridlat.engines.fusion.rewriter import apply, code_hash, fuse, in_force, unknown_operators
from hybridlat.engines.torch.module import as_module, to_file, with_autocast, with_channels_last
from hybridlat.engines.torch.rules import COMPOSITES, INDUCTOR, LIBRARY, follow, free_views
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target

_CPU = re.compile(r"(xeon|epyc|ryzen|core|i[3579]|cascade-lake)\b")


def lower(network: Network, target: Target, *, channels_last: bool = False) -> Lowered:
    """The kernels of the module that ``network`` was exported from, at the target's precision.

    Only ``amp`` (autocast) mixes types; at any other precision the file's are left, so that a cell
    is the same cell. ``channels_last`` is the layout of the inputs of what runs eagerly: it decides
    which views copy and which kernels run with channels last. An operator that no rule names is a
    kernel, which is a warning where the network is compiled.
    """
    module = as_module(network, bias_apart=not _is_cpu(target))
    copying, in_channels_last = follow(module.network, channels_last)
    table = (free_views(copying), *COMPOSITES)
    unknown: tuple[str, ...] = ()
    compiled = target.engine == "torch-compile"
    if compiled:
        table = (*table, *INDUCTOR)
        named = (*table, fuse("library", LIBRARY, LIBRARY, "a call"))
        unknown = unknown_operators(module.network, named)
    else:
        module = with_channels_last(module, in_channels_last)
    groups = apply(module.network, table, target.version)
    if target.precision == "amp":
        module, groups = with_autocast(module, groups, casts_apart=not compiled)
    by = f"rules {target.runtime}"
    return to_file(module, lowered_of(module.network, groups, by, unknown))


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    held = in_force(COMPOSITES, target.version)
    rules = f"rules-{code_hash(__file__)}/{target.engine}/{held}"
    return f"{rules}/{target.precision}/{_is_cpu(target)}"


def _is_cpu(target: Target) -> bool:
    """Whether the target's device is a CPU, by its threads or its name."""
    return target.threads is not None or _CPU.match(target.device) is not None
