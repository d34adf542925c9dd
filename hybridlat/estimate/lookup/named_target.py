"""The target that a user means: any wording, typos mended by part, the newest version."""

import contextlib
import difflib
import fnmatch
import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache

from hybridlat.engines import device_sheets, host, registry
from hybridlat.errors import TargetError
from hybridlat.schema import names
from hybridlat.schema.files import all_readable
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.target import PART, PRECISIONS, VERSION, Target, version_key
from hybridlat.store import Store, packs

_WILDCARD = re.compile(r"[*?[]")


def named_target(text: str, store: Store | None = None) -> Target:
    """The target that a text names, its parts in any wording: ``Tesla T4/TensorRT 8.6/FP16``.

    A name on record stays as it is, and the device need not be known. TargetError for a part that
    does not exist, is missing or does not run on the device, and for threads of a GPU.
    """
    _, known = targets_on_record(store)
    with contextlib.suppress(TargetError):
        if (written := Target.parse(text)) in known:
            return written
    device, *rest = (part.strip() for part in text.split("/"))
    if len(rest) > 3 or not all((device, *rest)):
        return Target.parse(text)  # says how a target is written
    if device not in _devices(known):
        names.refuse_chip(device, device_sheets.names())
    device = _device(device, known)
    if not rest:
        raise _incomplete(described(device, known), "", known)
    engines = {*registry.OWN, *(t.engine for t in known if t.device == device)}
    if VERSION.sub("", rest[0]) not in engines:  # to search other packages takes a while
        engines.update(registry.ENGINES.names())
    runtime = rest[0] if VERSION.sub("", rest[0]) in engines else names.engine_name(rest[0])
    engine, precision = VERSION.sub("", runtime), (rest[1:] or ["fp16"])[0].lower()
    with contextlib.suppress(TargetError):
        precision = names.precision_name(precision)
    (near_engine, *_) = (*difflib.get_close_matches(engine, sorted(engines), 1), "")
    # Other precisions that exist are no misspelling of one that is predicted.
    is_other = re.fullmatch(r"u?int[24]|nf4|(nv|mx)?fp[468]|(fp|float)[468]_?e.*", precision)
    choices = [] if is_other else PRECISIONS
    (near_precision, *_) = (*difflib.get_close_matches(precision, choices, 1), "")
    mended = [device, near_engine + runtime[len(engine) :], near_precision, *rest[2:]]
    whole = "/".join(mended).lower()
    question = f"did you mean {whole}? " if near_engine and near_precision else ""
    if engine not in engines:
        listed = ", ".join(registry.lowerings())
        raise TargetError(f"unknown engine {rest[0]!r}; {question}Engines: {listed}")
    if len(rest) == 1:
        raise _incomplete(device, runtime, known)
    if precision not in PRECISIONS:
        listed = ", ".join(PRECISIONS)
        raise TargetError(f"unknown precision {rest[1]!r}; {question}Precisions: {listed}")
    target = Target.parse(whole).plain
    names.refuse_version(engine, target.version)
    is_cpu = device == host.cpu().name or any(t.threads for t in known if t.device == device)
    registry.refuse_device(target, is_cpu)
    if target.threads and device_sheets.is_gpu(target):
        plain = replace(target, threads=None)
        raise TargetError(f"{target} states threads, which CPUs alone have: write {plain}")
    return target


def named_devices(text: str, store: Store) -> set[str]:
    """The devices that a text names: one, a family (``jetson``), or what fits ``RTX 40*``, if any.

    TargetError for a text without a wildcard that names none.
    """
    _, known = targets_on_record(store)
    called = _called(text, known)
    if _WILDCARD.search(text):
        return called
    device = _device(text.lower(), known)
    if device in _devices(known) and _words(device) <= _words(text):
        return {device}
    return called or {described(device, known)}


def _called(text: str, known: Collection[Target]) -> set[str]:
    """The known devices whose names or titles have every word of a text, or fit a pattern there."""
    cpus = {host.cpu().name, *(target.device for target in known if target.threads)}
    titles = dict.fromkeys(_devices(known), "") | dict.fromkeys(cpus, "cpu")
    for sheet in all_readable(device_sheets.load, device_sheets.names()):
        titles[sheet.name] = f"{sheet.kind} {sheet.title}"
    parts = [[w] if _WILDCARD.search(w) else _words(w) for w in text.lower().split()]
    named = {name: {name, *_words(f"{name} {title}")} for name, title in titles.items()}
    each = set[str]().union(*parts)
    return {
        name for name, own in named.items() if each and all(fnmatch.filter(own, w) for w in each)
    }


def _words(text: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", text.lower()))


def known_target(text: str | Target, store: Store) -> Target:
    """The target of a known device that a text means, opened to the newest on record.

    A Target stays as it is. Raises TargetError.
    """
    if isinstance(text, Target):
        return text
    known = targets_on_record(store)
    target = newest_on_record(named_target(text, store), known)
    described(target.device, known[1])
    return target


def targets_on_record(store: Store | None) -> tuple[set[Target], set[Target]]:
    """The targets with records, models or packs; and all on record, public tables' too."""
    from hybridlat.model.family.shipped import family_heads  # heavy

    measured = recorded(store)
    return measured, measured.union(*(head.targets for head in family_heads()))


def newest_on_record(
    target: Target, known: tuple[set[Target], set[Target]], threads: int | None = None
) -> Target:
    """The target, its version and ``threads`` (1 unless given) filled in by the newest on record.

    ``known`` are ``targets_on_record``: what was measured goes before public tables. All power
    modes of a board open to one version: a lower mode would else be quicker by another's records.
    """
    for targets in known:
        likes = [
            replace(like, device=target.device)
            for like in targets
            if like.precision == target.precision
            and like.engine == target.engine
            and target.version in ("", like.version)
            and like.threads == (target.threads or (like.threads and (threads or 1)))
            and _board(like.device) == _board(target.device)
        ]
        if likes:
            return target if target in likes else max(likes, key=_age)
    if shipped_table("names")["known"].get(target.engine, {}).get("kind") != "cpu":
        return target
    return replace(target, threads=target.threads or threads or 1)


@cache
def _board(device: str) -> str:
    from hybridlat.model.family.tasks import Task  # heavy

    return Task(device, "", "").board


def _age(target: Target) -> tuple[bool, bool, tuple[int, ...]]:
    """Sorts versions by age: those without a number first, then years, then numbers."""
    numbers = version_key(target.version)
    return bool(numbers), not re.fullmatch("20[0-9]{2}", target.version), numbers


def described(device: str, known: Collection[Target]) -> str:
    """The device itself; TargetError with those alike where it is not known."""
    if device not in (devices := _devices(known)):
        alike = " or ".join(names.near(device, devices))
        question = f": did you mean {alike}?" if alike else ""
        hint = (
            "describe your own: --device-sheet FILE.toml; a CPU is known once hybridlat has run on "
            f"it or its results are imported; this machine's is {host.cpu().name}"
        )
        if len(called := _called(device, known)) > 1 and host.cpu().name not in called:
            hint = f"`hybridlat targets {device}` lists all {len(called)} that are called so"
        raise TargetError(f"unknown device {device!r}{question} ({hint})")
    return device


def recorded(store: Store | None) -> set[Target]:
    """The targets with records in the store, a model, or a shipped pack."""
    from hybridlat.estimate.lookup.models import models_with_targets  # heavy

    stored = [] if store is None else store.targets()
    modelled = (target for _, target in models_with_targets())
    return {*stored, *(pack.target for pack in packs.shipped_packs()), *modelled}


def _devices(known: Collection[Target]) -> set[str]:
    return {*device_sheets.names(), *(target.device for target in known), host.cpu().name}


def _device(text: str, known: Collection[Target]) -> str:
    """The name of a known device that the text means, else a name made of the text."""
    devices = _devices(known)
    if text not in devices:
        with contextlib.suppress(TargetError):
            if (name := names.device_name(text)) in devices:
                return name
    return text if PART.fullmatch(text) else names.device_name(text)


def _incomplete(device: str, runtime: str, known: Collection[Target]) -> TargetError:
    own = [name for t in known if t.device == device and f"/{runtime}" in (name := str(t))]
    example = min(own, default=f"{device}/{runtime or 'onnxruntime'}/fp32/1t")
    if device in device_sheets.names() and (sheet := device_sheets.load(device)).kind == "gpu":
        precision = "fp16" if "fp16" in sheet.peak_flops else "fp32"
        example = f"{device}/{runtime or 'tensorrt'}/{precision}"
    lacks = "a precision" if runtime else "an engine and a precision"
    start = f"{device}/{runtime}".removesuffix("/")
    return TargetError(f"{start} needs {lacks}, e.g. {example} (hybridlat targets {device})")
