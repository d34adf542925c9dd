"""Others' measurements of whole networks as records: each network lowered as its target does it."""

import filecmp
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from hybridlat.engines import device_sheets, registry
from hybridlat.errors import HybridlatError, InputError, NetworkError, TargetError, UnavailableError
from hybridlat.graph.cells import cut_positions
from hybridlat.graph.network import Network, pixels_of
from hybridlat.graph.signature import Signature, sign, sign_part
from hybridlat.model.family.shipped import timed_as
from hybridlat.onnx_io import load
from hybridlat.schema.measurement import Breakdown, Measurement, Visit, facts_of_note
from hybridlat.schema.names import MODES, boards_of, device_name, near, user_folder
from hybridlat.schema.target import TENSORRT, Target
from hybridlat.store.importers import ImportedRecords
from hybridlat.store.importers.table import ANY_NETWORK, HELD, NetworkRow, Refusal, Size
from hybridlat.store.importers.trtexec_options import CONTRADICTION, MIXED, held_below

_BATCH_IN_NAME = re.compile(r"(?i)(?:[-_.]|\b)(?:bs|batch)[-_=]?([1-9][0-9]*)(?![0-9a-z])")
_VARIANT = re.compile(r"(?:-(?:[0-9]+gb|pcie|maxwell|laptop|max-q|mig-.*|[0-9]+w))*")


class NetworkFiles:
    """The ONNX files of a folder and of those below it, by the name of their network."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, list[Path]] = {}
        for file in sorted(folder.rglob("*.onnx")):
            self._files.setdefault(plain_name(file.stem), []).append(file)
        if not self._files:
            why = "holds no .onnx file" if folder.is_dir() else "is not a folder"
            raise InputError(f"{folder} {why}: --nets names the folder of the ONNX files")

    def find(self, names: Sequence[str]) -> Path:
        """The file of the first name that has one, even if written otherwise; Refusal without.

        Of several in other folders that whose path ends most like the name; equal ones are one.
        """
        for path in map(PurePath, names):
            alike = self._files.get(plain_name(str(path)), [])
            folders = [file.with_suffix("").parts for file in alike]
            ends = range(1, len(path.parts) + 1)
            shares = [sum(own[-n:] == path.parts[-n:] for n in ends) for own in folders]
            meant = [f for f, n in zip(alike, shares, strict=True) if n == max(shares)]
            whole = (len(file.relative_to(self._folder).parts) for file in meant)
            is_any = path.parent.name and ANY_NETWORK.fullmatch(plain_name(path.name))
            if is_any and any(max(shares) < parts for parts in whole):
                value = f"{path}.onnx is not {' or '.join(map(str, meant))}"
                fix = "name the file as its network, or put it into a folder of the same name"
                raise Refusal("the ONNX file may be of another network", value, fix)
            if len({file.stem for file in meant}) == 1:
                if all(filecmp.cmp(meant[0], file, shallow=False) for file in meant[1:]):
                    return meant[0]
                value, fix = ", ".join(map(str, meant)), "name the file with its folder"
                raise Refusal("several ONNX files have this name", value, fix)
        fix = "put NAME.onnx there, or name the file in a column onnx"
        raise Refusal(f"there is no ONNX file of the network in {self._folder}", names[0], fix)


def plain_name(name: str) -> str:
    """What is left of a network's name, or of the path of its file, in any way to write it."""
    return re.sub(r"[-_\s]", "", PurePath(name).name.casefold())


def take(
    rows: Sequence[NetworkRow], files: NetworkFiles | None, on_row: Callable[[int, int], None]
) -> tuple[ImportedRecords, list[Refusal]]:
    """The rows as records, and those that come to nothing; each network at one size in turn."""
    imported, refused = ImportedRecords(), list[Refusal]()
    network: _SizedNetwork | None = None
    ordered = sorted(rows, key=lambda row: (*row.sized, str(row.target)))
    for done, row in enumerate(ordered, 1):
        try:
            if network is None or network.sized != row.sized:
                network = _SizedNetwork(row, files)
            network.add(row, imported)
        except Refusal as refusal:
            refused.append(refusal.at(row.where))
        on_row(done, len(rows))
    return imported, refused


class _SizedNetwork:
    """The network of a row at its batch and size, and its cells under the rules of targets."""

    def __init__(self, row: NetworkRow, files: NetworkFiles | None) -> None:
        if files is None:
            fix = "give the folder of ONNX files with --nets"
            raise Refusal("the network's ONNX file is needed", row.names[0], fix)
        file = files.find(row.names)
        self.name, self.sized = file.stem, row.sized
        self.network, self.precision = network, _ = _network_at(file, row)
        self.layers = [sign_part(network, (i,))[0] for i in range(len(network.nodes))]
        self.hash = sign(network).hash
        first = network.types[network.inputs[0]].shape if network.inputs else ()
        self.shape = {"batch": str(first[0] if first else 1)}
        if len(first) == 4:
            self.shape["size"] = "x".join(map(str, [*first][pixels_of(first)]))
        named = None if row.batch or row.shapes else _BATCH_IN_NAME.search(row.names[0])
        if named and named[1] != self.shape["batch"]:
            value = f"{row.names[0]} at batch {self.shape['batch']}"
            raise Refusal("the network's name has another batch", value, "state the batch")
        self._cells: dict[str, list[Signature]] = {}

    def add(self, row: NetworkRow, imported: ImportedRecords) -> None:
        """Add the record of a row and its breakdown; Refusal where its engine cannot lower."""
        if row.typed:
            row = replace(row, target=self._typed(row))
        if refusal := held_on(row.target, row.labels):
            raise refusal
        lowered_as = timed_as(row.target)
        rules = _lowering_identity(lowered_as)
        if rules not in self._cells:
            self._cells[rules] = self._lower(lowered_as)
        cells = self._cells[rules]
        labels = {**row.labels, "network": self.name, **self.shape}
        if (called := PurePath(row.names[0]).name) != self.name and not row.labels.get("model"):
            labels["model"] = called
        record = Measurement(
            row.target,
            self.hash,
            "network",
            row.latency_us,
            spread_share=row.spread_share,
            visits=(Visit(row.samples_us),) if row.samples_us else (),
            protocol=row.protocol,
            labels={label: text for label, text in labels.items() if text},
            **{**facts_of_note(row.labels.get("note", "")), **row.facts},
        )
        about = {"lowering": rules, **self.shape, "copied_bytes": str(self.network.copied_bytes)}
        parts = (cells, self.layers)
        uses, layers = (tuple(Counter(s.hash for s in part).items()) for part in parts)
        imported.measurements.append(record)
        imported.breakdowns.append(Breakdown(row.target, self.name, self.hash, uses, layers, about))
        imported.signatures.update({s.hash: s.text for s in (*cells, *self.layers)})

    def _typed(self, row: NetworkRow) -> Target:
        """The target of a row with the precision of the file; Refusal for another, or for none."""
        types = [*self.network.types.values(), *(c.type for c in self.network.constants.values())]
        if odd := sorted({t.dtype for t in types if re.match("float[468]e|u?int[24]$", t.dtype)}):
            raise Refusal(MIXED, f"{self.name}: {', '.join(odd)}", "time a file of another type")
        precision = row.target.precision if self.precision == "fp32" else self.precision
        if precision not in row.typed:
            value = f"{precision} in {self.name}.onnx, not {row.typed[0]}"
            raise Refusal(CONTRADICTION, value, "correct --target, or leave it out")
        return replace(row.target, precision=precision)

    def _lower(self, target: Target) -> list[Signature]:
        try:
            lowered = registry.lower(self.network, target).network
        except HybridlatError as error:
            value = f"{self.name} on {target}: {error}"
            fix = "export it with the operators that the engine knows"
            raise Refusal("the engine's lowering refuses the network", value, fix) from None
        return [sign_part(lowered, positions)[0] for positions in cut_positions(lowered)]


def held_on(target: Target, labels: Mapping[str, str]) -> Refusal | None:
    """Why a run is no plain one of its device, by the clocks and the power limit of its labels."""
    texts, device = (labels.get(name, "") for name in HELD), target.device
    held = [text * text[:1].isdecimal() for text in texts]  # nvidia-smi may print [N/A]
    if not (any(held) and device in device_sheets.names() and device_sheets.is_gpu(target)):
        return None
    sheet = device_sheets.load(device)
    if sheet.shares_memory and float(held[0] or 0) * 1e6 > 1.05 * sheet.clock_hz:
        value = f"{held[0]} MHz, of {device} {sheet.clock_hz / 1e6:g}"
        return Refusal("the GPU's clock is of another power mode", value, "name the mode's device")
    return held_below(held, (sheet.clock_hz, sheet.memory_clock_hz, sheet.power_w))


def _lowering_identity(target: Target) -> str:
    """The rules by which a target's engine fuses; Refusal without, and for none of its targets."""
    text, is_gpu = str(target), device_sheets.is_gpu(target)
    if target.threads and is_gpu:
        raise Refusal("threads are of CPUs alone", text, "leave the column threads out")
    if target.engine in TENSORRT and not is_gpu:
        raise Refusal("the engine runs on GPUs alone", text, "correct one of them")
    if target.engine in TENSORRT and target.precision == "amp":
        fix = "write the lowest precision that the engine was allowed"
        raise Refusal("automatic mixes are of frameworks alone", text, fix)
    try:
        return registry.lowering_identity(target)
    except TargetError:
        known = f"known are {', '.join(registry.lowerings())}"
        raise Refusal("it is not known how the engine fuses", target.runtime, known) from None
    except UnavailableError as error:
        raise Refusal("the engine itself must lower", target.engine, str(error)) from None


def _network_at(file: Path, row: NetworkRow) -> tuple[Network, str]:
    """The network of a file bound to a row's sizes, and its precision; Refusal for other sizes."""
    try:
        read = load(file)
    except InputError as error:
        raise Refusal("the ONNX file cannot be read", error, "export it again") from None
    inputs, shapes = read.parsed.input_sizes, dict(row.shapes)
    if row.size is not None:
        shapes = _shapes(file.stem, inputs, row.batch, row.size)
    if len(shapes) == len(inputs) == 1:  # an export of its own may name its input otherwise
        shapes = dict(zip(inputs, shapes.values(), strict=True))
    try:
        return read.network(row.batch, shapes), read.facts.precision.name
    except NetworkError as error:
        value = f"{error} (batch {row.batch})" if row.batch else str(error)
        fix = "export it with dynamic sizes, or for these sizes"
        raise Refusal("the ONNX file does not take the batch or the size", value, fix) from None


def _shapes(
    name: str, inputs: Mapping[str, tuple[int | None, ...]], batch: int | None, size: Size
) -> dict[str, tuple[int, ...]]:
    """The first image among the inputs with these sizes; nothing where it has them already."""
    images = ((tensor, sizes) for tensor, sizes in inputs.items() if len(sizes) == 4)
    tensor, sizes = next(images, ("", (None,) * 4))
    pixels, new = pixels_of(sizes), [batch or sizes[0] or 1, *sizes[1:]]
    if [*size] in (new[pixels], new[pixels][::-1]):  # displays have their width first
        return {}
    new[pixels] = size
    bound = tuple([each for each in new if each is not None])
    if len(bound) < 4:
        value = f"{name}: {', '.join(f'{n} {list(s)}' for n, s in inputs.items())}"
        fix = "leave the size out, or export the network with its channels"
        raise Refusal("the ONNX file has no input of images to give a size to", value, fix)
    return {tensor: bound}


def notes(targets: Sequence[Target]) -> list[str]:
    """A sentence for each device of these targets that has no data sheet."""
    known, sentences = device_sheets.names(), []
    for device in sorted({target.device for target in targets}.difference(known)):
        alike = " or ".join(near(device, known))
        fix = f"write {user_folder() / device}.toml, so that other devices teach it"
        question = f"is it {alike}? Else " if alike else ""
        sentences.append(f"{device} has no data sheet: {question}{fix}")
    return sentences


def board_of(
    name: str, units: int | None, memory_bytes: int | None, word: str, power_mode: str = ""
) -> tuple[str, str]:
    """The device of a log by its multiprocessors and memory, and a remark on its sheet.

    ``word`` is the user's device, which counts where several are left; ``power_mode`` is what the
    log has of nvpmodel. Refusal for another.
    """
    plain, known = device_name(name), device_sheets.names()
    chip = boards_of(name, known)
    alike = chip or [n for n in known if n.startswith(plain) and _VARIANT.fullmatch(n, len(plain))]
    sheets = {one: device_sheets.load(one) for one in alike}
    fitting = {n: sheet for n, sheet in sheets.items() if units in (None, sheet.units)}
    if memory_bytes is None and (stated := re.search(r"([0-9]+) ?GB\b", name)):
        memory_bytes = int(stated[1]) << 30
    if memory_bytes is not None:  # the system keeps some of it
        shares = {n: memory_bytes / (sheet.memory_bytes or 1) for n, sheet in fitting.items()}
        likely = {n: fitting[n] for n, share in shares.items() if 0.7 < share < 1.05}
        fitting = likely or {n: sheet for n, sheet in fitting.items() if chip or n == plain}
    remark = ""
    if not fitting and plain in sheets and not chip:
        remark = f"{plain} has {sheets[plain].units} multiprocessors, this device {units}"
        if (units or 0) > sheets[plain].units and not word:  # a slice has fewer
            raise Refusal("this is another device of this name", remark, "name it by --target")
    left = list(fitting) or (alike if chip else [plain])
    usual = [one for one in left if not MODES.search(one)] or left
    facts = f"{name!a} with {units or 'unknown'} multiprocessors is {' or '.join(usual)}"
    if word:
        if (own := in_mode(word, power_mode)) != word:
            facts = f"{name!a} in the mode {power_mode} is {own}"
        elif word in left or (word not in known and (chip or not fitting)):
            return word, remark if word in left else ""
        raise Refusal(CONTRADICTION, f"{facts}, not {word}", "correct --target, or leave it out")
    first = plain if plain in usual else min(usual, key=len)
    if (fitting or not chip) and all(one.startswith(first) for one in usual):
        return in_mode(first, power_mode), remark
    raise Refusal("several boards have this name", facts, "say which with --target")


def device_of(ordered: str, gpu: str, model: str, power_mode: str) -> tuple[str, bool]:
    """(``ordered``, or the device that GPU, board and mode name; whether one alone has a sheet)"""
    known = device_sheets.names()
    try:
        plain = device_name(gpu, model)
        alike = boards_of(gpu, known) if plain == device_name(gpu) else []
    except TargetError:  # of no name it is none
        return ordered, gpu != ""
    alike = alike or [n for n in known if n.startswith(plain) and _VARIANT.fullmatch(n, len(plain))]
    is_same = MODES.sub("", ordered) in alike
    sheets = 0 if is_same else len({ordered, plain}.intersection(known))
    return in_mode(plain if sheets == 2 else ordered, power_mode), sheets == 1


def in_mode(board: str, power_mode: str) -> str:
    """The same board in the mode that nvpmodel names; as it is where that says nothing of it."""
    mode, base = re.search("([0-9]+)W|MAX[NPQ](_SUPER)?", power_mode), MODES.sub("", board)
    if mode is None or base not in (known := device_sheets.names()):
        return board
    own = device_name(f"{base} {mode[0]}")
    is_usual = own not in known and device_sheets.load(base).power_w == float(mode[1] or 0)
    return base if is_usual else own
