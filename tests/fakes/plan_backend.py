"""The fake machine behind an engine that hands its results out in another layout than its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from hybridlat.board.journal import Journal
from hybridlat.engines.base import Method, Session
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network
from tests.fakes.fake_backend import FakeBackend, FakeSession, Machine

FACTS = {"runner": "worker", "engine": "fake", "engine_version": "1.0", "gpu": "fake"}


class LayoutBackend(FakeBackend):
    """A feature map that comes in or goes out costs 1 µs for so many elements, an image nothing."""

    method: ClassVar[Method] = Method.DIFFERENTIAL
    elements_per_us = 20.0

    def __init__(self) -> None:
        super().__init__(Machine(noise_share=0.0, session_us=0.0))

    def build(self, network: Network, *, seed: int, lowered: bool) -> Session:
        session = super().build(network, seed=seed, lowered=lowered)
        assert isinstance(session, FakeSession)
        for name in (*network.inputs, *network.outputs):
            shape = network.types[name].shape
            if len(shape) == 4 and shape[1] != 3 and shape[2:] != (1, 1):
                session._time_us += network.types[name].elements / self.elements_per_us
        return session


class PlanBackend(LayoutBackend):
    """The same, by plans that run here; ``slowness_of`` a round is the machine's."""

    method: ClassVar[Method] = Method.PLAN
    slowness_of: Callable[[int], float] = staticmethod(lambda round_: 1.0)

    def run_plan(
        self, folder: Path, progress: Callable[[int, int, str], None] | None = None
    ) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        journal = Journal(str(folder / "results.jsonl"), manifest["plan"], "fake", FACTS)
        items = {
            key: self.build(read_network(folder / spec["file"]), seed=1, lowered=False)
            for key, spec in manifest["items"].items()
        }

        def timed(key: str, round_: int) -> list[float]:
            return [round(self.slowness_of(round_) * us, 3) for us in items[key].run_us(20)]

        visits = [(t, r) for t in manifest["tasks"] for r in range(t["rounds"])]
        for done, (task, round_) in enumerate(visits, start=1):
            line = {"kind": "visit", "task": task["task"], "round": round_, "process": 1}
            line["samples_us"] = {key: timed(key, round_) for key in task["items"]}
            line["reference_us"] = timed(manifest["reference"], round_)[0]
            journal.write(line)
            if progress is not None:
                progress(done, len(visits), task["label"])
