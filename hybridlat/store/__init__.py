"""The store of measurements: append-only records, behind an SQLAlchemy URL or in shipped packs.

``Store`` is the database, ``LatencyStats`` what it answers. SQLAlchemy is loaded when a store is
used.
"""

from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.latencies import LatencyStats, TargetStats
from hybridlat.store.place import default_url
from hybridlat.store.store import Store

__all__ = ["IntegrityProblem", "LatencyStats", "Store", "TargetStats", "default_url"]
