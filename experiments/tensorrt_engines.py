"""The rules of TensorRT held against published engines whose layers' names tell the operators.

    python experiments/tensorrt_engines.py FOLDER

The folder holds ``layers.parquet`` and ``nets``. Finding: experiments/tensorrt_listings.md.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hybridlat.engines import registry
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target

_AROUND = ("Reformat", "reshape_", "copied_", "Quantize")
_LAST_WORD = re.compile(r"(?:.*/|PWN\(|__myl_)?([A-Za-z]+)(?:_(\d+))?(?:_myl[\d_]+)?\)?$")
_GENERATED = {"MulSumAdd": "Gemm", "Res": "Flatten"}


def operators_of(layers: Sequence[str], network: Network) -> dict[int, list[int]]:
    """The file's operators in each layer that computes some.

    Exports number or order operators alike, so the n-th of a kind is the n-th in the file. What
    layers do not name is in the one that makes what it reads.
    """
    named = defaultdict(list)
    for layer, name in enumerate(layers):
        for part in name.split(" + ") if not name.startswith(_AROUND) else ():
            if (word := _LAST_WORD.match(part)) and not part.startswith(_AROUND):
                named[_GENERATED.get(word[1], word[1])].append((int(word[2] or 0), layer))
    layer_of: dict[int, int] = {}
    for i, node in enumerate(network.nodes):
        alike = [n for n, other in enumerate(network.nodes) if other.op == node.op]
        if len(named[node.op]) == len(alike):
            layer_of[i] = sorted(named[node.op])[alike.index(i)][1]
        elif (maker := network.producers.get(node.inputs[0])) in layer_of:
            layer_of[i] = layer_of[maker]
    return {at: [i for i, one in layer_of.items() if one == at] for at in layer_of.values()}


def table(folder: Path) -> Iterator[str]:
    """Of each engine made of a known file: layers and time in equal groups; then what differs.

    Layers that compute no operator of the file stand apart. Torch-TensorRT builds of no file.
    """
    yield "| engine | network | layers with operators | equal % | of their time % | copies % |"
    yield "|---|---|---|---|---|---|"
    differing: Counter[str] = Counter()
    told = pd.read_parquet(folder / "layers.parquet").query("not target.str.contains('torch-')")
    for (name, model, onnx, _), rows in told.groupby(["target", "model", "onnx", "path"]):
        if not (onnx or model.startswith("mobilenet")):
            continue
        target = Target.parse(name.replace("int8-qat", "int8"))
        file = folder / "nets" / f"{onnx or 'torchvision__mobilenet_v2'}.onnx"
        network = read_network(file)
        rules = {i: kernel for kernel in registry.lower(network, target).origins for i in kernel}
        us, equal = rows.avg_us.to_numpy(), []
        found = operators_of(list(rows.layer), network)
        for layer, nodes in found.items():
            ours = {rules[i] for i in nodes if i in rules}
            if ours <= {tuple(i for i in sorted(nodes) if i in rules)}:
                equal.append(layer)
            else:
                sides = ["+".join(network.nodes[i].op for i in k) for k in (*sorted(ours), nodes)]
                differing[f"| `{' and '.join(sides[:-1])}` | `{sides[-1]}` |"] += 1
        seen, share = us[list(found)].sum(), 100 * len(equal) / len(found)
        times = f"{100 * us[equal].sum() / seen:.1f} | {100 * (1 - seen / us.sum()):.1f}"
        yield f"| {name} | {model} | {len(found)} | {share:.1f} | {times} |"
    yield from ("", *(f"{kind} {count} |" for kind, count in differing.most_common()))


if __name__ == "__main__":
    print(*table(Path(sys.argv[1])), sep="\n")
