"""The store of measurements: append-only records, behind an SQLAlchemy URL or in shipped packs.

``Store`` is the database, ``Known`` what it answers. SQLAlchemy is loaded when a store is used.
"""

from hybridlat.store.integrity import Finding
from hybridlat.store.latencies import Known, TargetStats
from hybridlat.store.store import Store, default_url

__all__ = ["Finding", "Known", "Store", "TargetStats", "default_url"]
