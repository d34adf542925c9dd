"""The store of measurements: append-only records, in a database or in shipped packs."""

from hybridlat.store.place import default_url as default_url
from hybridlat.store.records import LatencyStats as LatencyStats
from hybridlat.store.store import Removal as Removal
from hybridlat.store.store import Store as Store
