"""The devices of a fleet, described by a TOML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from hybridlat.errors import HybridlatError, InputError
from hybridlat.measuring.ssh import RUNNERS, check_host, check_target
from hybridlat.schema.target import Target

Text = Annotated[str, msgspec.Meta(min_length=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FleetDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device, or with ``dask`` all workers of the scheduler that have a target's resource.

    A ``host`` is measured over ssh by ``runner`` for at most ``limit_s`` at a time; ``local`` is
    this machine with variables ``env`` of its own. It measures one thing at a time, whatever the
    target.
    """

    target: Text | list[Text]
    name: str = ""
    host: str | None = None
    local: bool = False
    dask: bool = False
    runner: Text | None = None
    limit_s: Seconds | None = None
    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        try:
            self._check()
        except HybridlatError as error:
            raise ValueError(str(error)) from None

    def _check(self) -> None:
        kinds = [kind for kind in ("host", "local", "dask") if getattr(self, kind)]
        if len(kinds) != 1:
            raise InputError(
                f"it has {' and '.join(kinds) or 'none of host, local and dask'}: write one of "
                'host = "user@board", local = true and dask = true'
            )
        for target in self.targets:
            if not target.version:
                raise InputError(
                    f"target {target} leaves the engine's version open, and devices of one target "
                    f"have the same: write it, such as {target.device}/{target.engine}-8.6/"
                    f"{target.precision}"
                )
        for key, owner in (("runner", "host"), ("limit_s", "host"), ("env", "local")):
            if getattr(self, key) and not getattr(self, owner):
                raise InputError(f"{key} goes with {owner} alone: leave it out")
        if self.host is not None:
            check_host(self.host)
            for target in self.targets:
                check_target(target)
        if self.runner not in (None, *RUNNERS):
            raise InputError(f"unknown runner {self.runner!r}: choose from {', '.join(RUNNERS)}")

    @property
    def targets(self) -> tuple[Target, ...]:
        texts = [self.target] if isinstance(self.target, str) else self.target
        return tuple(map(Target.parse, dict.fromkeys(texts)))

    @property
    def resources(self) -> dict[str, float]:
        """What the device's worker of Dask has: one of each target."""
        return {str(target): 1.0 for target in self.targets}


class FleetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fleet: ``scheduler`` is Dask's address, None where one is started for the call.

    Work whose devices have all gone away waits ``patience_s`` for one of them.
    """

    device: Annotated[tuple[FleetDevice, ...], msgspec.Meta(min_length=1)]
    scheduler: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+://[^\s/]+$")] | None = None
    patience_s: Seconds = 600.0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the devices, each once, in their order."""
        return tuple(dict.fromkeys(target for device in self.device for target in device.targets))


def read_fleet(file: str | Path) -> FleetFile:
    """The fleet in a TOML file; InputError names the device, the key and the choices."""
    path = Path(file)
    try:
        fleet = msgspec.toml.decode(path.read_text(encoding="utf-8"), type=FleetFile)
        return msgspec.structs.replace(fleet, device=_named(fleet))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {_sentence(str(error))}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except ValueError as error:  # of TOML, or of its encoding
        raise InputError(f"{path} is not TOML: {error}") from None


def _named(fleet: FleetFile) -> tuple[FleetDevice, ...]:
    """The devices, each with a name; InputError where one is another, or measured by another."""
    named: list[FleetDevice] = []
    for number, device in enumerate(fleet.device, 1):
        if device.dask and fleet.scheduler is None:
            raise InputError(
                f"device {number}: dask = true needs the scheduler's address at the head of the "
                'file: scheduler = "tcp://server:8786"'
            )
        name = device.name or device.host or f"{'dask' if device.dask else 'local'}-{number}"
        for place, other in enumerate(named, 1):
            both = (other.host, other.dask, other.env) == (device.host, device.dask, device.env)
            is_same = both and (not device.dask or set(other.targets) & set(device.targets))
            if is_same or other.name == name:
                raise InputError(
                    f"device {number}: it is device {place} a second time, or has its name: give "
                    'one of the two all targets, target = ["…", "…"]; local devices differ by env'
                )
        named.append(msgspec.structs.replace(device, name=name))
    return tuple(named)


def _sentence(text: str) -> str:
    """An error of msgspec with the device's number and the key in front."""
    text, _, place = text.partition(" - at `$")
    device = re.match(r"\.device\[(\d+)\]", place)
    key = re.search(r"\.(?!device\[)(\w+)", place)
    table = FleetDevice if device else FleetFile
    if unknown := re.search(r"unknown field `(.*)`", text):
        keys = ", ".join(table.__struct_fields__)
        text = f"unknown key {unknown[1]!r}: choose from {keys}"
    text = re.sub(r"Object missing required field `(.*)`", r"\1 is missing", text)
    number = f"device {int(device[1]) + 1}: " if device else ""
    return number + (f"{key[1]}: " if key else "") + text
