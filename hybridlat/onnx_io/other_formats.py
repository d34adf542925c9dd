"""What a file is that is no ONNX model, and how to come from it to one."""

from __future__ import annotations

from pathlib import Path

_MADE_FROM = "give the ONNX file that it was made from"
# By kind: the endings of such files, and what to do.
_KINDS = {
    "a PyTorch file": (
        ".pt .pth .pt2 .ptl .ckpt .torchscript .pkl",
        "export it with torch.onnx.export, or pass the module to hybridlat.predict",
    ),
    "a Keras file": (".h5 .hdf5 .keras", "convert it with tf2onnx"),
    "a TensorFlow graph": (".pb", "convert it with tf2onnx"),
    "a TensorFlow Lite file": (".tflite", "convert it with tf2onnx"),
    "a file of weights": (".safetensors .npz .npy", "load them into their module, and export that"),
    "a TensorRT engine": (".engine .plan .trt", _MADE_FROM),
    "a Core ML model": (".mlmodel .mlpackage", _MADE_FROM),
    "an OpenVINO model": (".xml .bin", _MADE_FROM),
    "in ONNX Runtime's own format": (".ort", _MADE_FROM),
    "an archive": (".zip .gz .tgz .tar .7z .xz .bz2", "unpack it, and give the .onnx file in it"),
    "a Git LFS pointer": ("", "fetch the file itself with 'git lfs pull'"),
    "a web page": ("", "download the file itself"),
    "a text file": ("", "give the .onnx file"),
}
# What the bytes of a kind begin with, and where.
_BYTES = (
    (0, b"\x89HDF", "a Keras file"), (4, b"TFL3", "a TensorFlow Lite file"),
    (4, b"ORTM", "in ONNX Runtime's own format"), (0, b"ftrt", "a TensorRT engine"),
    (8, b'{"', "a file of weights"), (0, b"\x80\x02", "a PyTorch file"),
    (0, b"PK", "a PyTorch file"), (0, b"\x1f\x8b", "an archive"),
    (0, b"version https://git-lfs", "a Git LFS pointer"), (0, b"<!DOCTYPE", "a web page"),
    (0, b"<html", "a web page"),
)  # fmt: skip


def other_format(name: str, data: bytes) -> str:
    """``a PyTorch file: export it …`` by its ending, then by its bytes; empty: neither tells."""
    ending = Path(name).suffix.lower()
    by_ending = [kind for kind, (endings, _) in _KINDS.items() if ending in endings.split()]
    kinds = by_ending or [kind for place, begin, kind in _BYTES if data.startswith(begin, place)]
    if not kinds and data and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in data[:512]):
        kinds = ["a text file"]
    return f"{kinds[0]}: {_KINDS[kinds[0]][1]}" if kinds else ""
