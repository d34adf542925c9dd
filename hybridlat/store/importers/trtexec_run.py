"""One run of trtexec as its log states it, and what several have to do with each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from hybridlat.store.importers import trtexec_options
from hybridlat.store.importers.cells import Refusal
from hybridlat.store.importers.table import ANY_NETWORK

_BOARD = ("device", "version")  # of an engine, which runs nowhere else


@dataclass(frozen=True)
class TrtexecLog:
    """What one run of trtexec states.

    ``fields`` are device, engine, version and precision; ``options`` are those of its command.
    ``times`` is the file of its times, ``labels`` how it ran. ``names`` are what its network may be
    called; an empty one stands for the log's own name. ``shapes`` are those of inputs; where
    ``is_typed``, the network's types decide the precision. ``board`` is the number of
    multiprocessors and the bytes of memory. ``medians_us`` are those of the summary, ``upper_us``
    the first percentile of the GPU's time above the median with its share (0..1), ``objection`` why
    the run is no measurement, ``power_mode`` a Jetson's, ``clocks_hz`` the GPU's and its memory's.
    ``comment`` is what people wrote above it.
    ``span`` is when the run and its timing began and when it ended, ``gpu`` the GPU's name, its
    number, and the first UUID of its machine.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict, compare=False)
    names: tuple[str, ...] = ("",)
    median_us: float | None = None
    batch: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    times: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_typed: bool = False
    board: tuple[int | None, int | None] = (None, None)
    objection: Refusal | None = None
    line: int = 0
    medians_us: Mapping[str, float] = field(default_factory=dict)
    upper_us: tuple[float, float] | None = None
    clocks_hz: tuple[float | None, ...] = (None, None)
    is_unstable: bool = False
    power_mode: str = ""
    span: tuple[str, str, str] = field(default=("", "", ""), compare=False)
    gpu: tuple[str, ...] = field(default=(), compare=False)
    comment: str = ""


Run = tuple[Path, TrtexecLog, Path | None]  # its file, what it states, the file of its times


def path_of(options: Mapping[str, str], name: str) -> PurePath:
    """The path that an option names; an empty one without."""
    return PurePath(options.get(name, "").replace("\\", "/"))


def meanwhile(log: TrtexecLog, runs: Iterable[Run]) -> Refusal | None:
    """Why a run was not alone on its GPU: another was going on while it was timed."""
    for file, other, _ in runs:
        both = zip(log.gpu, other.gpu, strict=False)
        begin, _, end = other.span
        is_meanwhile = log.span[1] < end and begin < log.span[2] and log.span != other.span
        if is_meanwhile and all(one == two or not (one and two) for one, two in both):
            value = f"{' to '.join(log.span[1:])}, and in {file.name} {begin} to {end}"
            fix = "run one after the other; import those of several machines one by one"
            return Refusal("another run was going on while this one was timed", value, fix)
    return None


def with_builds(runs: Sequence[Run]) -> list[Run]:
    """The runs, those of a loaded engine as it was built; what only built one of them is none.

    The build is the last above the run, or the only one of all other files.
    """
    result, used, builds = list[Run](), set[int](), defaultdict[str, list[Run]](list)
    for run in runs:
        if not (run[1].objection and run[1].objection.value.startswith("&&&& FAILED")):
            builds[path_of(run[1].options, "saveEngine").name].append(run)
    for file, log, times in runs:
        engine = path_of(log.options, "loadEngine")
        saved = builds.get(engine.name, []) if engine.name else []
        above = [one for other, one, _ in saved if other == file and one.line < log.line]
        board = [log.fields.get(name) for name in _BOARD]
        elsewhere = [one for other, one, _ in saved if other != file]
        others = [one for one in elsewhere if [one.fields.get(n) for n in _BOARD] == board]
        is_only = len(others) == 1 and not ANY_NETWORK.fullmatch(engine.stem.lower())
        for build in above[-1:] or (others if is_only else []):
            log = _loaded(log, build)
            used.add(id(build))
        result.append((file, log, times))
    return [run for run in result if run[1].median_us or id(run[1]) not in used]


def _loaded(log: TrtexecLog, build: TrtexecLog) -> TrtexecLog:
    """The run of a loaded engine with what the log of its build states."""
    options = trtexec_options.of_engine(build.options, log.options, log.shapes)
    fields, objection = dict(log.fields), log.objection
    try:
        trtexec_options.check(options, "")
        fields["precision"] = trtexec_options.precision_of(options, build.is_typed)
    except Refusal as refusal:
        objection = objection or refusal
    return replace(
        log,
        fields=fields,
        names=(*filter(None, build.names), *log.names),
        labels={**log.labels, "options": trtexec_options.kept(options)},
        is_typed=build.is_typed,
        objection=objection,
    )
