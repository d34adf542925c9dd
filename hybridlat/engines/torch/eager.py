"""What eager PyTorch runs: one kernel for each ATen call of the module that was exported.

Nothing is fused: activations, batch normalisations and residual additions are kernels of their own,
and cuDNN's convolutions have their bias added by another. See :mod:`.module` for what is put
back and joined.
"""

from __future__ import annotations

from hybridlat.engines.fusion.groups import lowered_of
from hybridlat.engines.fusion.rewriter import Rule, apply, in_force
from hybridlat.engines.torch.autocast import in_precision, is_cpu
from hybridlat.engines.torch.module import (
    Norms,
    as_module,
    rules_hash,
    to_file,
    with_channels_last,
)
from hybridlat.engines.torch.rules import COMPOSITES, views
from hybridlat.engines.torch.views import follow
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target


def lower(network: Network, target: Target) -> Lowered:
    """The kernels of the module that ``network`` was exported from, at the target's precision."""
    return lower_with(network, target.version, target.precision, bias_apart=not is_cpu(target))


def lower_with(
    network: Network,
    version: str = "",
    precision: str = "fp32",
    *,
    norms: Norms = "by name",
    bias_apart: bool = True,
    channels_last: bool = False,
) -> Lowered:
    """The kernels of the module that ``network`` was exported from.

    ``version`` is PyTorch's (``2.4``; empty is the newest); ``precision`` types the tensors
    (:func:`.autocast.in_precision`); ``norms`` and ``bias_apart`` say what is put back
    (:func:`.module.as_module`); ``channels_last`` is the layout of the inputs, which decides
    which views copy and which kernels run with channels last. An operator that is part of no
    composite is a kernel.
    """
    module = as_module(network, norms, bias_apart)
    layouts = follow(module.network, channels_last)
    module = with_channels_last(module, layouts.channels_last)
    rules: tuple[Rule, ...] = (views(layouts.copying), *COMPOSITES)
    groups = apply(module.network, rules, version)
    module, groups = in_precision(module, groups, precision, casts_apart=True)
    by = f"rules torch{'-' + version if version else ''}"
    return to_file(module, lowered_of(module.network, groups, by))


def identity(target: Target) -> str:
    """The rules and what they ask of a target."""
    held = in_force(COMPOSITES, target.version)
    return f"rules-{rules_hash()}/{target.engine}/{held}/{target.precision}/{is_cpu(target)}"
