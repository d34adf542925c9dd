"""The store of measurements: append-only records, in a database or in shipped packs.

``Store`` is the database, ``LatencyStats`` what it answers.
"""

from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.latencies import LatencyStats, TargetStats
from hybridlat.store.place import default_url
from hybridlat.store.store import Store

__all__ = ["IntegrityProblem", "LatencyStats", "Store", "TargetStats", "default_url"]
