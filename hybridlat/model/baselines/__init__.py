"""One file per baseline, found by its file name; see base.Baseline for the contract."""

from __future__ import annotations

import importlib
import pkgutil

from hybridlat.errors import InputError
from hybridlat.model.baselines.base import Baseline, Row

__all__ = ["Baseline", "Row", "load", "names"]


def names() -> tuple[str, ...]:
    """The baselines there are, in alphabetical order."""
    found = (m.name for m in pkgutil.iter_modules(__path__))
    return tuple(sorted(n for n in found if n != "base" and not n.startswith("_")))


def load(name: str) -> type[Baseline]:
    """The baseline class of that name; InputError names the choices."""
    if name not in names():
        raise InputError(f"{name!r} is not a baseline: choose one of {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    found = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Baseline) and c.__module__ == module.__name__
    ]
    (baseline,) = [c for c in found if getattr(c, "name", None) == name]
    return baseline
