"""Objects by name, loaded when they are used: plug-ins, and a package's own public names.

One registry serves engines, baselines and importers. What comes with the package is listed where
the registry is made. Another package offers its own under an entry point group of the registry's
name (``hybridlat.engines``), and nothing here has to change.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


T = TypeVar("T")


@dataclass(frozen=True)
class Plugins:
    """Named objects, each ``module:attribute`` or a ``module``, loaded when they are used."""

    group: str
    own: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        points = entry_points(group=self.group)
        return {point.name: point for point in points if point.name not in self.own}

    def names(self) -> tuple[str, ...]:
        """All names, sorted; nothing is imported for it."""
        return tuple(sorted({*self.own, *self._offered}))

    def __contains__(self, name: str) -> bool:
        """Whether there is an object of that name; other packages are searched only if needed."""
        return name in self.own or name in self._offered

    def owner(self, name: str) -> str:
        return self._offered[name].module

    def load(self, name: str, kind: type[T]) -> T:
        """The object of that name and ``kind``; KeyError for an unknown name.

        UnavailableError where what another package offers cannot be loaded, or is none.
        """
        from importlib.metadata import EntryPoint

        from hybridlat.errors import UnavailableError

        own = self.own.get(name)
        point = EntryPoint(name, own, self.group) if own else self._offered[name]
        try:
            if isinstance(value := point.load(), kind):
                return value
            raise TypeError(f"{point.value} is no {kind.__name__}")
        except Exception as error:
            if own:
                raise
            why = f"{type(error).__name__}: {error}"
            text = (
                f"{name} of the package {point.module} cannot be loaded ({why}): update or remove"
            )
            raise UnavailableError(f"{text} that package") from error


def lazy(package: str) -> tuple[Callable[[str], object], Mapping[str, str]]:
    """A package's ``__getattr__``, and the module of each name that it loads."""
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi").read_text("utf-8")
    homes = {n: module for module, n in re.findall(r"^from (\S+) import (\w+) as", stub, re.M)}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, homes


_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(*parts: str) -> Path:
    """``models``, or ``data`` and ``packs`` …: a folder or file that is shipped with the package.

    An editable install has no ``_shipped`` and reads the repository's own folders. What is not
    there is a path that does not exist.
    """
    wheel = _PACKAGE / "_shipped"
    return (wheel if wheel.is_dir() else _PACKAGE.parent).joinpath(*parts)


@cache
def shipped_files(folder: str, ending: str) -> Mapping[str, Path]:
    """The files of a folder of ``data`` that end so, by their names without it."""
    return dict(sorted((f.stem, f) for f in shipped("data", folder).glob(f"*{ending}")))


@cache
def shipped_table(name: str) -> Mapping[str, Any]:
    """What ``data/NAME.toml`` holds."""
    return tomllib.loads(shipped("data", f"{name}.toml").read_text(encoding="utf-8"))
