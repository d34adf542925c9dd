"""What cells of a table say: numbers with their marks and units, sizes, yes and no, targets."""

import functools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from hybridlat.errors import TargetError
from hybridlat.schema import names
from hybridlat.schema.plugins import shipped_files, shipped_table
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target

Size = tuple[int, int]
US_OF_UNIT: Mapping[str, float] = shipped_table("names")["units"]
LEAST_US, MOST_US = 1e-3, 1e12
"""No latency is below a nanosecond or above eleven days."""
_CHANNELS = (1, 3, 4)
_LONGEST_VALUE = 200  # letters; a cell has any number
_LONGEST_SIDE = 16384  # of an image: a number alone may count pixels or parameters
_MEASURE = re.compile(r"(.*?[0-9.,])\s*([a-zµμ]+)", re.IGNORECASE)
_TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_SHEETS = shipped_files("devices", ".toml")
PARTS = ("device", "engine", "precision")  # of a target
_PRECISION = re.compile(shipped_table("names")["engines"]["precision"], re.IGNORECASE)
_VARIANT, _VIRTUAL = (
    re.compile(shipped_table("names")["words"][n]) for n in ("variant", "virtual")
)
Roles = Mapping[str, bool]
"""Whether a mark of a column, ``,`` or ``.``, is its decimal sign, as far as that is clear."""


class Refusal(Exception):
    """Something that cannot be imported: why, the value, what would help, and where it stands."""

    def __init__(self, reason: str, value: object, fix: str) -> None:
        super().__init__(reason)
        text = visible(re.sub(r"[^\S\r\n]", " ", str(value)))
        text = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
        self.reason, self.value, self.fix, self.where = reason, text, fix, ""

    def at(self, where: str) -> "Refusal":
        """The same for a list of what was left out: it keeps no frame of the reading alive."""
        self.where, self.__context__ = where, None
        return self.with_traceback(None)


def as_text(value: object) -> str:
    """A cell of a table as text; empty for a missing one, and 8.0 is 8."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()


def _form(decimal: str, group: str) -> re.Pattern[str]:
    whole = rf"[1-9][0-9]{{0,2}}(?:([{group} \u00a0\u2009\u202f'’])[0-9]{{3}})(?:\1[0-9]{{3}})*"
    exact = rf"(?:[0-9]+(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:e[+-]?[0-9]{{1,3}})?"
    return re.compile(rf"[+-]?(?:{whole}(?:{decimal}[0-9]*)?|{exact})", re.IGNORECASE)


_FORMS = {".": _form(r"\.", ","), ",": _form(",", ".")}


def _readings(text: str) -> dict[str, float]:
    """The numbers that a text may be, by their decimal sign; thousands may be set apart."""
    return {
        sign: float(re.sub(rf"[^0-9e+{sign}-]", "", text.lower()).replace(",", "."))
        for sign, form in _FORMS.items()
        if form.fullmatch(text)
    }


def roles_of(texts: Iterable[str], decimal: str) -> Roles:
    """The roles of marks that numbers of a column show, else that of its table's ``decimal``.

    A negative one is refused, and may be of another hand.
    """
    of = {text: _readings(parted(text)[0]) for text in texts if text[:1] != "-"}
    known = [(text, *signs) for text, signs in of.items() if len(signs) == 1]
    shown = {(mark, mark == sign) for text, sign in known for mark in ",." if mark in text}
    roles = {}
    for mark, other in (",.", ".,"):
        own = {is_decimal for shown_mark, is_decimal in shown if shown_mark == mark}
        if (other, True) in shown:
            own = own if own == {False} else set()  # two decimal signs: neither is clear
        elif mark == decimal:
            own = own or {True}
        if len(own) == 1:
            roles[mark] = own.pop()
    return roles


def number(text: str, what: str, roles: Roles) -> float:
    """A number from 0 up, -1 for any other text; Refusal for a number with two readings."""
    known = {-1.0 if text[:1] == "-" else value for value in _readings(text).values()}
    if len(known) == 2:
        mark = "," if "," in text else "."
        if mark not in roles:
            low, high = sorted(known)
            value = f"{text} is {low:.10g} or {high:.10g}"
            fix = "set no thousands apart, and write 1.2500 for a decimal of three digits"
            raise Refusal(f"the {what} has two readings", value, fix)
        known = {min(known) if roles[mark] else max(known)}
    return known.pop() if known else -1.0


def positive(text: str, what: str, roles: Roles) -> float:
    """A finite number above 0; Refusal for another text."""
    if not 0.0 < (value := number(text, what, roles)) < MOST_US:
        raise Refusal(f"the {what} is not a positive number", text, f"correct the {what}")
    return value


def latency_us(text: str, unit: str, roles: Roles) -> float:
    """A latency under a column's unit, in microseconds; Refusal where the cell has another unit."""
    digits, own = parted(text)
    if own and US_OF_UNIT[own] != US_OF_UNIT[unit]:
        fix = "write all latencies of a column in one unit"
        raise Refusal("the latency has another unit than its column", f"{text} under {unit}", fix)
    us = positive(digits, "latency", roles) * US_OF_UNIT[unit]
    if not LEAST_US <= us <= MOST_US:
        raise Refusal("the latency is none of a network", f"{text} {unit}", "correct the latency")
    return us


def parted(text: str) -> tuple[str, str]:
    """A number and the unit of time behind it; no unit where there is another text."""
    match = _MEASURE.fullmatch(text)
    unit = match[2].lower() if match else ""
    return (match[1], unit) if match and unit in US_OF_UNIT else (text, "")


def count(text: str, what: str, roles: Roles) -> int:
    """A whole number from 1 up; Refusal for another text."""
    value = number(text, what, roles)
    if not (1 <= value < 1e9 and value.is_integer()):
        raise Refusal(f"{what} is not a whole number from 1 up", text, f"correct {what}")
    return int(value)


def shape(text: str) -> tuple[int | None, Size]:
    """Batch, and height and width, of ``224``, ``224x320``, ``3x224x224`` or ``1x224x224x3``."""
    inside = re.fullmatch(r"\s*[(\[]?(.*?)[)\]]?\s*", text, re.DOTALL)
    bare = inside[1] if inside else text
    comma = r"\s*,\s*|" if bare != text.strip() else r"\s*,\s+|"
    parts = re.split(rf"{comma}\s*[x×*]\s*|\s+", bare, flags=re.IGNORECASE)
    numbers = [int(n) for n in parts if re.fullmatch("[0-9]{1,9}", n)]
    if len(numbers) != len(parts) or len(numbers) > 4 or not 0 < min(numbers) <= _LONGEST_SIDE:
        raise Refusal("the size is not HEIGHTxWIDTH", text, "write it as 224x224")
    batch = numbers.pop(0) if len(numbers) == 4 else None
    if len(numbers) == 3:
        ends = [numbers[0] in _CHANNELS, numbers[2] in _CHANNELS]
        if ends[0] == ends[1]:
            raise Refusal("the size does not show its channels", text, "write it as 224x224")
        numbers = numbers[1:] if ends[0] else numbers[:2]
    return batch, (numbers[0], numbers[-1])


def truth(text: str) -> bool:
    """Yes or no; Refusal for another text."""
    if text.lower() not in _TRUTHS:
        raise Refusal("a cell holds neither yes nor no", text, "write yes or no")
    return _TRUTHS[text.lower()]


@functools.lru_cache(1 << 12)
def is_device(text: str) -> bool:
    """Whether a text names a device that has a data sheet."""
    with suppress(TargetError):
        return names.device_name(text) in _SHEETS
    return False


def target_of(
    fields: Mapping[str, str], default: Target | None, threads: int | None = None
) -> Target:
    """The target of a row's fields (target, or device, engine, version and precision)."""
    stated = {name: text for name, text in fields.items() if text}
    device = engine = precision = ""
    try:
        if whose := stated.get("device") or stated.get("target", "").partition("/")[0]:
            device = _device_named(whose)
        if "precision" in stated:
            precision = names.precision_name(stated["precision"])
        target = names.target_named(stated["target"]) if "target" in stated else None
        elsewhere = (target or default) if "version" in stated else None
        if raw := stated.get("engine") or (elsewhere.engine if elsewhere else ""):
            engine = names.engine_name(raw, stated.get("version", ""))
            beside = None if target or "engine" in stated else elsewhere
            if beside and beside.version and engine != beside.runtime:
                value, fix = f"{stated['version']}, {default}", "say whose in a column engine"
                raise Refusal("the version is not that of --target", value, fix)
            words = dict.fromkeys(map(str.lower, _PRECISION.findall(raw)))
            if words and precision and not precision.startswith(tuple(words)):
                value = f"{raw}, {precision}"
                raise Refusal("the row contradicts itself", value, "correct one of them")
            precision = precision or (names.precision_name("+".join(words)) if words else "")
        if target is not None:
            return agreeing(target, device, engine, precision)
        if default is not None:
            engine = default.runtime if engine == default.engine else engine  # its version
            device, engine = device or default.device, engine or default.runtime
            precision, threads = precision or default.precision, threads or default.threads
        parts = dict(zip(PARTS, (device, engine, precision), strict=True))
        if missing := [name for name, part in parts.items() if not part]:
            why = "the device, engine or precision is not stated"
            fix = "state it with --target, or in a table by a column or constant (--columns)"
            raise Refusal(why, f"{' and '.join(missing)} missing", fix)
        return Target.parse(str(Target(device, engine, precision, threads)))
    except TargetError as error:
        value = fields.get("target") or ", ".join(filter(None, map(fields.get, PARTS)))
        fix = f"{error}; a mapping of values helps"
        raise Refusal("what it was measured on cannot be read", value, fix) from None


@functools.lru_cache(1 << 12)
def _device_named(text: str) -> str:
    """A device as targets write it; Refusal for a known one with more to its name, and a vGPU."""
    name, known = names.device_name(text), {*_SHEETS, *names.own_sheets()}
    own = max((n for n in known if f"-{n}-" in f"-{name}-"), key=len, default=name)
    is_virtual = name not in known and _VIRTUAL.search(name)
    if is_virtual or not _VARIANT.fullmatch(name.removeprefix(own)):
        value = f"{text} is {own}, a part of it or another" if own != name else text
        fix = "name it as `hybridlat targets` does, or write its data sheet"
        raise Refusal("the device is none that is known as a whole", value, fix)
    return name


def board(device: str, default: Target | None) -> str:
    """A device's name; of a chip that several boards have that of the user's board, or Refusal."""
    boards = names.several_boards(device, _SHEETS)
    if not boards:
        return device
    if default is not None and names.boards_of(device, [default.device]):
        return default.device
    value = f"{device} is {' or '.join(boards)}"
    raise Refusal("several boards have this chip", value, "name it, or say which with --target")


def agreeing(target: Target, *parts: str) -> Target:
    """A row's target; Refusal where another column says something else, not just more or less."""
    for own, part in zip(parts, (target.device, target.runtime, target.precision), strict=True):
        words, others = set(own.split("-")), set(part.split("-"))
        is_other = others < words and own in _SHEETS  # a laptop's board, say
        if own and (is_other or not (words <= others or others <= words)):
            why = "the columns of the target contradict each other"
            raise Refusal(why, f"{target}, {own}", "correct or drop one of them")
    return target
