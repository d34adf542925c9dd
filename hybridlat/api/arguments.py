"""What the front door takes: how a predictor estimates, and networks from any source.

A source is a file, bytes, a ModelProto, or a ``torch.nn.Module``.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict, get_args

from hybridlat import onnx_io
from hybridlat.engines.device_sheets import read
from hybridlat.errors import InputError
from hybridlat.onnx_io import torch_export
from hybridlat.schema.shown import number_of
from hybridlat.schema.target import Device
from hybridlat.schema.workers import OnProgress

if TYPE_CHECKING:
    import torch

    from hybridlat.graph.network import Network
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import ModelSource, OnnxFile, Recall, Shapes
    from hybridlat.onnx_io.torch_export import Example

MeasureMode = Literal["auto", "never", "always"]
"""Whether a call measures; see ``predict``."""


@dataclass(frozen=True)
class Options:
    """How a predictor estimates, whatever the target; InputError for what makes no sense."""

    tolerance: float | None = None
    confidence: float = 0.9
    measure: MeasureMode = "auto"
    device: Device | None = None
    settings: MeasurementConfig | None = None
    progress: OnProgress | None = None
    runtime: str = ""  # the target's as the user wrote it
    models: tuple[Path, ...] | None = None  # folders of the model, where nothing installed counts

    def __post_init__(self) -> None:
        shares = {"confidence": (self.confidence, "0.9 for 90 %")}
        if self.tolerance is not None:
            shares["tolerance"] = (self.tolerance, "0.05 for 5 %")
        for name, (share, example) in shares.items():
            # Beyond the digits of a float, the quantile of a confidence is none.
            if not 0.5 < (1 + number_of(share)) / 2 < 1:
                raise InputError(f"{name}={share!r} is no share between 0 and 1: write {example}")
            object.__setattr__(self, name, number_of(share))  # JSON takes no other kind
        if self.measure not in get_args(MeasureMode):
            raise InputError(f"measure={self.measure!r}: choose auto, never or always")
        if not (self.progress is None or callable(self.progress)):
            raise InputError(f"progress={self.progress!r} cannot be called: give a function")
        if self.settings is not None:
            from hybridlat.measuring.schedule import MeasurementConfig  # few calls measure

            if not isinstance(self.settings, MeasurementConfig):
                raise InputError(f"settings={self.settings!r}: give a hybridlat.MeasurementConfig")

    @property
    def aim(self) -> float:
        """What the gate works towards: the tolerance, 5 % where none is given."""
        return 0.05 if self.tolerance is None else self.tolerance


class Sizes(TypedDict, total=False):
    """The sizes that a network is predicted at; see ``hybridlat.predict``."""

    batch: int | None
    shapes: Shapes | None


class ManyOptions(Sizes, total=False):
    """The keywords of ``Predictor.predict_many``, but for ``errors``."""

    describe: bool
    jobs: int | None
    dedupe: bool


class OneBatch(Sizes, total=False):
    """The keywords of ``Predictor.predict`` for an estimate."""

    name: str | None
    describe: bool


class Batches(TypedDict, total=False):
    """The keywords of ``Predictor.predict`` for a list of estimates."""

    batch: Required[Sequence[int]]
    shapes: Shapes | None
    name: str | None
    describe: bool


class PredictorOptions(TypedDict, total=False):
    """The keywords of ``Predictor``, of which ``hybridlat.predict`` says what each is."""

    store: str | None
    threads: int | None
    measure: MeasureMode
    tolerance: float | None
    confidence: float
    progress: OnProgress | None
    settings: MeasurementConfig | None
    device: str | Path | Device | None
    known: Mapping[Any, float] | None


class PredictOptions(PredictorOptions, OneBatch, total=False):
    """The keywords of ``hybridlat.predict`` for an estimate."""


class PredictBatches(PredictorOptions, Batches, total=False):
    """The keywords of ``hybridlat.predict`` for a list of estimates."""


class SizedOptions(PredictorOptions, Sizes, total=False):
    """The keywords of ``hybridlat.compare`` and ``measure``."""


def sheet_of(device: object, target: object) -> Device | None:
    """The data sheet that stands for the target's device."""
    if device is not None and target is None:
        raise InputError(
            "device is the data sheet of the target's device: give a target as well, as in "
            "target='l4/tensorrt/fp16'"
        )
    if isinstance(device, str | os.PathLike):
        return read(os.fspath(device))
    if not (device is None or isinstance(device, Device)):
        raise InputError(f"device={device!r}: give a hybridlat.Device or the path of a data sheet")
    return device


Source: TypeAlias = "ModelSource | torch.nn.Module"
"""A path, the bytes of an ONNX file, an ``onnx.ModelProto``, or a ``torch.nn.Module``."""
ManySource: TypeAlias = "Source | tuple[torch.nn.Module, Example]"
"""A ``Source``, or a module with the input that it is exported for."""


@dataclass(frozen=True)
class Opened:
    """A network, and the sizes of its inputs."""

    file: OnnxFile
    batch: int | None = None
    shapes: Shapes | None = None

    def network(self) -> Network:
        return self.file.network(self.batch, self.shapes)


@dataclass(frozen=True)
class Query:
    """The arguments that many networks share; InputError for sizes that are none."""

    batch: int | None = None
    shapes: Shapes | None = None
    example: Example | None = None
    describe: bool = False
    dedupe: bool = False

    def __post_init__(self) -> None:
        size, batch = whole_number(self.batch), self.batch
        if batch is not None and (size is None or size < 1):
            fix = "give a whole number from 1 (predict and sweep take several)"
            raise InputError(f"{batch!r} is no batch size: {fix}")
        object.__setattr__(self, "batch", size)
        object.__setattr__(self, "shapes", _checked_shapes(self.shapes))


@dataclass(frozen=True)
class Item:
    """A network that is asked about; ``name`` None for one that has a name of its own."""

    source: Source
    name: str | None = None
    example: Example | None = None

    @property
    def travels(self) -> bool:
        """Whether it can be sent to a worker; a ModelProto that ``as_bytes`` left cannot."""
        return not onnx_io.is_model(self.source)

    def as_bytes(self) -> Item:
        """The same, ready to be sent: a ModelProto becomes the bytes that it is sent as."""
        named = onnx_io.as_bytes(self.source)
        return self if named is None else Item(named[1], self.name or named[0], self.example)

    def opened(self, query: Query, recall: Recall | None = None) -> Opened:
        """The network; a file that ``recall`` knows is not parsed yet, a module is exported."""
        source, name = self.source, self.name
        if not (name is None or isinstance(name, str)):
            raise InputError(f"name={name!r} is no text: give the network a name, or none")
        if not torch_export.is_module(source):
            if self.example is not None:
                raise InputError(
                    f"input={self.example!r:.40} goes with a torch.nn.Module, and a "
                    f"{type(source).__name__} is none: an ONNX model's sizes are given by batch=8 "
                    "or shapes={...}, and a target is given to Predictor"
                )
            return Opened(onnx_io.load(source, name, recall), query.batch, query.shapes)
        called = type(source).__name__
        if query.shapes:
            raise InputError(
                f"shapes name the inputs of an ONNX model: give the sizes of {called} as its "
                "input, as in predict(model, input=(1, 3, 224, 224))"
            )
        example = query.example if self.example is None else self.example
        if example is None:
            raise InputError(
                f"{called} is a torch.nn.Module, exported for an example input: give one or its "
                "shape, as in predict(model, input=(1, 3, 224, 224))"
            )
        # The module is called with that batch: what was exported for another may have it baked in.
        exported = torch_export.export(source, example, query.batch)
        file = onnx_io.load(exported, name or called)
        if query.batch not in (None, file.batch_inside() or query.batch):
            raise InputError(
                f"batch={query.batch} is the first size of {called}'s input, which holds the steps "
                "of a recurrent layer: give an input of that batch instead"
            )
        return Opened(file)


def whole_number(value: object) -> int | None:
    """``value`` as an int; None where it is none of 32 bits, such as text, 1.5 or True."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return None if isinstance(value, bool) or abs(number) >= 2**31 else number


def _checked_shapes(shapes: object) -> Shapes | None:
    if shapes is None:
        return None
    hint = 'give shapes={"input": (1, 3, 224, 224)}'
    if not isinstance(shapes, Mapping):
        raise InputError(f"shapes={shapes!r} does not say which input it is of: {hint}")
    checked = {}
    for name, shape in shapes.items():
        sizes = [whole_number(size) for size in (shape if isinstance(shape, Iterable) else [None])]
        if None in sizes:
            raise InputError(f"{shape!r} is no shape of the input {name!r}: {hint}")
        checked[name] = tuple(size for size in sizes if size is not None)
    return checked


def items_of(sources: Iterable[ManySource]) -> Iterator[Item]:
    """The networks with their names; a module may stand in a tuple with its own input."""
    for index, source in enumerate(sources):
        example = None
        if isinstance(source, tuple) and len(source) == 2:
            source, example = source
        graph, name = getattr(source, "graph", None), None
        if torch_export.is_module(source):
            name = f"{type(source).__name__} {index}"
        elif isinstance(source, bytes | bytearray | memoryview) or (graph and not graph.name):
            name = f"network {index}"
        yield Item(source, name, example)


def check_many(sources: object, name: str) -> None:
    """InputError where ``sources`` is no list of networks; ``name`` is what was called."""
    one = isinstance(sources, str | bytes | bytearray | os.PathLike)
    if one or not isinstance(sources, Iterable):
        raise InputError(f"{name} takes a list of networks: for a single one there is predict")
