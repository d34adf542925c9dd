"""Which targets there is something known of, and how much."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hybridlat.engines.resolution import resolve
from hybridlat.errors import BackendUnavailable
from hybridlat.estimate.model_folders import model_folders, read_card, read_target, readable
from hybridlat.schema.target import Target


@dataclass(frozen=True)
class TargetInfo:
    """One target that can be predicted for, and what there is of it.

    ``noise_floor`` is that of the networks that its model was trained with, RMSPE in percent.
    """

    target: str
    source: str
    cells: int
    networks: int
    model: bool
    noise_floor: float | None = None


def list_targets(store: str | None = None) -> list[TargetInfo]:
    """Every target that the store, the shipped packs or models know, and this machine."""
    from hybridlat.store import Store, packs

    found: dict[str, TargetInfo] = {}

    def add(
        target: Target, source: str, cells: int = 0, networks: int = 0, noise: float | None = None
    ) -> None:
        name = str(target)
        old = found.get(name)
        if old is None:
            old = TargetInfo(name, "", 0, 0, bool(model_folders(target)))
        found[name] = replace(
            old,
            source=f"{old.source}, {source}".removeprefix(", "),
            cells=max(cells, old.cells),
            networks=max(networks, old.networks),
            noise_floor=old.noise_floor if noise is None else noise,
        )

    with Store(store) as opened:
        for stats in opened.stats():
            add(stats.target, "store", stats.cells, stats.networks)
    for pack in packs.shipped_packs():
        counts = pack.counts()
        add(pack.target, "pack", counts["cell"], counts["network"])
    for folder in model_folders(None):
        target = readable(read_target, folder)
        if target is not None:
            noise = read_card(folder).get("noise_floor")
            add(target, "model", noise=noise if isinstance(noise, int | float) else None)
    try:
        engine = resolve(None)
        if engine.backend is not None:
            add(engine.target, "this machine")
    except BackendUnavailable:
        pass
    return sorted(found.values(), key=lambda info: info.target)
