"""Engines. A new one is one new file here: found by its name, nothing to register."""

from __future__ import annotations

import importlib
import pkgutil

from hybridlat.backends.base import Backend, Session
from hybridlat.errors import BackendUnavailable

__all__ = ["Backend", "Session", "available", "load"]


def available() -> tuple[str, ...]:
    """Names of all backends that there is a file for, sorted; whether one starts is its own say."""
    return tuple(
        sorted(
            module.name
            for module in pkgutil.iter_modules(__path__)
            if module.name != "base" and not module.name.startswith("_")
        )
    )


def load(name: str) -> type[Backend]:
    """The class of the backend ``name``: the one in its file that carries that name.

    BackendUnavailable for a name that no file has.
    """
    if name not in available():
        raise BackendUnavailable(
            f"there is no backend {name!r}: choose one of {', '.join(available())}"
        )
    module = importlib.import_module(f"{__name__}.{name}")
    for found in vars(module).values():
        if (
            isinstance(found, type)
            and issubclass(found, Backend)
            and found.__dict__.get("name") == name
        ):
            return found
    raise BackendUnavailable(f"the file of the backend {name!r} defines no Backend of that name")


def open_backend(name: str, **options: int | str) -> Backend:
    """The backend ``name``, started with its own options (``threads=1``); BackendUnavailable."""
    return load(name)(**options)
