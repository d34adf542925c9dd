"""Exports of one network in many ways, for ``one_identity.py``: made, read and rewritten.

Weights are left out of the files: a float tensor of 64 values or more is external data that no file
holds. Rewriting (weights as initializers or constants, another opset, simplifying) needs
values, so tensors are filled first, each with other ones.
"""

import functools
import io
import math
import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper, version_converter
from onnx.external_data_helper import set_external_data

from hybridlat.onnx_io import torch_export

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
LEAST_LEFT_OUT, MOST_DRAWN_BYTES = 64, 60_000_000
VARIANTS = """
dynamo-20-trained dynamo-18-trained dynamo-23-trained dynamo-20-fresh
dynamo-20-trained-slim legacy-13-trained legacy-17-trained legacy-18-trained
legacy-20-trained legacy-17-fresh module-20-fresh module-20-trained
"""
DRAWN_VARIANTS = """
dynamo-20-trained dynamo-18-fresh legacy-17-trained legacy-13-fresh
dynamo-20-trained-slim dynamo-20-trained-sim legacy-17-trained-slim legacy-17-trained-sim
"""
TORCHVISION = """
resnet50 googlenet squeezenet1_1 vgg11_bn mnasnet1_0 alexnet shufflenet_v2_x1_0
regnet_y_400mf efficientnet_v2_s convnext_tiny swin_t mobilenet_v2 mobilenet_v3_large
densenet121 vit_b_16
"""
TIMM = """
vit_tiny_patch16_224 swin_tiny_patch4_window7_224 deit_tiny_patch16_224 mixer_s16_224
xcit_nano_12_p8_224 pit_ti_224 poolformer_s12 cait_xxs24_224 levit_128 mobilevit_xxs
edgenext_xx_small coat_tiny twins_pcpvt_small visformer_tiny gcresnet33ts ecaresnet26t
nfnet_f0 dm_nfnet_f0 vovnet39a efficientformer_l1 repghostnet_100 tinynet_a resmlp_12_224
convmixer_768_32 maxvit_rmlp_pico_rw_256 fastvit_t8 efficientvit_b0
"""
FURTHER = (*[f"tv:{name}" for name in TORCHVISION.split()], *TIMM.split())
"""Networks of timm and (``tv:``) torchvision beside those of ``data/nets``."""
SHAPED = (
    *("hgnet", "inception_next", "swiftformer", "efficientformer_v2", "metaformer", "levit"),
    *("efficientvit_msra", "edgenext", "mlp_mixer"),
)
"""Modules of timm that decided rules before any network was drawn."""


def variants(
    folder: Path | None, nets: Path | None, name: str, reference: str
) -> dict[str, Callable[[], ModelProto]]:
    """How to come by each variant of a network, the reference among them."""
    found: dict[str, Callable[[], ModelProto]] = {}
    for path in sorted(folder.glob("*.onnx")) if folder else ():
        found[path.stem] = functools.partial(onnx.load, path, load_external_data=False)
    shipped = nets / f"{name}.onnx" if nets else None
    if shipped is not None and shipped.exists() and (not folder or _is_same_source(name)):
        found["shipped" if folder else reference] = functools.partial(onnx.load, shipped)
    if reference in found:
        base = found[reference]
        found["initializers"] = lambda: filled(with_initializers(base()), seed=0)
        found["constants"] = lambda: with_constants(filled(with_initializers(base()), seed=0))
        found["to-opset-21"] = lambda: converted(base(), 21)
        if not folder:
            found["simplified"] = lambda: simplified(base())
    if "legacy-17-trained" in found:
        old = found["legacy-17-trained"]
        found["legacy-17-trained-to-opset-20"] = lambda: converted(old(), 20)
    return found


def _is_same_source(name: str) -> bool:
    """Whether the network of ``data/nets`` is the one that ``make`` exports under the name."""
    from recipes import RECIPES

    return any(r.name == name and r.source != "onnx" for r in RECIPES)


def shapes_at_one(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """The sizes of inputs that have free ones, with 1 for each of these."""
    weights = {tensor.name for tensor in model.graph.initializer}
    shapes = {}
    for value in model.graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.name not in weights and not all(d.HasField("dim_value") for d in sizes):
            shapes[value.name] = tuple(d.dim_value or 1 for d in sizes)
    return shapes


def left_out(model: ModelProto) -> ModelProto:
    """The model without its larger weights."""
    for tensor in model.graph.initializer:
        if tensor.data_type in FLOATS and math.prod(tensor.dims) >= LEAST_LEFT_OUT:
            _elsewhere(tensor)
    return model


def with_initializers(model: ModelProto) -> ModelProto:
    """Weights that a ``ConstantOfShape`` makes, as in ``data/nets``, as external initializers."""
    shapes = {t.name: t for t in model.graph.initializer if t.name.endswith("__SHAPE")}
    nodes = list(model.graph.node)
    for node in nodes:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            dims = numpy_helper.to_array(shapes[node.input[0]]).tolist()
            weight = TensorProto(name=node.output[0], data_type=TensorProto.FLOAT, dims=dims)
            model.graph.initializer.append(_elsewhere(weight))
            model.graph.node.remove(node)
    used = {name for node in model.graph.node for name in node.input}
    for tensor in [t for t in shapes.values() if t.name not in used]:
        model.graph.initializer.remove(tensor)
    return model


def _elsewhere(tensor: TensorProto) -> TensorProto:
    """The tensor as external data, its values gone."""
    tensor.ClearField("float_data")
    tensor.raw_data = b""  # without it there is nothing to be external
    set_external_data(tensor, "weights")
    tensor.ClearField("raw_data")
    return tensor


def filled(model: ModelProto, seed: int) -> ModelProto:
    """The model with positive random numbers for the weights that it left out."""
    rng = np.random.default_rng(seed)
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            values = rng.random(tuple(tensor.dims), np.float32) * 0.09 + 0.01
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype), tensor.name))
    return model


def with_constants(model: ModelProto) -> ModelProto:
    """The model with every initializer as a ``Constant`` node."""
    tensors = list(model.graph.initializer)
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in tensors]
    nodes += list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def converted(model: ModelProto, opset: int) -> ModelProto:
    """The model as ``onnx.version_converter`` writes it in another opset."""
    return left_out(
        version_converter.convert_version(filled(with_initializers(model), seed=0), opset)
    )


def simplified(model: ModelProto, by: str = "slim") -> ModelProto:
    """The model as onnxslim or onnxsim (``sim``) leaves it."""
    import onnxsim
    import onnxslim

    whole = filled(with_initializers(model), seed=0)
    return left_out(onnxslim.slim(whole) if by == "slim" else onnxsim.simplify(whole)[0])


def drawn(count: int, seed: int) -> list[str]:
    """Networks of timm and torchvision in random order, none of a module that shaped a rule.

    At most two have no convolution but that of their patches; all are of 60 MB at most.
    """
    _import_torchvision()
    import timm
    from torchvision import models

    rng, left, result = random.Random(seed), {True: count, False: 2}, list[str]()
    modules = dict[str, list[str]]()
    for name in timm.list_models():
        modules.setdefault(timm.models.model_entrypoint(name).__module__, []).append(name)
    for folder in (models, models.segmentation, models.video):
        for name in models.list_models(folder):
            builder = models.get_model_builder(name)
            modules.setdefault(builder.__module__, []).append(f"tv:{name}")
    for module in rng.sample(sorted(modules), len(modules)):
        names = [name for name in modules[module] if name not in FURTHER]
        if module.split(".")[-1] in SHAPED or len(result) == count:
            continue
        for name in rng.sample(names, min(6, len(names))):
            if (kind := _kind(name)) is not None and left[kind]:
                left[kind] -= 1
                result.append(name)
                break
    return result


def _kind(name: str) -> bool | None:
    """Whether a network has convolutions beside that of patches; None where it is too large."""
    import torch

    try:
        with torch.device("meta"):
            model, image = _module(name, None)
    except Exception:  # noqa: BLE001 - not every constructor works without memory
        return None
    if max(image) > 256 or 4 * sum(p.numel() for p in model.parameters()) > MOST_DRAWN_BYTES:
        return None
    layers = [m for m in model.modules() if isinstance(m, torch.nn.modules.conv._ConvNd)]
    return any(max(layer.kernel_size) > max(layer.stride) for layer in layers)


def make(folder: Path, names: list[str], variants: str = VARIANTS) -> int:
    """Export the networks named, or all, in every one of ``variants`` that is not there yet."""
    from recipes import RECIPES

    own = {r.name: r for r in RECIPES if r.source != "onnx"}
    for name in names or [*own, *FURTHER]:
        place = folder / name.replace(":", "_")
        place.mkdir(parents=True, exist_ok=True)
        for variant in variants.split():
            path = place / f"{variant}.onnx"
            if path.exists():
                continue
            started = time.monotonic()
            try:
                base, _, by = variant.rpartition("-")
                if by in ("slim", "sim"):
                    source = onnx.load(place / f"{base}.onnx", load_external_data=False)
                    onnx.save(simplified(source, by), path)
                else:
                    onnx.save(_export(name, own.get(name), variant), path)
                result = f"{time.monotonic() - started:.0f} s"
            except Exception as error:  # noqa: BLE001 - an exporter's may be anything
                result = f"{type(error).__name__}: {error}"[:200]
            print(name, variant, result, flush=True)
    return 0


def _export(name: str, recipe: Any, variant: str) -> ModelProto:
    import torch

    exporter, opset, weights = variant.split("-")
    torch.manual_seed(0)
    model, image = _module(name, recipe)
    if weights == "trained":
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.is_floating_point():
                    tensor.uniform_(0.01, 0.1)
    if exporter == "module":
        return torch_export.export(model, (1, 3, *image))
    common: dict[str, Any] = {"opset_version": int(opset), "input_names": ["input"]}
    example = (torch.rand(1, 3, *image),)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            common |= {"dynamo": True, "verbose": False}
            return left_out(torch.onnx.export(model, example, **common).model_proto)
        buffer = io.BytesIO()
        torch.onnx.export(model, example, buffer, dynamo=False, **common)
        return left_out(onnx.load_from_string(buffer.getvalue()))


def _module(name: str, recipe: Any) -> tuple[Any, tuple[int, ...]]:
    """A network in evaluation mode with its first values, and the size of its image."""
    _import_torchvision()
    if name.startswith("tv:"):
        from torchvision import models

        builder = models.get_model_builder(name[3:])
        backbone = {"weights_backbone": None} if "segmentation" in builder.__module__ else {}
        frames = (16,) if "video" in builder.__module__ else ()
        return builder(weights=None, **backbone).eval(), (*frames, 224, 224)
    if recipe is not None and recipe.source == "own":
        import importlib

        module, kind = recipe.model.split(":")
        return getattr(importlib.import_module(module), kind)().eval(), recipe.image
    import timm

    timm.layers.set_exportable(True)
    model = timm.create_model(recipe.model if recipe else name, pretrained=False)
    if recipe is not None and recipe.merge_branches:
        model = timm.utils.reparameterize_model(model)
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))[-2:]
    return model.eval(), recipe.image if recipe else tuple(size)


def _import_torchvision() -> None:
    """A torchvision that was built for another PyTorch lacks operators, but has its networks."""
    import torch

    registered: Any = torch.library.register_fake
    torch.library.register_fake = lambda *_, **__: lambda function: function
    try:
        import torchvision  # noqa: F401
    finally:
        torch.library.register_fake = registered
