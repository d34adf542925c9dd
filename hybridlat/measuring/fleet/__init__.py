"""Many devices at once: each a worker of Dask, which hands out the work.

``read_fleet`` reads who they are, ``Fleet`` measures on them.
"""

from __future__ import annotations

from hybridlat.measuring.fleet.devices import FleetDevice, FleetFile, read_fleet
from hybridlat.measuring.fleet.fleet import Fleet
from hybridlat.measuring.fleet.report import DeviceReport
from hybridlat.measuring.fleet.sharing import FleetMeasurer

__all__ = ["DeviceReport", "Fleet", "FleetDevice", "FleetFile", "FleetMeasurer", "read_fleet"]
