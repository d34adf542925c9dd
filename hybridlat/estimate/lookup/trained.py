"""What training left of a target, or of those it borrows from: compositions and a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hybridlat.estimate.compose import machine
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.lookup.models import (
    first_readable,
    model_folders,
    read_composition,
    read_model,
    read_target,
    readable,
)
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.model.cell_model import CellModel


class Trained:
    """Read from folders of models, each part when it is first asked for."""

    def __init__(
        self, target: Target, kin: Sequence[Target], folders: Sequence[Path] | None = None
    ) -> None:
        """``kin`` are the targets that share the cells; without ``folders``, those installed."""
        self._target, self._kin, self._given = target, kin, folders
        self.warnings: list[str] = []
        """What of this target's own model could not be used, and what to do about it."""

    @property
    def _folders(self) -> Sequence[Path]:
        return model_folders(self._target) if self._given is None else self._given

    @cached_property
    def fitted(self) -> Composition | None:
        """What training fitted to whole networks of this very target, however few."""
        return first_readable(read_composition, self._folders, self.warnings)

    @property
    def composition(self) -> Composition | None:
        """The trained one, unless training had too few networks: those of the store tell more.

        They hold all that are measured afterwards.
        """
        found = self.fitted
        return None if found is None or found.networks < machine.CALIBRATING else found

    @property
    def has_composition(self) -> bool:
        """Whether training fitted constants and width to enough networks of this very target."""
        return self.composition is not None

    @property
    def kin_composition(self) -> Composition | None:
        """What the same machine and engine are known by at another precision of the file."""
        if self.borrowed is None or self.borrowed[0] not in map(str, self._kin):
            return None
        return self.borrowed[1]

    @cached_property
    def borrowed(self) -> tuple[str, Composition] | None:
        """Whose interval is used where this target has no composition: the same engine's.

        How far the sum of measured cells is from the network depends on the engine and on how
        cells are measured more than on the device, so a sibling's error is the best guess there
        is. Its constants are taken over from files of another precision on the same machine only.
        """
        if self.composition is not None:
            return None
        for target in self._kin:
            found = first_readable(read_composition, model_folders(target), self.warnings)
            if found is not None and found.networks:
                return str(target), found
        for folder in model_folders(None):
            sibling = readable(read_target, folder)
            if sibling is not None and sibling.engine == self._target.engine:
                composition = readable(read_composition, folder)
                if composition is not None and composition.networks:
                    return str(sibling), composition
        return None

    @cached_property
    def model(self) -> CellModel | None:
        """The target's model of unseen cells, the user's own before the one shipped.

        Where it has none, that of files of another precision: it knows the cells that both have,
        and says of the others that it has never seen such operators.
        """
        folders = [self._folders, *(model_folders(target) for target in self._kin)]
        return first_readable(
            read_model, [folder for each in folders for folder in each], self.warnings
        )
