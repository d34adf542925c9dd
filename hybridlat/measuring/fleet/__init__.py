"""Many devices at once: each a worker of Dask, which hands out the work."""

from __future__ import annotations

from hybridlat.measuring.fleet.devices import FleetDevice, FleetFile, read_fleet
from hybridlat.measuring.fleet.fleet import DeviceReport, Fleet, FleetMeasurer

__all__ = ["DeviceReport", "Fleet", "FleetDevice", "FleetFile", "FleetMeasurer", "read_fleet"]
