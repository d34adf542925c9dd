"""Make a new device known: measure what there is time for, then train.

Nearly everything is measured once, in portions of some seconds: whole networks that come with
hybridlat together with their cells (they fit the composition and judge the model), and random
realistic kernels, as they are drawn (see curriculum.py). The start is the model of another device
with the same engine, where there is one. Everything measured is in the store at once, so a run that
was cut off, or a second one, goes on where the first stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError, InputError, UnavailableError
from hybridlat.estimate.sibling import sibling_of
from hybridlat.evaluation.cross_fitting import device_of
from hybridlat.measuring.measurer import Measurer, MeasureRequest, measurer_of
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.doubt import KernelSpace
from hybridlat.model.fit_trees import check_installed
from hybridlat.model.geometry import problem_of
from hybridlat.schema.device import Device
from hybridlat.schema.progress import OnMessage, Progress, silent
from hybridlat.schema.resources import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.coldness_lesson import learn_coldness, wants_coldness
from hybridlat.training.curriculum import Curriculum, Ground, Portion, portion_s
from hybridlat.training.guesses import Guesses
from hybridlat.training.lessons import Lessons
from hybridlat.training.train import Trained, TrainingOptions, train_target
from hybridlat.training.visit_costs import VISIT_MS

ONBOARDING = MeasurementConfig(
    rounds=1, processes=1, max_processes=3, spread_share=0.1, visit_ms=VISIT_MS,
    network_visit_ms=100.0, network_visits=2, differential_rounds=1,
)  # fmt: skip
"""Many cells once are worth more than few cells often. What was disturbed (on a quiet machine one
visit in forty) is looked at again, by another process."""
READING_SHARE = 0.1
"""Part of the budget that reading networks may take before anything is measured."""
DRAWING_SHARE = 0.15
"""Part of a portion's time that drawing kernels to choose from may take."""
_STARTING_S = 3.0  # a measuring process: what is left of a budget must be more than that
_TRAINING_S, _TRAINING_SHARE = 60.0, 0.2
_DEAREST_SHARE = 0.25  # of the time left: a network that takes more is left out
_LEAST_CELLS = 60
_PACE_IN_NETWORKS = 20.0  # a cell that is measured inside its network against one by itself


@dataclass(frozen=True)
class Learned:
    """What was measured for an onboarding, before anything is trained on it.

    ``known`` counts the cells that the store knows of the target.
    """

    target: Target
    networks: int
    kernels: int
    known: int
    elapsed_s: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Onboarded:
    """What an onboarding did; ``trained`` is None where there was too little to learn from."""

    target: Target
    networks: int
    cells: int
    kernels: int
    elapsed_s: float
    trained: Trained | None
    notes: tuple[str, ...] = field(default=())


def networks_folder() -> Path | None:
    """The networks that come with hybridlat; None where none do."""
    folder = shipped("data", "nets")
    return folder if any(folder.glob("*.onnx")) else None


def measuring_s(budget_s: float) -> float:
    """What a budget leaves for measuring: training takes a fifth of it, and a minute at least.

    On what ten minutes measured, it took two and a half on the slower of two machines.
    """
    return max(budget_s - max(_TRAINING_S, _TRAINING_SHARE * budget_s), 0.5 * budget_s)


def onboard_target(
    backend: Backend,
    options: Mapping[str, int | str],
    budget_s: float,
    *,
    store: str | None = None,
    nets: Path | None = None,
    out: Path | None = None,
    device: Device | None = None,
    seed: int = 0,
    track: bool = True,
    settings: MeasurementConfig | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_message: OnMessage = silent,
    most_kernels: int = 100_000,
) -> Onboarded:
    """Measure on ``backend`` (``options`` start it anew) for about ``budget_s`` seconds and train.

    ``nets`` is a folder of ONNX files, by default those that come with hybridlat. Raises InputError
    for a budget that is not above 0.
    """
    learned = measure_lessons(
        backend, measurer_of(backend, options), budget_s, store=store, nets=nets, device=device,
        seed=seed, settings=settings, progress=progress, on_message=on_message,
        most_kernels=most_kernels,
    )  # fmt: skip
    chosen = TrainingOptions(out=out, device=device, seed=seed, track=track)
    return train_on_lessons(learned, chosen, store=store, on_message=on_message)


def measure_lessons(
    backend: Backend,
    measurer: Measurer,
    budget_s: float,
    *,
    store: str | None = None,
    nets: Path | None = None,
    device: Device | None = None,
    seed: int = 0,
    settings: MeasurementConfig | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_message: OnMessage = silent,
    most_kernels: int = 100_000,
) -> Learned:
    """The first half of :func:`onboard_target`: measure, and leave time to train.

    ``backend`` says what the target is and how it lowers, ``measurer`` measures. Raises
    MissingExtra where nothing could be trained on what would be measured.
    """
    if not budget_s > 0:
        raise InputError(f"a budget of {budget_s} s measures nothing: give for example 10m")
    check_installed()
    began = time.monotonic()
    with Store(store) as opened:
        work = _Work(backend, measurer, opened, settings or ONBOARDING, progress, on_message, seed)
        folder = nets or networks_folder()
        files = sorted(folder.glob("*.onnx")) if folder is not None else []
        end = began + measuring_s(budget_s)
        work.learn(files, device, began, end, most_kernels)
        done, kernels, notes = work.networks_known(), work.kernels_measured, work.all_notes()
        known = sum(s.cells for s in opened.stats() if s.target == backend.target)
    elapsed_s = time.monotonic() - began
    return Learned(backend.target, done, kernels, known, elapsed_s, tuple(notes))


def train_on_lessons(
    learned: Learned,
    options: TrainingOptions,
    *,
    store: str | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """The second half of :func:`onboard_target`: train on what the store knows of the target."""
    began = time.monotonic()
    target, known, trained, notes = learned.target, learned.known, None, learned.notes
    if known >= _LEAST_CELLS:
        on_message(f"{target}: training on {known} cells")
        trained = train_target(target, options, store=store, on_message=on_message)
    else:
        notes = (
            *notes,
            f"{known} cells are too few to train on (at least {_LEAST_CELLS}): "
            "run it again with a larger budget, it goes on where it stopped",
        )
    elapsed_s = learned.elapsed_s + time.monotonic() - began
    return Onboarded(target, learned.networks, known, learned.kernels, elapsed_s, trained, notes)


class _Work:
    """Measures portion after portion, and keeps what it measured."""

    def __init__(
        self, backend: Backend, measurer: Measurer, store: Store,
        settings: MeasurementConfig, progress: Callable[[Progress], None] | None,
        on_message: OnMessage, seed: int,
    ) -> None:  # fmt: skip
        self.backend, self.store, self.target = backend, store, backend.target
        self.measurer = measurer
        self.settings, self.progress, self.on_message = settings, progress, on_message
        self.lessons = Lessons(backend, store, self.measurer.needs_network, seed)
        self.kernels_measured = 0
        self._known: dict[str, tuple[float, float]] = {}
        self._refused: set[str] = set()
        self._done: set[str] = set()
        self._given_up: set[str] = set()
        self._notes: list[str] = []
        self._pace = _PACE_IN_NETWORKS if self.measurer.needs_network else 1.0

    def learn(
        self, files: Sequence[Path], device: Device | None, began: float, end: float, most: int
    ) -> None:
        """Portions until ``end``, or until nothing is left; at most so many random kernels."""
        sheet = device or device_of(self.target, self.store)
        sibling = sibling_of(self.target)
        kin = sibling.model if sibling is not None else None
        if sibling is not None:
            self.on_message(f"{self.target}: starting from the model of {sibling.target}")
        lessons = self.lessons
        lessons.read(files, began + READING_SHARE * (end - began))
        span_s = portion_s(end - began)
        if not lessons.texts:
            lessons.draw(min(most, 100), end)
        texts = [text for text in lessons.texts.values() if not problem_of(text)]
        if not texts:
            return
        space = KernelSpace.over(texts, sheet, self.target.precision, lessons.seed)
        guesses = Guesses(Ground(space), kin, sheet, self.target.precision)
        spent_s = (0.0, 0.0)
        self._learn_coldness(guesses, end - began)
        # However slow reading was: one portion is measured.
        end = max(end, time.monotonic() + span_s)
        while (left_s := end - time.monotonic()) > (_STARTING_S if self._known else 0.0):
            devices = self.measurer.devices
            room = max(min(devices * int(span_s / 0.1), 3 * most), 0)
            if self.kernels_measured < most:
                lessons.draw(
                    max(room - len(self._open_kernels()), 0) if most else 0,
                    time.monotonic() + DRAWING_SHARE * min(span_s, left_s),
                )
            self._look_up(lessons.texts)
            guesses.learn_of(lessons.texts)
            guesses.fit(self._known)
            curriculum = self._curriculum(guesses, _DEAREST_SHARE * left_s)
            kernels = self._open_kernels() if self.kernels_measured < most else []
            known = {h: noise for h, (_, noise) in self._known.items() if h in guesses.ground.row}
            portion = curriculum.portion(
                known,
                self._done | self._given_up,
                kernels,
                spent_s,
                devices * min(span_s, end - time.monotonic()),
            )
            if portion.is_empty:
                break
            self._say(portion, guesses, curriculum.expected_share(known, kernels))
            took = self._measure(portion, end, most - self.kernels_measured, devices)
            spent_s = (spent_s[0] + took[0], spent_s[1] + took[1])
            guesses.compare({h: self._known[h][0] for h in self._known})

    def _learn_coldness(self, guesses: Guesses, measuring_s: float) -> None:
        """Set how many replicas cells of this target are measured with, before the first of them.

        Where cells are known the settings say nothing, and what is measured goes on as it began.
        """
        chosen = self.settings.coldness is not None
        if chosen or not wants_coldness(self.measurer, self.store, measuring_s):
            return
        self.on_message(f"{self.target}: how cold cells are inside networks")
        guesses.learn_of(self.lessons.texts)
        guesses.fit({})
        found = learn_coldness(
            self.measurer, self.lessons, guesses.costs_s(1.0), measuring_s, self.progress
        )
        self.settings = replace(self.settings, coldness=found.factor)
        if found.networks:
            self._notes.append(str(found))

    def networks_known(self) -> int:
        """Networks whose whole latency and cells are all known."""
        return sum(name in self._done for name in self.lessons.networks)

    def all_notes(self) -> list[str]:
        """What was left out, and why."""
        left = len(self.lessons.networks) - len(self._done | self._given_up) + self.lessons.unread
        notes = [*self.lessons.notes, *self._notes]
        if left > 0:
            notes.append(
                f"{left} {'network' if left == 1 else 'networks'} did not fit into the budget"
            )
        return notes

    def _curriculum(self, guesses: Guesses, dearest_s: float) -> Curriculum:
        outlines = [
            guesses.outline(lesson, self.settings, self._pace)
            for lesson in self.lessons.networks.values()
            if all(h in guesses.ground.row for h in lesson.cells)
        ]
        return Curriculum(guesses.ground, outlines, guesses.costs_s(self._pace), dearest_s)

    def _open_kernels(self) -> list[str]:
        return [h for h in self.lessons.kernels if h not in self._known and h not in self._refused]

    def _look_up(self, hashes: Mapping[str, str]) -> None:
        """Read what the store knows of cells and networks that are not known here yet."""
        asked = [h for h in hashes if h not in self._known and h not in self._refused]
        for h, stats in self.store.latencies(self.target, asked).items():
            if stats.latency_us is None:
                self._refused.add(h)
            else:
                self._known[h] = (stats.latency_us, stats.spread_share)
        lessons = {
            lesson.signature: lesson
            for name, lesson in self.lessons.networks.items()
            if name not in self._done
        }
        whole = self.store.latencies(self.target, lessons, "network")
        tried = self._known.keys() | self._refused
        for hash_ in whole:
            if tried >= set(lessons[hash_].cells):
                self._done.add(lessons[hash_].name)

    def _measure(
        self, portion: Portion, end: float, most: int, devices: int
    ) -> tuple[float, float]:
        """Measure a portion; the seconds of devices that went to networks and to kernels."""
        tried = self._known.keys() | self._refused
        chosen = [self.lessons.networks[name] for name in portion.networks]
        requests: list[MeasureRequest] = []
        for lesson in chosen:
            new = {h: h not in tried for h in lesson.cells}
            whole = not self.store.latencies(self.target, [lesson.signature], "network")
            requests.append(lesson.request(new, whole))
        asked = [r for r in requests if not r.is_empty]
        kernels = [self.lessons.kernels[h] for h in portion.kernels[:most]]
        began = time.monotonic()
        got = self._run([*asked, *kernels], end)
        self.store.add_breakdowns([lesson.breakdown(self.target) for lesson in chosen])
        cells = {h for r in (*asked, *kernels) for h in r.cells}
        self._look_up(dict.fromkeys([*cells, *portion.kernels], ""))
        self.kernels_measured += sum(h in self._known for h in portion.kernels)
        took_s = devices * (time.monotonic() - began)
        if got and portion.expected_s > 0 and time.monotonic() < end:
            self._pace *= math.sqrt(max(0.2, min(5.0, took_s / portion.expected_s)))
        if not got:  # what cannot be measured is not tried again
            self._given_up.update(lesson.name for lesson in chosen)
        share = portion.networks_s / portion.expected_s if portion.expected_s else 0.0
        return share * took_s, (1 - share) * took_s

    def _run(self, requests: Sequence[MeasureRequest], end: float) -> int:
        """Measure what there is time for; how many latencies came of it. Refusals become notes."""
        left_s = end - time.monotonic()
        if not requests or left_s <= 0:
            return 0
        if len(requests) > 1 and self.measurer.needs_network and self.measurer.devices == 1:
            # What needs its network is built with it, and a run of many cannot be cut.
            return sum(self._run([request], end) for request in requests)
        settings = replace(self.settings, budget_s=left_s)
        try:
            records = self.measurer.measure(requests, self.store, settings, self.progress)
        except UnavailableError:
            raise
        except HybridlatError as error:
            if len(requests) > 1:  # one of them is to blame: each for itself
                return sum(self._run([request], end) for request in requests)
            self._notes.append(f"{requests[0].name} was not measured: {error}")
            self._refused.update(requests[0].cells)
            self._given_up.add(requests[0].name)
            return 0
        return sum(record.latency_us is not None for record in records)

    def _say(self, portion: Portion, guesses: Guesses, expected: float) -> None:
        """What is learned now, and how wrong the model is expected to be about a cell unseen."""
        what = []
        if portion.networks:
            shown = ", ".join(portion.networks[:4])
            more = len(portion.networks) - 4
            what.append(f"networks {shown}" + (f" and {more} more" if more > 0 else ""))
        if portion.kernels:
            what.append(f"{len(portion.kernels)} kernels")
        known = f"{len(self._known)} cells known"
        doubt = f"an unseen cell is expected to be off by {100 * guesses.honest(expected):.0f} %"
        self.on_message(f"{self.target}: {known}, {doubt}; now {' and '.join(what)}")
