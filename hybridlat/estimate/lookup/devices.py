"""What is known of a target's device without measuring anything."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

from hybridlat.engines import device_sheets
from hybridlat.errors import TargetError
from hybridlat.estimate.lookup.models import model_folders
from hybridlat.model.model_files import read_device
from hybridlat.schema import wire
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import Store


def known_device(target: Target, store: Store) -> Device | None:
    """A target's device, or None where nobody knows it.

    The data sheet of its device; else what its model in use was trained with; else the
    micro-benchmark of it that the store keeps.
    """
    try:
        return device_sheets.load(target.device)
    except TargetError:
        for folder in model_folders(target):
            device = read_device(folder)
            if device is not None:
                return device
    return store.cache_read(_key(target), partial(wire.decode_or_none, form=Device))


def keep_device(target: Target, store: Store, device: Device) -> None:
    """Let the store keep the micro-benchmark of a target's device."""
    store.cache_put(_key(target), json.dumps(asdict(device), sort_keys=True))


def _key(target: Target) -> str:
    return f"device/{target.device}/{target.threads}"
