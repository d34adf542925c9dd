"""The devices of a fleet, told by a TOML file."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hybridlat.errors import HybridlatError, InputError
from hybridlat.measuring.ssh import RUNNERS, check_host, check_target
from hybridlat.schema.target import Target

T = TypeVar("T")

PATIENCE_S = 600.0
LIMIT_S = 6 * 3600.0
_KINDS = ("host", "local", "dask")
_TEXTS = ("name", "target", "host", "runner")
_KEYS = (*_TEXTS, "limit_s", "local", "dask", "env")
_TOP = ("scheduler", "patience_s", "device")
_SCHEDULER = re.compile(r"[a-z]+://[^\s/]+")
_DEVICE_LINE = re.compile(r"\s*\[\[\s*device\s*\]\]")


@dataclass(frozen=True)
class FleetDevice:
    """One device, or with ``dask`` all workers of the scheduler that have a target's resource.

    A ``host`` is measured over ssh by ``runner`` for at most ``limit_s`` at a time; without one the
    device is this machine, ``env`` its own variables. It measures one thing at a time, whatever the
    target.
    """

    name: str
    targets: tuple[Target, ...]
    host: str | None = None
    runner: str = "auto"
    limit_s: float = LIMIT_S
    dask: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> dict[str, float]:
        """What the device's worker of Dask has: one of each target."""
        return {str(target): 1.0 for target in self.targets}


@dataclass(frozen=True)
class FleetFile:
    """A fleet: ``scheduler`` is Dask's address, None where one is started for the call.

    Work whose devices have all gone away waits ``patience_s`` for one of them.
    """

    devices: tuple[FleetDevice, ...]
    scheduler: str | None = None
    patience_s: float = PATIENCE_S

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the devices, each once, in their order."""
        return tuple(dict.fromkeys(target for device in self.devices for target in device.targets))


class _Place:
    """Where in the file something is, for the sentences about it."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._heads = [n for n, line in enumerate(self._lines, 1) if _DEVICE_LINE.match(line)]

    def error(self, why: str, number: int = 0, key: str = "") -> InputError:
        """``number`` counts devices from 1, 0 is the file's head; ``key`` may not be there."""
        first = self._heads[number - 1] if 0 < number <= len(self._heads) else 1
        last = self._heads[number] if number < len(self._heads) else len(self._lines) + 1
        named = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]") if key else None
        line = next(
            (n for n in range(first, last) if named and named.match(self._lines[n - 1])),
            first if number else 0,
        )
        where = f", line {line}" if line else ""
        return InputError(f"{self._path}{where}: {f'device {number}: ' if number else ''}{why}")


def read_fleet(file: str | Path) -> FleetFile:
    """The fleet in a TOML file; InputError names the line, the key and the choices."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
        body: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # of TOML, or of its encoding
        raise InputError(f"{path} is not TOML: {error}") from None
    place = _Place(path, text)
    for key in body:
        if key not in _TOP:
            raise place.error(f"{key!r} is no key of a fleet: choose of {', '.join(_TOP)}", 0, key)
    scheduler = body.get("scheduler")
    if scheduler is not None and not (
        isinstance(scheduler, str) and _SCHEDULER.fullmatch(scheduler)
    ):
        raise place.error(
            f"scheduler is {scheduler!r}, but must be an address such as "
            '"tcp://server:8786"', 0, "scheduler",
        )  # fmt: skip
    entries = body.get("device")
    if not isinstance(entries, list) or not entries:
        raise place.error("there is no device: write a table [[device]] for each")
    devices = tuple(_device(place, n, entry) for n, entry in enumerate(entries, 1))
    _check_together(place, devices, scheduler)
    return FleetFile(devices, scheduler, _seconds(place, 0, body, "patience_s", PATIENCE_S))


def _device(place: _Place, number: int, entry: object) -> FleetDevice:
    if not isinstance(entry, dict):
        raise place.error(f"{entry!r} is no table: write [[device]] above its keys", number)
    for key, value in entry.items():
        if key not in _KEYS:
            raise place.error(
                f"{key!r} is no key of a device: choose of {', '.join(_KEYS)}", number, key
            )
        if key in _TEXTS and key != "target" and not (isinstance(value, str) and value.strip()):
            raise place.error(f"{key} is {value!r}, but must be a text in quotes", number, key)
        if key in ("local", "dask") and value is not True:
            raise place.error(f"{key} is {value!r}: write {key} = true, or leave it out",
                              number, key)  # fmt: skip
    told = [kind for kind in _KINDS if kind in entry]
    if len(told) != 1:
        raise place.error(
            f"it has {' and '.join(told) or 'none of host, local and dask'}: say once how it is "
            'reached, by host = "user@board", local = true or dask = true',
            number,
        )
    targets = _targets(place, number, entry)
    host = entry.get("host")
    if host is not None:
        _checked(place, number, "host", check_host, host)
        for target in targets:
            _checked(place, number, "target", check_target, target)
    for key in ("runner", "limit_s"):
        if key in entry and host is None:
            raise place.error(f"{key} goes with host alone: leave it out", number, key)
    runner = entry.get("runner", "auto")
    if runner not in RUNNERS:
        raise place.error(f"runner is {runner!r}: choose of {', '.join(RUNNERS)}", number, "runner")
    return FleetDevice(
        name=entry.get("name") or host or f"{told[0]}-{number}",
        targets=targets,
        host=host,
        runner=runner,
        limit_s=_seconds(place, number, entry, "limit_s", LIMIT_S),
        dask="dask" in entry,
        env=_env(place, number, entry),
    )


def _targets(place: _Place, number: int, entry: Mapping[str, Any]) -> tuple[Target, ...]:
    told = entry.get("target")
    texts = told if isinstance(told, list) else [told]
    if not texts or not all(isinstance(text, str) for text in texts):
        what = f"target is {told!r}, but must be" if "target" in entry else "it lacks target:"
        raise place.error(
            f"{what} one text device/runtime-version/precision[/threads], "
            'such as "orin-nano/tensorrt-8.6/fp16", or a list of such',
            number, "target",
        )  # fmt: skip
    targets: list[Target] = [
        _checked(place, number, "target", Target.parse, text) for text in dict.fromkeys(texts)
    ]
    for target in targets:
        if not target.version:
            written = replace(target, runtime=f"{target.engine}-8.6")
            raise place.error(
                f"target {target} leaves the engine's version open, and devices of one target have "
                f"the same: write it, such as {written}",
                number, "target",
            )  # fmt: skip
    return tuple(targets)


def _env(place: _Place, number: int, entry: Mapping[str, Any]) -> Mapping[str, str]:
    env = entry.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
        raise place.error(
            f'env is {env!r}, but must be a table of texts: env = {{CUDA_VISIBLE_DEVICES = "1"}}',
            number, "env",
        )  # fmt: skip
    if env and "local" not in entry:
        raise place.error("env goes with local alone: leave it out", number, "env")
    return env


def _seconds(place: _Place, number: int, entry: Mapping[str, Any], key: str, usual: float) -> float:
    value = entry.get(key, usual)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise place.error(
            f"{key} is {value!r}, but must be a number of seconds above 0", number, key
        )
    return float(value)


def _checked(place: _Place, number: int, key: str, check: Callable[[Any], T], value: object) -> T:
    try:
        return check(value)
    except HybridlatError as error:
        raise place.error(str(error), number, key) from None


def _check_together(place: _Place, devices: tuple[FleetDevice, ...], scheduler: str | None) -> None:
    """Names are told apart, and nothing is measured by two at once."""
    names: dict[str, int] = {}
    met: dict[tuple[object, ...], int] = {}
    for number, device in enumerate(devices, 1):
        if device.dask and scheduler is None:
            raise place.error(
                "dask = true needs the scheduler's address at the head of the file: scheduler = "
                '"tcp://server:8786"', number, "dask",
            )  # fmt: skip
        for it, what in _is_measured(device):
            if it in met:
                raise place.error(
                    f"device {met[it]} is {what} already, and each measures one thing at a time: "
                    'give one of the two all targets, target = ["…", "…"], and leave the other '
                    "out" + (", or give each an env of its own" if it[0] == "local" else ""),
                    number,
                )
            met[it] = number
        if device.name in names:
            raise place.error(
                f"device {names[device.name]} is called {device.name!r} already: give it another "
                "name",
                number, "name",
            )  # fmt: skip
        names[device.name] = number


def _is_measured(device: FleetDevice) -> list[tuple[tuple[object, ...], str]]:
    """What a device stands for, that no other may stand for as well, and in words."""
    if device.dask:
        return [(("dask", t), f"all workers with the resource {t}") for t in device.targets]
    if device.host is not None:
        return [(("host", device.host), f"the host {device.host}")]
    return [(("local", *sorted(device.env.items())), "this machine with the same env")]
