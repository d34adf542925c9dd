"""The graph that ONNX Runtime runs on the CPU: the engine is asked, or rules say it sooner.

The engine optimises the network and saves what it made of it, with its own blocked layout (NCHWc).
That graph is loaded once more, untouched, for its shapes, and each kernel is traced to the file.

That takes tens of milliseconds, most of what a candidate of a search costs; ``rules`` take less
than one. They are used under the versions and widths of blocks that ``rules_checked.json`` lists:
``experiments/quick_lowering.py`` held them to the engine there. The first network of a process is
checked all the same, then one after 50, 100, 200 … more. A difference ends the use of rules.
"""

import functools
import importlib.util
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat import onnx_io
from hybridlat.engines.fusion.groups import equal_results, numbered
from hybridlat.engines.host import instructions, one_line
from hybridlat.engines.ort.rules import lower_by_rules
from hybridlat.errors import BackendUnavailable, MeasurementError, NetworkError
from hybridlat.graph.builder import CONV_VERSION, NetworkBuilder
from hybridlat.graph.network import Lowered, Network, Node
from hybridlat.graph.operators import is_quantised, named
from hybridlat.graph.signature import sign
from hybridlat.schema.files import scratch_folder
from hybridlat.schema.target import Target

CONTEXTS: Mapping[str, float] = {"small": 4_000_000, "medium": 13_000_000, "": math.inf}
"""Contexts of cells, and the bytes of weights that a network of each holds less than."""
CHECKED_VERSIONS = Path(__file__).with_name("rules_checked.json")
FIRST_INTERVAL = 50
"""Networks that the rules cover between the first and the second check against the engine."""
_ACTIVATIONS = named("Relu LeakyRelu Tanh Sigmoid Clip HardSigmoid HardSwish QuickGelu")
_ADDITIONS = named("Add Sum")
# What the engine makes often keeps an operator's name in front: n12_token_43, n12.0_bn_nchwc.
_DERIVED_NAME = re.compile(r"(?:Inserted\w*Cast_)?n(\d+)(?:\.\d+(?:_bn)?_nchwc.*|[_/].*)?")
_differing: set[str] = set()  # versions that a check saw lower otherwise than the rules
_log = logging.getLogger(__name__)


def lower(network: Network, target: Target) -> Lowered:
    """Ask ONNX Runtime; MeasurementError with its own words when it refuses the network."""
    plain = numbered(network)
    try:
        with scratch_folder() as folder:
            raw = onnx_io.engine_network(plain, folder, target.threads or 1)
    except NetworkError as error:
        odd = {t.dtype for t in network.types.values()} & {"bfloat16", "float64"}
        fix = "export the model in FP32 (model.float()), or ask for a GPU: h100/tensorrt/bf16"
        advice = f"; its CPU kernels do not know all of {min(odd)}: {fix}" if odd else ""
        raise MeasurementError(f"{network.name}: {one_line(error)}{advice}") from error
    lowered = replace(raw, folded=network.folded, context=context_of(network))
    origins = _trace(plain, lowered)
    removed = tuple(sorted({*range(len(network.nodes))}.difference(*origins)))
    by = f"onnxruntime {installed_version()}"
    return Lowered(lowered, origins, removed, by, _about_casts(network, lowered))


def lower_quickly(network: Network, target: Target) -> Lowered:
    """The same answer, by rules where they are known to hold for the installed engine."""
    return rule_lowering(target.threads or 1).lower(network)


@functools.cache
def rule_lowering(threads: int) -> "RuleLowering":
    """The rules for the installed engine, with so many threads, as far as this process checked."""
    here = Target("here", "onnxruntime", "fp32", threads)
    is_trusted = is_checked(installed_version(), engine_block())
    return RuleLowering(lambda network: lower(network, here), is_trusted)


def identity(target: Target) -> str:
    """The engine's full version, what of this CPU decides its layout, and whether rules count."""
    engine = f"onnxruntime-{installed_version()}/{target.threads or 1}t/{instructions()}"
    return engine + "/engine" * (installed_version() in _differing)


@functools.cache
def installed_version() -> str:
    """The installed version, without loading the engine; BackendUnavailable where there is none."""
    # importlib.metadata tells it too, but takes 10 ms to import: part of each known answer.
    module = importlib.util.find_spec("onnxruntime")
    text = Path(module.origin).read_text("utf-8") if module and module.origin else ""
    stated = re.search("""^__version__ = ["'](.+)["']""", text, re.MULTILINE)
    if stated is None:
        raise BackendUnavailable("ONNX Runtime is not installed: pip install onnxruntime")
    return stated[1]


def is_checked(version: str, block: int) -> bool:
    """Whether the rules were held to the engine under a version, as ``1.32.0``, and a layout."""
    checked = json.loads(CHECKED_VERSIONS.read_text())
    return bool(checked.get(".".join(version.split(".")[:2]), {}).get("block") == block)


def context_of(network: Network) -> str:
    """``small``, ``medium`` or empty: how much the weights leave in the caches between two runs.

    Where they are few, a cell finds most of its own still in a nearby cache; where they are many,
    none, and it takes up to a fifth longer. So it is another cell for the store.
    """
    return next(name for name, most in CONTEXTS.items() if network.weight_bytes < most)


@functools.cache
def engine_block() -> int:
    """Channels of a block of the engine's layout on this CPU, 1 where it has none.

    The engine fills the last block of a convolution's channels up, which shows the number.
    """
    builder = NetworkBuilder("block")
    inputs = [builder.input((1, 3, 4, 4)), builder.constant((4, 3, 1, 1))]
    builder.op("Conv", inputs, (1, 4, 4, 4), CONV_VERSION)
    made = lower(builder.network(), Target("here", "onnxruntime", "fp32", 1)).network
    first = made.nodes[0]
    return made.types[first.outputs[0]].shape[1] if first.domain else 1


@dataclass
class RuleLowering:
    """Lowers networks by rules, and by the engine (``ask``) where they do not hold.

    ``is_trusted`` says whether rules are used. Of the networks that they have ``covered`` one is
    checked, ``next_check``; each check that agrees doubles the ``interval`` to the next.
    """

    ask: Callable[[Network], Lowered]
    is_trusted: bool
    interval: int = FIRST_INTERVAL
    covered: int = 0
    next_check: int = 1

    def lower(self, network: Network) -> Lowered:
        """What the engine makes of a network; MeasurementError where it refuses it."""
        predicted = predict(network) if self.is_trusted else None
        if predicted is None:
            return self.ask(network)
        self.covered += 1
        if self.covered < self.next_check:
            return predicted
        answer = self.ask(network)
        if agree(predicted, answer):
            self.next_check += self.interval
            self.interval *= 2
            return answer
        self.is_trusted = False
        _differing.add(installed_version())
        difference = f"{answer.by} lowers {network.name} otherwise than the rules for its version"
        _log.warning("%s: this process asks the engine for every network from now on", difference)
        return answer


def predict(network: Network) -> Lowered | None:
    """What the rules say; None where they say nothing."""
    by = f"onnxruntime {installed_version()}"
    return lower_by_rules(network, engine_block(), context_of(network), by)


def agree(one: Lowered, other: Lowered) -> bool:
    """Whether two lowerings are the same kernels, each of the same operators of the file."""
    if one.removed != other.removed or _kernels(one) != _kernels(other):
        return False
    return sign(one.network).hash == sign(other.network).hash


def _kernels(lowered: Lowered) -> Counter[tuple[object, ...]]:
    each = zip(lowered.network.nodes, lowered.origins, strict=True)
    return Counter((node.qualified_op, node.attributes, origins) for node, origins in each)


def _about_casts(file: Network, lowered: Network) -> tuple[str, ...]:
    """Says where the engine computes a file of half precision in FP32, which costs conversions."""
    added = sum(n.op == "Cast" for n in lowered.nodes) - sum(n.op == "Cast" for n in file.nodes)
    if added < 1 or all(t.dtype != "float16" for t in file.types.values()):
        return ()
    return (
        f"ONNX Runtime has FP32 kernels for most operators on a CPU and put in {added} conversions "
        "from and to FP16: a file in FP32 is faster here",
    )


# ---- which operators of a file each kernel computes ----


def _trace(file: Network, lowered: Network) -> tuple[tuple[int, ...], ...]:
    """For every kernel the positions of the file's operators that it computes; each at most once.

    ``file`` is the network under the names of ``numbered``: the name of a kernel's tensor, or its
    own, leads to an operator. From there the file is walked back to what other kernels compute, and
    forward to an addition or activation inside. Operators that compute the same are one kernel's.
    """
    claimed: set[int] = set()
    anchors = [_anchors(file, node) for node in lowered.nodes]
    anchored = {position for group in anchors for position in group}
    classes: dict[str, list[int]] = {}
    for later, first in equal_results(file, file.nodes).items():
        classes.setdefault(first, [file.producers[first]]).append(file.producers[later])
    equals = {position: alike for alike in classes.values() for position in alike}
    for group in anchors:  # an operator that was merged into an equal one goes to its kernel
        for position in [p for p in group if p in equals]:
            merged = [p for p in equals[position] if p not in anchored]
            group.extend(merged)
            anchored.update(merged)
    origins: list[tuple[int, ...]] = []
    pairs = [(k, p) for k, group in enumerate(anchors) for p in group]
    own = {p: k for k, p in reversed(pairs) if lowered.nodes[k].op.endswith(file.nodes[p].op)}
    for k, (node, group) in enumerate(zip(lowered.nodes, anchors, strict=True)):
        starts = [p for p in group if own.get(p, k) == k]  # not what only prepares its bias
        mine: set[int] = set()
        stack = list(starts)
        while stack:
            position = stack.pop()
            if position not in claimed and position not in mine:
                mine.add(position)
                makers = map(file.producers.get, file.nodes[position].inputs)
                stack += [m for m in makers if m is not None and m not in anchored]
        mine |= _absorbed(file, equals, claimed | anchored, node, starts[:1], mine)
        claimed |= mine
        origins.append(tuple(sorted(mine)))
    return tuple(origins)


def _anchors(file: Network, node: Node) -> list[int]:
    if node.op == "ReorderOutput" and not node.attribute("channels_last", 0):
        return []  # the same values in another layout, under the name that they have in the file
    anchors = [file.producers[out] for out in node.outputs if out in file.producers]
    derived = _DERIVED_NAME.fullmatch(node.name)
    return [int(derived[1])] if derived and not anchors else anchors


def _absorbed(
    file: Network,
    equals: dict[int, list[int]],
    taken: set[int],
    node: Node,
    start: list[int],
    mine: set[int],
) -> set[int]:
    """Operators behind the anchor, none ``taken``, that a kernel's attributes speak of."""
    nodes = file.nodes

    def readers(here: Sequence[int], kinds: Collection[str]) -> list[int]:
        """The operator of these kinds that reads what ``here`` makes, and its equals; else none."""
        read = [r for p in here for out in nodes[p].outputs for r in file.consumers.get(out, ())]
        fitting = [r for r in read if nodes[r].op in kinds and r not in taken]
        alike = equals.get(fitting[0], fitting[:1]) if fitting else []
        return fitting if set(fitting).issubset(alike) else []

    ops = {nodes[i].op for i in mine}
    adds = node.op in ("Conv", "FusedConv") and len(node.inputs) > 3 and bool(node.inputs[3])
    kinds_behind = [_ADDITIONS] if adds and not ops & _ADDITIONS else []
    if node.attribute("activation") and (kinds_behind or not ops & _ACTIVATIONS):
        kinds_behind.append(_ACTIVATIONS)
    absorbed, here = set[int](), start
    for kinds in kinds_behind:
        here = readers(here, kinds)
        absorbed.update(here)
    if is_quantised(node.op):
        # It gives out whole numbers: what rounds them in the file, and a bound that rounding keeps.
        bound = readers(here, _ACTIVATIONS)
        rounded = readers(bound or here, ("QuantizeLinear",))
        if rounded:
            absorbed.update(bound, rounded)
    return absorbed
