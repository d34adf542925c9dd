"""A whole network that somebody measured, as a table or a log has it, and what does not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hybridlat.errors import TargetError
from hybridlat.schema.names import device_name, engine_name, precision_name, target_named
from hybridlat.schema.target import Target

Size = tuple[int, int]


@dataclass(frozen=True)
class NetworkRow:
    """One latency of one network, microseconds for the whole batch.

    ``names`` are what its ONNX file may be called (without the ending), the likeliest first;
    ``batch`` and ``size`` (height, width) None: as the file has them. ``samples_us`` are single
    inferences where they are known. ``labels`` is what a record must tell later of its origin.
    """

    where: str
    names: tuple[str, ...]
    target: Target
    latency_us: float
    batch: int | None = None
    size: Size | None = None
    protocol: str = "published table"
    samples_us: tuple[float, ...] = ()
    spread_share: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that cannot be imported: where it stands, the value, why, and what would help."""

    where: str
    value: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Rows:
    """What was read from tables or logs."""

    rows: tuple[NetworkRow, ...]
    refused: tuple[Refusal, ...]


class Misfit(Exception):
    """Why one row is refused; becomes a :class:`Refusal` where the row is known."""

    def __init__(self, reason: str, value: object, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.value, self.fix = reason, str(value), fix

    def at(self, where: str) -> Refusal:
        """The refusal of the row at ``where``."""
        return Refusal(where, self.value, self.reason, self.fix)


def target_of(fields: Mapping[str, str], default: Target | None) -> Target:
    """The target of a row's fields (target, or device, engine, version, precision, threads).

    ``default`` gives the parts that the row does not state. Raises Misfit.
    """
    try:
        if fields.get("target"):
            return target_named(fields["target"])
        device = device_name(fields["device"]) if fields.get("device") else ""
        engine = (
            engine_name(fields["engine"], fields.get("version", "")) if fields.get("engine") else ""
        )
        precision = precision_name(fields["precision"]) if fields.get("precision") else ""
    except TargetError as error:
        value = fields.get("target") or ", ".join(filter(None, map(fields.get, _PARTS)))
        raise Misfit(
            "what it was measured on cannot be read", value, f"{error}; a mapping of values helps"
        ) from None
    if default is not None:
        device, engine = device or default.device, engine or default.runtime
        precision = precision or default.precision
    missing = [n for n, v in zip(_PARTS, (device, engine, precision), strict=True) if not v]
    if missing:
        raise Misfit(
            "it is not said what it was measured on", " and ".join(missing) + " missing",
            "name the columns or give constants with --columns, or --target for all that is not "
            "stated",
        )  # fmt: skip
    threads = default.threads if default is not None else None
    if fields.get("threads"):
        threads = whole_number(fields["threads"], "thread count")
    return Target(device, engine, precision, threads)


_PARTS = ("device", "engine", "precision")


def whole_number(text: str, what: str) -> int:
    """A count from 1 up; Misfit for another text."""
    match = re.fullmatch(r"\s*([0-9]{1,9})(\.0*)?\s*", text)
    if match is None or int(match[1]) < 1:
        raise Misfit(f"the {what} is not a whole number from 1 up", text, f"correct the {what}")
    return int(match[1])


def positive_number(text: str, what: str) -> float:
    """A finite number above 0, with thousands set apart or not; Misfit for another text."""
    plain = re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", text.strip())
    try:
        value = float(plain)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e15:
        raise Misfit(f"the {what} is not a positive number", text, f"correct the {what}")
    return value


def size_of(text: str) -> Size:
    """Height and width of ``224``, ``224x320`` or ``3x224x224``; Misfit for another text."""
    numbers = [int(n) for n in re.findall(r"[0-9]+", text)]
    if not re.fullmatch(r"[\s(\[]*[0-9]+([\s,x×*]+[0-9]+){0,3}[\s)\]]*", text, re.IGNORECASE) or (
        min(numbers) < 1
    ):
        raise Misfit("the size is not HEIGHTxWIDTH", text, "write it as 224x224")
    return (numbers[-2], numbers[-1]) if len(numbers) > 1 else (numbers[0], numbers[0])


def grouped(refused: Sequence[Refusal]) -> dict[tuple[str, str], list[Refusal]]:
    """Refusals by reason and fix, the commonest reason first."""
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for item in refused:
        groups.setdefault((item.reason, item.fix), []).append(item)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))
