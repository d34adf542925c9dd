"""What eager PyTorch runs: one kernel for each ATen call of the module that was exported.

Nothing is fused: activations, batch normalisations and residual additions are kernels of their own,
and cuDNN's convolutions have their bias added by another. See :mod:`.torch_graph` for what is put
back and joined.
"""

from __future__ import annotations

from hybridlat.core.network import Lowered, Network
from hybridlat.lowering.fused import lowered_of
from hybridlat.lowering.rules import Rule, apply
from hybridlat.lowering.torch_graph import COMPOSITES, Norms, as_module, to_file, views
from hybridlat.lowering.torch_views import copying


def lower(
    network: Network,
    version: str = "",
    *,
    norms: Norms = "told",
    bias_apart: bool = True,
    channels_last: bool = False,
) -> Lowered:
    """The kernels of the module that ``network`` was exported from.

    ``version`` is PyTorch's (``2.4``; empty is the newest), ``norms`` and ``bias_apart`` say what
    is put back (:func:`.torch_graph.as_module`), ``channels_last`` the layout of the inputs, which
    decides which views copy. An operator that is no composite is a kernel.
    """
    module = as_module(network, norms, bias_apart)
    rules: tuple[Rule, ...] = (*COMPOSITES, views(copying(module.network, channels_last)))
    groups = apply(module.network, rules, version)
    by = f"rules torch{'-' + version if version else ''}"
    return to_file(module, lowered_of(module.network, groups, by))
