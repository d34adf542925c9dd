"""What ONNX Runtime makes of a stretch of a network, by the rules that ``quick`` trusts.

A stretch lies between two tensors that alone are live, where nothing behind joins what makes them.
So its kernels hang on the stretch before it only by whether that leaves its result in blocks; what
else patterns speak of across the border is put in for each stretch that stands before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hybridlat.engines.base import LoweredStretch
from hybridlat.engines.onnxruntime.draft_graph import Kernel
from hybridlat.engines.onnxruntime.patterns import Maker, OpenPatterns, Pattern, maker_of
from hybridlat.engines.onnxruntime.quick import QuickLowering
from hybridlat.engines.onnxruntime.rules import JOINING, drawn
from hybridlat.graph.network import Network


@dataclass(frozen=True, slots=True, eq=False)
class _Border:
    """What makes the one tensor between two stretches, as the next one meets it.

    ``channels`` is 0 where the tensor is in the file's layout. ``left`` are the patterns of the
    kernel if somebody reads it in that layout, ``taken`` if nobody does.
    """

    maker: Maker
    channels: int
    left: frozenset[Pattern]
    taken: frozenset[Pattern]

    def kernel(self, output: str) -> Kernel:
        """A stand-in for what makes it, under the name ``output``."""
        op, domain, _, _, is_activated, adds = self.maker
        inputs = [""] * 4 if adds else []
        return Kernel(
            op, domain, 1, inputs, output, (), [], -1, self.channels, is_activated=is_activated
        )


_END = _Border(("", "", False, False, False, False), 0, frozenset(), frozenset())
"""Stands at both ends of a network."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """What patterns speak of in a stretch; ``last`` and ``channels`` tell of its last kernel."""

    patterns: OpenPatterns
    last: Maker | None
    channels: int


@dataclass
class StretchRules:
    """The rules, stretch by stretch; ``quick`` says which patterns the engine has confirmed."""

    quick: QuickLowering
    context: Callable[[int], str]
    joining: frozenset[str] = JOINING
    start: object = _END
    _borders: dict[object, _Border] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether the engine has confirmed anything yet."""
        return bool(self.quick.confirmed)

    @property
    def generation(self) -> object:
        """Changes when the engine has taken back what it had confirmed."""
        return self.quick.generation

    def may_skip_asking(self) -> bool:
        """Count one more network that the engine is not asked for; no where it is time to ask."""
        return self.quick.may_skip_asking()

    def form(self, before: object) -> object:
        """Whether a border is one in blocks, of how many channels; or the start of the network."""
        return None if before is _END else _known(before).channels

    def lower(
        self, stretch: Network, before: object, readers: int, context: str
    ) -> LoweredStretch | None:
        """The kernels of a stretch; None where the rules do not cover it."""
        entry = None if before is _END else _known(before).kernel(stretch.inputs[0])
        graph = drawn(stretch, self.quick.block, entry, readers)
        if graph is None or (entry is not None and (entry.origins or entry.attributes)):
            return None
        last = graph.made[graph.held_as(stretch.outputs[0])] if readers else None
        if last is not None and last is entry:
            return None
        inside = _Inside(
            OpenPatterns.around(graph, last),
            None if last is None else maker_of(last),
            0 if last is None else last.channels,
        )
        return LoweredStretch(graph.lowered(context, self.quick.by), inside)

    def behind(self, inside: object, before: object) -> object | None:
        """The border behind a stretch; None where the engine has not confirmed all up to it."""
        border = _known(before)
        assert isinstance(inside, _Inside)
        patterns = inside.patterns.of(border.maker)
        patterns |= border.left if inside.patterns.is_left else border.taken
        if not self.quick.has_confirmed(patterns):
            return None
        if inside.last is None:
            return _END
        left = inside.patterns.of_last(border.maker, True)
        taken = inside.patterns.of_last(border.maker, False)
        told = inside.last, inside.channels, left, taken
        return self._borders.setdefault(told, _Border(*told))


def _known(border: object) -> _Border:
    assert isinstance(border, _Border)
    return border
