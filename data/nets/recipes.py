"""Which networks there are, and how each is made. Importing this needs no package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """One file of this folder."""

    name: str
    family: str
    source: str
    """`timm`, `own` (own_*.py here) or `onnx` (the light models of its test data)."""
    model: str
    """What the source calls it: for `own`, module:name."""
    exporter: str
    """`torchscript` or `dynamo`, the two of PyTorch; `caffe2` made the light models."""
    opset: int
    image: tuple[int, int] = (224, 224)
    symbolic_batch: bool = False
    merge_branches: bool = False
    """Whether parallel branches are merged into one convolution first, as for deployment."""


def _light(name: str, family: str) -> Recipe:
    return Recipe(name, family, "onnx", name, "caffe2", 9)


def _timm(
    name: str,
    family: str,
    exporter: str,
    opset: int,
    *,
    image: int = 224,
    symbolic_batch: bool = False,
    merge_branches: bool = False,
) -> Recipe:
    return Recipe(
        name,
        family,
        "timm",
        name,
        exporter,
        opset,
        (image, image),
        symbolic_batch,
        merge_branches,
    )


def _own(
    name: str,
    family: str,
    model: str,
    exporter: str,
    opset: int,
    image: tuple[int, int],
    *,
    symbolic_batch: bool = False,
) -> Recipe:
    return Recipe(name, family, "own", model, exporter, opset, image, symbolic_batch)


OLD, NEW = "torchscript", "dynamo"

RECIPES = (
    _light("bvlc_alexnet", "plain"),
    _light("densenet121", "dense"),
    _light("inception_v1", "inception"),
    _light("inception_v2", "inception"),
    _light("resnet50", "residual"),
    _light("shufflenet", "channel shuffle"),
    _light("squeezenet", "fire modules"),
    _light("vgg19", "plain"),
    _light("zfnet512", "plain"),
    _timm("resnet18", "residual", OLD, 13, symbolic_batch=True),
    _timm("resnet34", "residual", OLD, 11),
    _timm("resnet50d", "residual", NEW, 18),
    _timm("wide_resnet50_2", "wide residual", OLD, 17),
    _timm("resnext50_32x4d", "grouped residual", OLD, 13),
    _timm("densenet169", "dense", NEW, 20),
    _timm("inception_v3", "inception", OLD, 11, image=299),
    _timm("inception_v4", "inception", NEW, 18, image=299),
    _timm("mobilenetv2_100", "inverted residual", OLD, 11, symbolic_batch=True),
    _timm("mobilenetv3_large_100", "inverted residual, squeeze-excite", NEW, 18),
    _timm("mobilenetv3_small_100", "inverted residual, squeeze-excite", OLD, 17),
    _timm("mobilenetv4_conv_small", "inverted residual", NEW, 20),
    _timm("efficientnet_b0", "inverted residual, squeeze-excite", NEW, 18, symbolic_batch=True),
    _timm("efficientnet_lite0", "inverted residual", OLD, 13),
    _timm("mnasnet_100", "inverted residual", OLD, 13),
    _timm("fbnetc_100", "inverted residual", OLD, 12),
    _timm("mixnet_s", "inverted residual, mixed kernels", OLD, 17),
    _timm("lcnet_100", "depthwise separable", OLD, 14),
    _timm("rexnet_100", "inverted residual, squeeze-excite", NEW, 18),
    _timm("ghostnet_100", "ghost modules", OLD, 13),
    _timm("seresnet50", "squeeze-excite residual", OLD, 17),
    _timm("skresnet18", "selective kernels", NEW, 18),
    _timm("resnest14d", "split attention", OLD, 13),
    _timm("regnetx_008", "RegNet", OLD, 13, symbolic_batch=True),
    _timm("regnety_008", "RegNet, squeeze-excite", NEW, 18, symbolic_batch=True),
    _timm("convnext_atto", "ConvNeXt", NEW, 20),
    _timm("convnext_tiny", "ConvNeXt", OLD, 17),
    _timm("repvgg_a0", "merged branches", OLD, 13, merge_branches=True),
    _timm("repvgg_a1", "parallel branches", NEW, 18),
    _timm("mobileone_s1", "merged branches", NEW, 18, merge_branches=True),
    _timm("hrnet_w18_small", "parallel resolutions", OLD, 13),
    _timm("res2net50_26w_4s", "Res2Net", OLD, 13),
    _timm("cspresnet50", "cross-stage partial", NEW, 18),
    _timm("darknet53", "residual, leaky", OLD, 13, image=256),
    _timm("ese_vovnet19b_dw", "one-shot aggregation", OLD, 17),
    _timm("dla34", "layer aggregation", NEW, 19),
    _timm("dpn68", "dual path", NEW, 18),
    _timm("selecsls42b", "selective skips", OLD, 16),
    _timm("xception41", "depthwise separable", OLD, 13, image=299),
    _timm("fasternet_t0", "partial convolution", NEW, 21),
    _timm("starnet_s1", "element-wise product", NEW, 18),
    _timm("hgnetv2_b0", "one-shot aggregation", NEW, 18),
    _own(
        "shufflenet_v2",
        "channel shuffle",
        "own_networks:shufflenet_v2",
        NEW,
        18,
        (224, 224),
        symbolic_batch=True,
    ),
    _own("unet", "U-Net", "own_networks:UNet", OLD, 17, (256, 256)),
    _own("deeplab_resnet18", "segmentation", "own_networks:DeepLab", OLD, 13, (256, 256)),
    _own("fcn_mobilenetv2", "segmentation", "own_networks:FullyConvolutional", NEW, 18, (256, 320)),
    _own("super_resolution", "restoration", "own_networks:SuperResolution", OLD, 17, (96, 96)),
    _own("style_transfer", "image to image", "own_networks:StyleTransfer", NEW, 18, (160, 160)),
    _own("ssdlite_mobilenetv2", "detector", "own_detectors:SsdLite", OLD, 12, (320, 320)),
    _own("fpn_resnet18", "detector", "own_detectors:FeaturePyramid", NEW, 18, (256, 256)),
    _own("yolo_cross_stage", "detector", "own_detectors:OneStage", OLD, 13, (320, 320)),
)
