"""Lowering without asking ONNX Runtime for every network, where rules are known to hold.

The engine takes tens of milliseconds for a network, which is most of what a candidate of a search
costs; ``rules`` take less than one. They are used under the versions that ``rules_checked.json``
lists: those for which ``experiments/24_quick_lowering.py`` held them to the engine, network by
network. The first network of a process and every fiftieth are checked all the same. A difference
ends the use of rules in the process.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hybridlat.engines.onnxruntime.rules import lower_by_rules
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign

CHECKED_VERSIONS = Path(__file__).with_name("rules_checked.json")
CHECK_EVERY = 50
"""Of so many networks that the rules cover, one is checked against the engine."""
BLOCKS = (16, 8)
"""Channels of a block of the engine's layout: with AVX-512 (or NEON), and without."""
_log = logging.getLogger(__name__)


@dataclass
class RuleLowering:
    """Lowers networks by rules, and by the engine that ``ask`` reaches where they do not hold.

    ``context`` and ``by`` are what the answers carry (see ``Network.context``, ``Lowered.by``);
    ``block`` is how many channels the engine's blocks have. ``is_trusted`` says whether rules are
    used. The counts are of networks that the rules covered, and of those the checked ones.
    """

    ask: Callable[[Network], Lowered]
    context: Callable[[Network], str]
    by: str
    block: int
    is_trusted: bool
    covered: int = 0
    checked: int = 0

    def lower(self, network: Network) -> Lowered:
        """What the engine makes of a network; MeasurementError where it refuses it."""
        predicted = self._predict(network, self.block) if self.is_trusted else None
        if predicted is None:
            return self.ask(network)
        self.covered += 1
        if self.covered % CHECK_EVERY != 1:
            return predicted
        return self._check(network, predicted)

    def _predict(self, network: Network, block: int) -> Lowered | None:
        return lower_by_rules(network, block, self.context(network), self.by)

    def _check(self, network: Network, predicted: Lowered) -> Lowered:
        """The engine's answer; it ends the use of rules if it differs for every size of block."""
        answer = self.ask(network)
        self.checked += 1
        if agree(predicted, answer):
            # Later samples need not be stored: the rules find them again.
            return replace(answer, is_quick=self.checked > 1)
        for block in BLOCKS:
            other = self._predict(network, block)
            if other is not None and agree(other, answer):
                self.block = block
                return answer
        self.is_trusted = False
        _log.warning(
            "%s lowers %s otherwise than the rules for its version: this process asks the engine "
            "for every network from now on",
            self.by, network.name,
        )  # fmt: skip
        return answer


@cache
def checked_versions() -> frozenset[str]:
    """Versions of ONNX Runtime, as ``1.32``, under which the rules were held to the engine."""
    return frozenset(json.loads(CHECKED_VERSIONS.read_text()))


def is_checked(version: str) -> bool:
    """Whether the rules hold for a version, as ``1.32.0``."""
    return ".".join(version.split(".")[:2]) in checked_versions()


def agree(one: Lowered, other: Lowered) -> bool:
    """Whether two lowerings are the same kernels, each of the same operators of the file."""
    if len(one.network.nodes) != len(other.network.nodes) or one.removed != other.removed:
        return False
    if sign(one.network).hash != sign(other.network).hash:
        return False
    return _kernels(one) == _kernels(other)


def _kernels(lowered: Lowered) -> Counter[tuple[object, ...]]:
    return Counter(
        (node.qualified_op, node.attributes, origins)
        for node, origins in zip(lowered.network.nodes, lowered.origins, strict=True)
    )
