"""The store of measurements: append-only records, in a database or in shipped packs.

``Store`` is the database, ``LatencyStats`` what it answers.
"""

from hybridlat.store.integrity import IntegrityProblem
from hybridlat.store.place import default_url
from hybridlat.store.records import LatencyStats, TargetStats
from hybridlat.store.store import Removal, Store

__all__ = ["IntegrityProblem", "LatencyStats", "Removal", "Store", "TargetStats", "default_url"]
