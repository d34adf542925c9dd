"""The targets that are known, and how much is known of each."""

import contextlib
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hybridlat.engines import device_sheets
from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable, TargetError
from hybridlat.estimate.lookup import models
from hybridlat.estimate.lookup.named_target import named_devices, newest_on_record
from hybridlat.model.family.shipped import family_heads
from hybridlat.schema.files import all_readable
from hybridlat.schema.target import Device, Target, version_key
from hybridlat.store import Store, packs

FAMILY = "family: whole networks"
FROM_SHEET = "family: data sheet"


@dataclass(frozen=True)
class TargetInfo:
    """One ``target`` that can be predicted for, by its ``source``.

    ``cells`` and ``networks`` count what was measured. A ``model`` of its own was ``trained_on`` so
    many cells, with a ``noise_floor`` (RMSPE in percent). Of a family, ``half_width_share`` (0..)
    is how far the farther end of a 90 % interval typically is, and ``batches`` are the least and
    the largest of held-out networks.
    """

    target: str
    source: str
    cells: int
    networks: int
    model: bool
    noise_floor: float | None = None
    half_width_share: float | None = None
    batches: tuple[int, int] | None = None
    trained_on: int | None = None


def gpus() -> list[Device]:
    """The data sheets of GPUs."""
    sheets = all_readable(device_sheets.load, device_sheets.names())
    return [sheet for sheet in sheets if sheet.kind == "gpu"]


def by_data_sheet(known: Iterable[TargetInfo]) -> list[TargetInfo]:
    """The further targets that families predict by data sheet alone, at the sheet's precisions."""
    named = {Target.parse(info.target) for info in known}
    short = {replace(target, runtime=target.engine) for target in named}
    opened = {target for target in short if newest_on_record(target, (named, named)) != target}
    taken = set(map(str, named | opened))
    return [
        TargetInfo(name, FROM_SHEET, 0, 0, False, half_width_share=head.half_width_share(None))
        for head in family_heads()
        for device in gpus()
        for engine in head.engines
        for precision in sorted({task.precision for task in head.tasks})
        if precision in ("fp32", "amp") or precision in device.peak_flops
        if (name := f"{device.name}/{engine}/{precision}") not in taken
        if device_sheets.versions_there(Target.parse(name)).get("last") != "0"
    ]


def fitting(pattern: str, store: Store) -> list[Target]:
    """The targets of data sheets that fit a pattern: of devices under TensorRT, or of all parts.

    TargetError for an unknown device; see ``named_devices``.
    """
    named, _, rest = pattern.lower().partition("/")
    devices, ends = named_devices(named, store), (rest or "tensorrt", f"{rest or 'tensorrt'}/*")
    every = [Target.parse(info.target) for info in by_data_sheet(())]
    return [
        t
        for t in every
        if t.device in devices
        and any(fnmatch.fnmatchcase(f"{t.runtime}/{t.precision}", end) for end in ends)
    ]


def list_targets(store: str | None = None, device: str | None = None) -> list[TargetInfo]:
    """Every target of the store, packs, models and families, and this machine.

    Of a ``device`` in any wording, or of all that share its words (``orin``) or fit ``orin-*``,
    those of data sheets too; TargetError for an unknown one.
    """
    by_name: dict[str, TargetInfo] = {}

    def add(target: Target, source: str, cells: int = 0, networks: int = 0, **more: Any) -> None:
        name = str(target)
        old = by_name.get(name) or TargetInfo(name, "", 0, 0, bool(models.model_folders(target)))
        by_name[name] = replace(
            old,
            source=f"{old.source}, {source}".removeprefix(", "),
            cells=max(cells, old.cells),
            networks=max(networks, old.networks),
            **{key: value for key, value in more.items() if value is not None},
        )

    with Store(store) as opened:
        for stats in opened.stats():
            add(stats.target, "store", stats.cells, stats.networks)
        if not (device is None or isinstance(device, str)):
            raise TargetError(f"{device!r} is no name of a device: write it as 'orin-nano'")
        devices = None if device is None else named_devices(device, opened)
        if devices is not None and not devices:
            raise TargetError(f"{device!r} fits no device: `hybridlat targets --all` lists them")
    for pack in packs.shipped_packs():
        counts = pack.counts()
        add(pack.target, "pack", counts["cell"], counts["network"])
    for folder, target in models.models_with_targets():
        noise, rows = map(models.read_card(folder).get, ("noise_floor", "rows"))
        floor = noise if isinstance(noise, int | float) else None
        trained_on = rows if isinstance(rows, int) else None
        add(target, "model", noise_floor=floor, trained_on=trained_on)
    for head in family_heads():
        for target in sorted(head.targets):
            width, batches = head.half_width_share(target), head.batches.get(str(target))
            networks = head.networks(target)
            add(target, FAMILY, 0, networks, half_width_share=width, batches=batches)
    with contextlib.suppress(BackendUnavailable):
        engine = resolve(None)
        if engine.backend is not None:
            add(engine.target, "this machine")
    if devices is not None:
        by_name |= {info.target: info for info in by_data_sheet(by_name.values())}
        by_name = {name: i for name, i in by_name.items() if name.split("/")[0] in devices}
    return sorted(by_name.values(), key=_place)


def _place(info: TargetInfo) -> tuple[object, ...]:
    """Versions of an engine on a device stand together, the oldest first."""
    target = Target.parse(info.target)
    return target.device, target.engine, version_key(target.version), info.target
