"""One name for a device, an engine and a precision, however drivers, tables and logs write it."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from hybridlat.errors import TargetError
from hybridlat.schema.files import listing
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.target import PRECISIONS, VERSION, Target, version_key

_MEMORY_OR_FORM = re.compile(r"[0-9]+gb|pcie|pci|sxm[0-9]?|sxm2e|gddr[5-7]x?|hbm[23]e?")
_MOST_LETTERS = 500
MODES = re.compile(r"(?:-[0-9]+w|-max-[npq]|-super)+$")
"""Power modes, at the end of a Jetson's name."""


def _table(name: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], shipped_table("names")[name])


def user_folder() -> Path:
    """Where a user's own sheets lie; one of a shipped device's name stands in for that one."""
    from platformdirs import user_config_path

    return user_config_path("hybridlat") / "devices"


def own_sheets() -> dict[str, Path]:
    """The user's own sheets by device: a listing, so that no name leads out of the folder."""
    return {file.stem: file for file in listing(user_folder(), "*.toml")}


def arm_core(implementer: str, part: str) -> str:
    """An ARM core by its two numbers of /proc/cpuinfo: ``neoverse-n1``, or ``arm-0x41-0xfff``."""
    known = _table("arm").get(implementer.lower(), {}).get(part.lower())
    return known or cpu_name(f"arm-{implementer}-{part}")


def device_name(raw: str, board: str = "") -> str:
    """A device as targets write it: ``Tesla V100-SXM2-16GB`` is v100, ``GTX1080Ti`` gtx-1080-ti.

    For what nvidia-smi, CUDA, a board's device tree, frameworks and tables print, GPUs and CPUs.
    Maker, product line, form and memory are dropped unless the hardware differs with them
    (``h100-pcie``, ``a100-80gb``). An unknown one becomes a clean name of its own, and a name made
    here or a sheet's of the user stays as it is. ``board`` is the board's own name where the system
    has one: CUDA says "Orin" of every Jetson Orin; a power mode ends the name (``orin-nano-7w``),
    unless the plain one means it. TargetError where no letter or digit is left, and for several
    devices.
    """
    if raw in own_sheets():
        return raw
    _refuse_foreign(raw, "device")
    name = _as_read(raw, board)
    for _ in range(8):  # what a first reading leaves may hold a maker's word anew
        before, name = name, _as_read(name)
        if name == before:
            break
    if re.fullmatch("(cuda|gpu|(.*-)?dla(-core)?|yes|no|true|false|none)?-?[0-9]*", name):
        raise TargetError(f"{raw!r} names no device: write its model, as in t4")
    return name


def boards_of(chip: str, known: Iterable[str]) -> list[str]:
    """The boards that have a chip, by what CUDA calls it (``Orin``); none for another name."""
    match = re.fullmatch(_table("words")["chip"], chip.lower().strip())
    return [name for name in known if match and name.startswith(_table("chips")[match[1]])]


def several_boards(chip: str, known: Iterable[str]) -> list[str]:
    """Those of ``boards_of``, but for their power modes, where they are more than one."""
    boards = [name for name in boards_of(chip, known) if not MODES.search(name)]
    return boards if len(boards) > 1 else []


def refuse_chip(device: str, known: Iterable[str]) -> None:
    """TargetError for a name that several of the ``known`` boards may be meant by."""
    if boards := several_boards(device, known):
        raise TargetError(f"{device!r} is the chip of {', '.join(boards)}: name the board")


def near(device: str, known: Iterable[str]) -> list[str]:
    """Up to three devices that a name may mean: whole names in it or about it, then those alike."""
    names = sorted(known)
    akin = [n for n in names if f"{n}-".startswith(f"{device}-") or n.endswith(f"-{device}")]
    akin += sorted((n for n in names if f"-{n}-" in f"-{device}-"), key=len, reverse=True)
    return list(dict.fromkeys([*akin, *difflib.get_close_matches(device, names, n=2)]))[:3]


def _refuse_foreign(raw: str, what: str) -> None:
    """TargetError for what patterns would take hours over, or drop of a name in silence."""
    if len(raw) > _MOST_LETTERS:
        raise TargetError(f"{raw[:40]!r}… names nothing: it has {len(raw):,} letters")
    if foreign := next((c for c in raw if c.isalnum() and not c.isascii()), ""):
        raise TargetError(f"{raw!r} names no {what}: the letter {foreign!a} is in no name")


def _as_read(raw: str, board: str = "") -> str:
    words = set(re.findall(r"(?<![a-z0-9])[a-z]+", raw.lower()))
    of = _table("words")
    is_cpu = words.intersection(of["surely_cpu"]) or ("cpu" in words and "gpu" not in words)
    is_cpu = is_cpu or (words.intersection(of["cpu"]) and words.isdisjoint(of["gpu"]))
    name = cpu_name(raw) if is_cpu else _gpu(raw)
    if name in of["chips"] and board:
        gpu_name = _gpu(board)
        if gpu_name.split("-")[0] in ("orin", "xavier", "jetson", "tx2", "thor"):
            name = gpu_name
    return name


def cpu_name(raw: str) -> str:
    """A CPU as targets write it: ``Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz`` xeon-8481c."""
    text = re.sub(r"\((r|tm|c)\)|@.*|\b[0-9]+-core\b|\b[0-9]+th(?= gen\b)", " ", raw.lower())
    noise = _table("words")["cpu_noise"]
    return "-".join(w for w in re.findall(r"[a-z0-9]+", text) if w not in noise)


def _gpu(raw: str) -> str:
    text = raw.lower()
    for form, replacement in _table("words")["rewritten"]:
        text = re.sub(form, replacement, text)
    if re.search(_table("words")["several"], text):
        raise TargetError(f"{raw!r} names several devices: a target is one, as t4")
    noise, distinct = _table("words")["noise"], _table("words")["distinct"]
    words = [w.strip(".+") for w in re.findall(r"[a-z0-9.+]+", text)]
    words = [w for w in words if w and w not in noise]
    apart = sorted(filter(_MEMORY_OR_FORM.fullmatch, words))  # the memory first
    name, modes = "-".join(w for w in words if w not in apart), ""
    for pattern, replacement in _table("words")["lines"]:
        name = re.sub(pattern, replacement, name)
    name = name.replace("-max-n-super", "-super")
    if mode := MODES.search(name):
        name, modes = name[: mode.start()], mode[0]
    aliases = _table("devices")
    words, name = name.split("-"), aliases.get(name, name)
    for word in apart:
        first = f"{words[0]}-{word}" if words else ""
        if f"{name}-{word}" in distinct:
            name = f"{name}-{word}"
        elif first in distinct:  # a part of one: a100-80gb-mig-1g.10gb
            name = "-".join((first, *words[1:]))
    return re.sub(r"(-max-n)+$", "", aliases.get(name + modes, name + modes))


_NUMBER = re.compile(r"(?<![a-z0-9.])v?([0-9]+(?:\.[0-9]+)*)")


def engine_name(raw: str, version: str = "") -> str:
    """An engine as targets write it: ``TensorRT 8.6.1, CUDA 12`` is tensorrt-8.6.

    ``version`` is the engine's where it is stated apart. Two numbers of a version are kept: patches
    do not change which kernels run. TargetError where no letter is left, for words that change
    what runs, and for a version that the engine never had.
    """
    _refuse_foreign(raw + version, "engine")
    of = _table("engines")
    if how := re.search(of["how"], raw.lower()):
        raise TargetError(f"{raw!r} is no plain engine: leave out {how[0]!r}, if it does not count")
    if re.fullmatch(of["date"], version.strip().lower()):
        raise TargetError(
            f"{version!r} is a date, not a version: a spreadsheet made it of 8.6 or so"
        )
    text = re.sub(r"(trt|tensorrt|torch|runtime|ort)(?=[0-9])(?!2trt)", r"\1 ", raw.strip().lower())
    beside = rf"(?<![a-z])({'|'.join(of['beside'])})[-_ :=v]*[0-9][0-9.]*"
    text, version = (re.sub(r"(?<=[0-9])[_,](?=[0-9])", ".", part) for part in (text, version))
    text = re.sub(beside, " ", text).replace("_", " ")
    words = re.findall(r"[a-z][a-z0-9]*", re.sub(_NUMBER, " ", text.split(",")[0]))
    known = ((match, name) for form, name in of["patterns"] if (match := re.search(form, text)))
    match, name = next(known, (None, "-".join(word for word in words if word != "ngc")))
    if not name:
        raise TargetError(f"{raw!r} names no engine: write it as tensorrt-8.6 or torch-2.4")
    behind = text[match.start() :] if match else ""  # in front a number may be another word's
    ahead = text.split(",")[0] if match is None or re.match(r"\W*v?[0-9]", text) else ""
    texts = (re.sub(beside, " ", version.lower()), behind, ahead)
    stated = next((number for part in texts if (number := _NUMBER.search(part))), None)
    if stated is None:
        return f"{name}-ngc" if "ngc" in f"{text} {version}".lower() else name
    numbers = ".".join(stated[1].split(".")[:2])
    refuse_version(name, numbers)
    return f"{name}-{numbers}"


def engine_text(runtime: str) -> str:
    """A target's runtime as people write it: ``onnxruntime-1.31`` is ONNX Runtime 1.31."""
    engine = VERSION.sub("", runtime)
    return f"{_table('written').get(engine, engine)} {runtime[len(engine) + 1 :]}".rstrip()


_CONTAINER = re.compile(r"(1[7-9]|[2-9][0-9])\.(0[1-9]|1[0-2])(\.[0-9]+)?")
_MOST_AHEAD = 20


def refuse_version(engine: str, version: str) -> None:
    """TargetError for a version that a known engine never had."""
    last = {int(key): minor for key, minor in _table("versions").get(engine, {}).items()}
    if not last or not version_key(version):
        return
    newest, (major, minor, *_) = [*last][-1], (*version_key(version), 0)
    most = 0 if major == newest + 1 else last.get(major, -1 - _MOST_AHEAD)
    if minor <= most + (_MOST_AHEAD if major >= newest else 0):
        return
    known, name = f"the newest known is {newest}.{last[newest]}", engine_text(engine)
    if _CONTAINER.fullmatch(version):
        known = f"{version} is a container's year and month: write the version of {name} in it"
    raise TargetError(
        f"{engine}-{version} names no version of {name}: {known}, or leave it out for the newest "
        "on record"
    )


def precision_name(raw: str) -> str:
    """A precision as targets write it (``float16`` is fp16); TargetError names the choices."""
    text = re.sub(r"[ _+]+", "-", re.sub(r"^(torch|np|numpy|tf|jnp)\.", "", raw.strip().lower()))
    name = str(_table("precisions").get(text, text))
    if name not in PRECISIONS:
        raise TargetError(f"{raw!r} is not a precision: choose one of {', '.join(PRECISIONS)}")
    return name


def target_named(text: str) -> Target:
    """A target with its parts in any wording: ``Tesla T4/TensorRT 7.2/FP16``."""
    parts = [part.strip() for part in text.split("/")]
    if len(parts) not in (3, 4):
        return Target.parse(text)  # says how a target is written
    named = [device_name(parts[0]), engine_name(parts[1]), precision_name(parts[2])]
    named += [part.lower() for part in parts[3:]]
    return Target.parse("/".join(named))
