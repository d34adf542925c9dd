"""How networks fall into cells on one target: signed as a whole where that is of use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridlat.api.sources import Opened
    from hybridlat.estimate.partition import Partition
    from hybridlat.estimate.partitioner import Partitioner
    from hybridlat.estimate.target_data import TargetData


class Partitions:
    """Partitions of networks that are open; ``data`` says which of them may be on record whole."""

    def __init__(self, partitioner: Partitioner, data: TargetData) -> None:
        self._partitioner, self._data = partitioner, data
        self._networks = 0  # on record when the last network was left unsigned

    def of(self, opened: Opened, *, signed: bool = True) -> Partition:
        """How a network falls into cells.

        ``signed`` if the network's own signature is wanted whatever is on record.
        """
        asked = opened.file, opened.batch, opened.shapes
        if not signed:
            networks = self._data.networks
            if networks != self._networks:
                self._networks = networks
                self._partitioner.drop_unsigned()
            needs_whole = partial(self._data.may_be_measured, known=networks)
            return self._partitioner.partition(*asked, needs_whole=needs_whole)
        partition = self._partitioner.partition(*asked)
        if not partition.whole:
            self._partitioner.drop_unsigned()
            partition = self._partitioner.partition(*asked)
        return partition
