"""What networks are variants of, by their names alone: who must be held out together."""

from __future__ import annotations

import re

_FAMILY = (
    "efficientnetv2", "efficientnet", "mobilenetv1", "mobilenetv2", "mobilenetv3", "mobilenetv4",
    "mobilenet_edgetpu", "mobileone", "convnextv2", "convnext", "convmixer", "convformer",
    "resnetv2", "resnest", "resnext", "regnet", "repvgg", "repvit", "repghostnet", "ghostnet",
    "densenet", "darknet", "hrnet", "hgnet", "dla", "dpn", "vgg", "inception", "xception",
    "rexnet", "nfnet", "nf_", "seresnext", "seresnet", "senet", "ecaresnet", "eca_", "res2ne",
    "skresnet", "cs", "lcnet", "mixnet", "mnasnet", "semnasnet", "poolformer", "mambaout",
    "fasternet", "fastvit", "starnet", "selecsls", "fbnet", "hardcorenas", "wide_resnet",
    "resnet", "shufflenet", "squeezenet", "alexnet", "ese_vovnet", "vovnet", "tresnet",
)  # fmt: skip


def architecture_of(network: str) -> str:
    """A network's name without the size and the form that it was exported in."""
    return network.removeprefix("torchvision__").split("__")[0]


def family_of(architecture: str) -> str:
    """What an architecture is a variant of, by its name."""
    name = re.sub(r"^(tf_|dm_|legacy_|gc_|test_)", "", architecture)
    return next((f for f in _FAMILY if name.startswith(f)), name.split("_")[0])
