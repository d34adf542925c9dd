"""The made-up store, a first training on it and a tracking database, as evaluations have."""

from tests.evaluation.conftest import (
    _own_folders,
    flat,
    made,
    store_url,
    tracked,
    tracked_folder,
    trained,
)

__all__ = ["_own_folders", "flat", "made", "store_url", "tracked", "tracked_folder", "trained"]
