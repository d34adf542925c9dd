"""What eager PyTorch runs: one kernel for each ATen call of the module that was exported.

Nothing is fused: activations, batch normalisations and residual additions are kernels of their own,
and cuDNN's convolutions have their bias added by another. See :mod:`.torch_graph` for what is put
back and joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hybridlat.core.network import Lowered, Network
from hybridlat.core.target import Target
from hybridlat.lowering.fused import lowered_of
from hybridlat.lowering.rules import Rule, apply
from hybridlat.lowering.torch_graph import COMPOSITES, Norms, as_module, to_file, views
from hybridlat.lowering.torch_precision import in_precision, is_cpu
from hybridlat.lowering.torch_views import copying


def lower(
    network: Network,
    version: str = "",
    precision: str = "fp32",
    *,
    norms: Norms = "told",
    bias_apart: bool = True,
    channels_last: bool = False,
) -> Lowered:
    """The kernels of the module that ``network`` was exported from.

    ``version`` is PyTorch's (``2.4``; empty is the newest); ``precision`` types the tensors
    (:func:`.torch_precision.in_precision`); ``norms`` and ``bias_apart`` say what is put back
    (:func:`.torch_graph.as_module`); ``channels_last`` is the layout of the inputs, which decides
    which views copy. An operator that is part of no composite is a kernel.
    """
    module = as_module(network, norms, bias_apart)
    rules: tuple[Rule, ...] = (*COMPOSITES, views(copying(module.network, channels_last)))
    groups = apply(module.network, rules, version)
    module, groups = in_precision(module, groups, precision, casts_apart=True)
    by = f"rules torch{'-' + version if version else ''}"
    return to_file(module, lowered_of(module.network, groups, by))


def for_target(target: Target) -> Callable[[Network], Lowered]:
    """The lowering for a target's version and precision; a CPU's convolutions add the bias."""
    apart = not is_cpu(target)
    return partial(lower, version=target.version, precision=target.precision, bias_apart=apart)
