"""A folder of networks for the rules of TensorRT: which shape them, which judge, what is true.

The compiler is asked once for each network and precision; its layers are kept as JSON.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from experiments.tensorrt_verdicts import Verdict, verdict
from hybridlat.engines import rtx_compiler
from hybridlat.engines.rtx_compiler import EngineLayer, groups_of_layers
from hybridlat.engines.tensorrt.lowering import in_precision
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network

PRECISIONS = ("fp32", "fp16")
SHAPING, JUDGING, UNSEEN = "two thirds that shape", "third that judges", "its unseen families"
DRAWN = "convolutional exports drawn at random"
ATTENTION = "attention and mixers drawn with them"
_JUDGING_BYTES = 102  # of 256 first bytes of a hash: a third once the known ones are taken out


def architecture(name: str) -> str:
    """``repvgg_b2`` for ``repvgg_b2__deploy``: a further size or form is no other network."""
    return name.partition("__")[0]


def family(name: str) -> str:
    """``efficientnetv2`` for ``tf_efficientnetv2_b1``: the word before sizes and variants."""
    words = re.sub(r"^(tf|torchvision_|dm|legacy)_", "", name)
    return re.split(r"_|(?<!v)\d", words, maxsplit=1)[0]


def judges(name: str, known: Collection[str]) -> bool:
    """Whether a network judges the rules: by its name's hash, and never if it was ``known``."""
    own = architecture(name)
    return own not in known and hashlib.sha256(own.encode()).digest()[0] < _JUDGING_BYTES


def read(path: Path, precision: str) -> Network:
    """A network of a file in a precision."""
    network = read_network(path)
    return network if precision == "fp32" else in_precision(network, "float16")


def answer(path: Path, precision: str, folder: Path) -> dict[str, Any]:
    """The compiler's layers of a file's network, asked for once and kept in ``folder``."""
    kept = folder / f"{path.stem}.{precision}.json"
    if not kept.exists():
        body: dict[str, Any]
        try:
            layers = rtx_compiler.engine_layers(read(path, precision))
            told = [[layer.name, layer.kind, list(layer.nodes)] for layer in layers]
            body = {"by": f"{rtx_compiler.ENGINE} {rtx_compiler.version()}", "layers": told}
        except MeasurementError as error:
            body = {"error": str(error)}
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(body, separators=(",", ":")), encoding="utf-8")
    document: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return document


def verdicts(nets: Path, answers: Path, known: Collection[str], ask: bool) -> Iterator[Verdict]:
    """The rules on each network of a folder that the compiler takes, in both precisions.

    Without ``ask``, only networks whose answers are kept already.
    """
    paths = sorted(nets.glob("*.onnx"))
    seen = {family(p.stem) for p in paths if not judges(p.stem, known)} | {*map(family, known)}
    for path in paths:
        for precision in PRECISIONS:
            if not ask and not (answers / f"{path.stem}.{precision}.json").exists():
                continue
            body = answer(path, precision, answers)
            if "layers" not in body:
                continue
            network = read(path, precision)
            layers = tuple(EngineLayer(n, kind, tuple(i)) for n, kind, i in body["layers"])
            part = SHAPING
            if judges(path.stem, known):
                part = JUDGING if family(path.stem) in seen else UNSEEN
            truth = groups_of_layers(network, layers)
            yield verdict(path.stem, precision, part, network, truth)


def drawn(
    folder: Path, known: Collection[str], count: int = 20, seed: int = 0
) -> Iterator[Verdict]:
    """The rules on exports drawn at random from ``<network>/*.onnx``, none of a ``known`` name."""
    paths = sorted(path for path in folder.rglob("*.onnx") if path.parent.name not in known)
    for path in random.Random(0).sample(paths, count):
        for precision in PRECISIONS:
            network = read(path, precision)
            truth, _ = rtx_compiler.groups_of(network)
            part = ATTENTION if is_transformer(network) else DRAWN
            yield verdict(f"{path.parent.name}/{path.stem}", precision, part, network, truth)


def is_transformer(network: Network) -> bool:
    """Whether two activations are multiplied, or nothing but patches is convolved."""
    products = [node for node in network.nodes if node.op == "MatMul"]
    has_attention = any(network.types.keys() >= set(node.inputs) for node in products)
    return has_attention or sum(node.op == "Conv" for node in network.nodes) <= 1
