"""What was found out about files, kept in a store's cache by the hash of their bytes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hybridlat.errors import HybridlatError, StoreError
from hybridlat.onnx_io.facts import FACTS_FORMAT, FileFacts

if TYPE_CHECKING:
    from hybridlat.onnx_io import OnnxFile
    from hybridlat.store import Store

SCOPE = f"file/{FACTS_FORMAT}"
_log = logging.getLogger(__name__)


def recall(store: Store, digest: str) -> FileFacts | None:
    """What is kept of the file with these bytes; None where nothing is."""
    try:
        return store.cache_read(_key(digest), FileFacts.from_text)
    except StoreError as error:
        _log.warning("what is kept of a file is not used: %s", error)
        return None  # a cache that cannot be read is no reason not to answer


def keep(store: Store, file: OnnxFile) -> None:
    """Keep what later processes need of a file, if its bytes are told and it is not known yet."""
    if not file.digest or file.known is not None:
        return
    try:
        store.cache_put(_key(file.digest), file.facts.to_text())
    except HybridlatError as error:  # the next process parses the file again
        _log.info("what was found out about a file is not kept: %s", error)


def _key(digest: str) -> str:
    return f"{SCOPE}/{digest}"
