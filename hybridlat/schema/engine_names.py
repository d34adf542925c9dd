"""One name for an engine and for a precision, whatever a table or a log calls them."""

from __future__ import annotations

import re

from hybridlat.errors import TargetError
from hybridlat.schema.device_names import device_name
from hybridlat.schema.target import PRECISIONS, Target

# The first that matches wins: an engine inside another is told before each of them alone.
_ENGINES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"onnx[ -]?runtime.*(tensorrt|trt)|tensorrt.*onnx[ -]?runtime", "onnxruntime-tensorrt"),
        (r"torch[-_ ]?(tensorrt|trt)", "torch-tensorrt"),
        (r"paddle.*(tensorrt|trt)", "paddle-tensorrt"),
        (r"(tensorrt|trt)[-_ ]?rtx", "tensorrt-rtx"),
        (r"torch.*(compile|inductor)|(compile|inductor).*torch", "torch-compile"),
        (r"tensorrt|\btrt\b", "tensorrt"),
        (r"onnx[ -]?runtime|\bort\b", "onnxruntime"),
        (r"openvino", "openvino"),
        (r"torch", "torch"),
    )
)
_WRITTEN = re.compile(r"[a-z][a-z]*(-[a-z]+)*(-([0-9][0-9.]*|ngc))?")
_NUMBER = re.compile(r"(?<![a-z0-9])v?([0-9]+(?:\.[0-9]+)*)")
_PRECISIONS = {
    "float32": "fp32", "float": "fp32", "single": "fp32", "f32": "fp32", "no": "fp32",
    "tensorfloat32": "tf32",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16",
    "amp-fp16": "amp", "fp16-amp": "amp", "mixed": "amp", "mixed-precision": "amp",
    "autocast": "amp", "amp-float16": "amp",
    "i8": "int8", "quantized": "int8",
}  # fmt: skip


def engine_name(raw: str, version: str = "") -> str:
    """An engine as targets write it: ``TensorRT 8.6.1, CUDA 12`` is tensorrt-8.6.

    ``version`` is the engine's where it is told apart. Two numbers of a version are kept: patches
    do not change which kernels run. What is written like a target's part (``torch-2.4``) stays.
    Raises TargetError where no letter is left.
    """
    text = raw.strip().lower()
    if _WRITTEN.fullmatch(text) and not version.strip() and _known(text) in (None, _bare(text)):
        return "torch" + text.removeprefix("pytorch") if text.startswith("pytorch") else text
    stated = _NUMBER.search(version.lower()) or _NUMBER.search(text.split(",")[0])
    name = _known(text) or _slug(re.sub(_NUMBER, " ", text.split(",")[0]))
    if not name:
        raise TargetError(f"{raw!r} names no engine: write it as tensorrt-8.6 or torch-2.4")
    if stated is None:
        return f"{name}-ngc" if "ngc" in version.lower() else name
    return f"{name}-{'.'.join(stated[1].split('.')[:2])}"


def precision_name(raw: str) -> str:
    """A precision as targets write it (``float16`` is fp16); TargetError names the choices."""
    text = re.sub(r"[ _+]+", "-", raw.strip().lower())
    name = _PRECISIONS.get(text, text)
    if name not in PRECISIONS:
        raise TargetError(f"{raw!r} is not a precision: choose one of {', '.join(PRECISIONS)}")
    return name


def target_named(text: str) -> Target:
    """A target with its parts in anybody's words: ``Tesla T4/TensorRT 7.2/FP16``.

    Raises TargetError for a text that has no three parts, or a part that names nothing.
    """
    parts = [part.strip() for part in text.split("/")]
    if len(parts) not in (3, 4):
        return Target.parse(text)  # says how a target is written
    named = [device_name(parts[0]), engine_name(parts[1]), precision_name(parts[2]), *parts[3:]]
    return Target.parse("/".join(named))


def _known(text: str) -> str | None:
    return next((name for pattern, name in _ENGINES if pattern.search(text)), None)


def _bare(text: str) -> str:
    bare = re.sub(r"-([0-9][0-9.]*|ngc)$", "", text)
    return "torch" if bare == "pytorch" else bare


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z][a-z0-9]*", text))
