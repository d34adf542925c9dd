"""What ``torch.compile`` runs: inductor's kernels.

Convolutions and matrix products are calls to a library. Everything else is code that inductor
writes: point-wise operators that hang together are one kernel, a reduction takes the point-wise
operators in front of it and those behind it that run over the same elements. Views cost nothing:
they are index arithmetic in whatever reads them. Nothing is folded into weights, so a batch
normalisation is one more point-wise operator (:func:`.module.as_module`).
"""

from __future__ import annotations

from hybridlat.engines.fusion.groups import lowered_of
from hybridlat.engines.fusion.rewriter import apply, fuse, in_force, unknown_operators
from hybridlat.engines.torch.autocast import in_precision, is_cpu
from hybridlat.engines.torch.module import Norms, as_module, rules_hash, to_file
from hybridlat.engines.torch.rules import COMPOSITES, INDUCTOR, LIBRARY, views
from hybridlat.engines.torch.views import follow
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target


def lower(network: Network, target: Target) -> Lowered:
    """The kernels inductor makes of the module that ``network`` was exported from."""
    return lower_with(network, target.version, target.precision, bias_apart=not is_cpu(target))


def lower_with(
    network: Network,
    version: str = "",
    precision: str = "fp32",
    *,
    norms: Norms = "by name",
    bias_apart: bool = True,
) -> Lowered:
    """The kernels that inductor makes of the module that ``network`` was exported from.

    ``version`` is PyTorch's (``2.4``; empty is the newest); ``precision`` types the tensors
    (:func:`.autocast.in_precision`); ``norms`` and ``bias_apart`` say what is put back
    (:func:`.module.as_module`): on a CPU the library adds the bias. Operators that no rule
    names stay kernels of their own, and the warnings name them.
    """
    module = as_module(network, norms, bias_apart)
    table = (views(follow(module.network).copying), *COMPOSITES, *INDUCTOR)
    groups = apply(module.network, table, version)
    named = (*table, fuse("library", LIBRARY, LIBRARY, "a call"))
    unknown = unknown_operators(module.network, named)
    module, groups = in_precision(module, groups, precision, casts_apart=False)
    by = f"rules torch-compile{'-' + version if version else ''}"
    return to_file(module, lowered_of(module.network, groups, by, unknown))


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    held = in_force((*COMPOSITES, *INDUCTOR), target.version)
    return f"rules-{rules_hash()}/{target.engine}/{held}/{target.precision}/{is_cpu(target)}"
