"""The devices of a fleet, described by a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from hybridlat.errors import HybridlatError, InputError
from hybridlat.measuring.ssh import RUNNERS, check_host, check_target
from hybridlat.schema.target import Target

T = TypeVar("T")
Text = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
_DEVICE_LINE = re.compile(r"\s*\[\[\s*device\s*\]\]")


class _DeviceTable(msgspec.Struct, forbid_unknown_fields=True):
    """A table [[device]] as it is written."""

    target: Text | list[Text]
    name: Text | None = None
    host: Text | None = None
    local: bool = False
    dask: bool = False
    runner: Text | None = None
    limit_s: Seconds | None = None
    env: dict[str, str] = {}


class _FleetTable(msgspec.Struct, forbid_unknown_fields=True):
    device: Annotated[list[_DeviceTable], msgspec.Meta(min_length=1)]
    scheduler: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+://[^\s/]+$")] | None = None
    patience_s: Seconds = 600.0


class FleetDevice(msgspec.Struct, frozen=True):
    """One device, or with ``dask`` all workers of the scheduler that have a target's resource.

    A ``host`` is measured over ssh by ``runner`` for at most ``limit_s`` at a time; without one the
    device is this machine, ``env`` its own variables. It measures one thing at a time, whatever the
    target.
    """

    name: str
    targets: tuple[Target, ...]
    host: str | None = None
    runner: str = "auto"
    limit_s: float = 6 * 3600.0
    dask: bool = False
    env: Mapping[str, str] = {}

    @property
    def resources(self) -> dict[str, float]:
        """What the device's worker of Dask has: one of each target."""
        return {str(target): 1.0 for target in self.targets}


class FleetFile(msgspec.Struct, frozen=True):
    """A fleet: ``scheduler`` is Dask's address, None where one is started for the call.

    Work whose devices have all gone away waits ``patience_s`` for one of them.
    """

    devices: tuple[FleetDevice, ...]
    scheduler: str | None = None
    patience_s: float = 600.0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the devices, each once, in their order."""
        return tuple(dict.fromkeys(target for device in self.devices for target in device.targets))


def read_fleet(file: str | Path) -> FleetFile:
    """The fleet in a TOML file; InputError names the line, the key and the choices."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
        table = msgspec.toml.decode(text, type=_FleetTable)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.ValidationError as error:
        raise InputError(_located(path, text, str(error))) from None
    except ValueError as error:  # of TOML, or of its encoding
        raise InputError(f"{path} is not TOML: {error}") from None
    devices: list[FleetDevice] = []
    for number, entry in enumerate(table.device):
        try:
            devices.append(_device(entry, number))
            _check_together(devices, table.scheduler)
        except HybridlatError as error:
            raise InputError(_located(path, text, f"{error} - at `$.device[{number}]`")) from None
    return FleetFile(tuple(devices), table.scheduler, table.patience_s)


def _device(entry: _DeviceTable, number: int) -> FleetDevice:
    kinds = [kind for kind in ("host", "local", "dask") if getattr(entry, kind)]
    if len(kinds) != 1:
        raise InputError(
            f"it has {' and '.join(kinds) or 'none of host, local and dask'}: write one of "
            'host = "user@board", local = true and dask = true'
        )
    texts = [entry.target] if isinstance(entry.target, str) else entry.target
    targets = tuple(_target(text) for text in dict.fromkeys(texts))
    if entry.host is None and (entry.runner is not None or entry.limit_s is not None):
        raise InputError("runner and limit_s go with host alone: leave them out")
    if entry.env and not entry.local:
        raise InputError("env goes with local alone: leave it out")
    if entry.host is not None:
        check_host(entry.host)
        for target in targets:
            check_target(target)
    if entry.runner not in (None, *RUNNERS):
        raise InputError(f"unknown runner {entry.runner!r}: choose from {', '.join(RUNNERS)}")
    given = {"runner": entry.runner, "limit_s": entry.limit_s}
    return FleetDevice(
        name=entry.name or entry.host or f"{kinds[0]}-{number + 1}", targets=targets,
        host=entry.host, dask=entry.dask, env=entry.env,
        **{key: value for key, value in given.items() if value is not None},  # type: ignore[arg-type]
    )  # fmt: skip


def _target(text: str) -> Target:
    target = Target.parse(text)
    if not target.version:
        written = replace(target, runtime=f"{target.engine}-8.6")
        raise InputError(
            f"target {target} leaves the engine's version open, and devices of one target have the "
            f"same: write it, such as {written}"
        )
    return target


def _check_together(devices: list[FleetDevice], scheduler: str | None) -> None:
    """Raise InputError where the last device has another's name, or is measured by another too."""
    *others, last = devices
    if last.dask and scheduler is None:
        raise InputError(
            "dask = true needs the scheduler's address at the head of the file: scheduler = "
            '"tcp://server:8786"'
        )
    for number, other in enumerate(others, 1):
        if other.name == last.name:
            raise InputError(f"device {number} has the name {last.name!r} too: write another name")
        both = (other.host, other.dask, other.env) == (last.host, last.dask, last.env)
        if both and (not last.dask or set(other.targets) & set(last.targets)):
            raise InputError(
                f"it is device {number} a second time, and each measures one thing at a time: give "
                'one of the two all targets, target = ["…", "…"]; local devices differ by their env'
            )


def _located(path: Path, text: str, why: str) -> str:
    """A sentence about a key as msgspec words it, with the line of the device and its number."""
    why, _, place = why.partition(" - at `$")
    device = re.match(r"\.device\[(\d+)\]", place)
    key = re.search(r"\.(?!device\[)(\w+)(?:\[[^]]*\])?`?$", place) or re.search(
        r"field `(.*)`", why
    )
    if "unknown field" in why and key is not None:
        keys = (_DeviceTable if device else _FleetTable).__struct_fields__
        why = f"unknown key {key[1]!r}: choose from {', '.join(keys)}"
    elif "missing required field" in why and key is not None:
        why = f"{key[1]} is missing"
    elif place and key is not None and key[1] not in why:
        why = f"{key[1]}: {why}"
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines, 1) if _DEVICE_LINE.match(line)]
    first = heads[int(device[1])] if device and int(device[1]) < len(heads) else 1
    named = [
        n for n, line in enumerate(lines[first - 1 :], first)
        if key and re.match(rf"\s*[\"']?{re.escape(key[1])}\b", line)
    ]  # fmt: skip
    number = f" device {int(device[1]) + 1}:" if device else ""
    return f"{path}, line {(named or [first])[0]}:{number} {why}"
