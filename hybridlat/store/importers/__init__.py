"""Latencies that others measured, as records: tables, logs of trtexec, importers of others."""

from hybridlat.store.importers.imported import IMPORTERS as IMPORTERS
from hybridlat.store.importers.imported import TABLES as TABLES
from hybridlat.store.importers.imported import ImportedRecords as ImportedRecords
from hybridlat.store.importers.imported import read as read
