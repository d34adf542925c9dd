"""Which data sheet a log's device is of, where CUDA gives several boards one name."""

from __future__ import annotations

import re

from hybridlat.engines import device_sheets
from hybridlat.schema.names import device_name
from hybridlat.store.importers.table import Refusal
from hybridlat.store.importers.trtexec_options import CONTRADICTION

# CUDA calls a Jetson by its chip alone: the names of the boards that have it begin so.
_CHIPS = {"orin": "orin-", "xavier": "xavier-", "thor": "thor-", "x1": "jetson-", "x2": "tx2"}
_CHIP = re.compile(r"(?:nvidia )?(?:jetson |tegra )?(orin|xavier|thor|x1|x2)(?: \(?nvgpu\)?)?")
_MODE = re.compile(r"-(?:[0-9]+w|max-[npq]|super)$")
_VARIANT = re.compile(r"(?:-(?:[0-9]+gb|pcie|maxwell|laptop|max-q|mig-.*|[0-9]+w|super))*")


def board_of(name: str, units: int | None, memory_bytes: int | None, word: str) -> tuple[str, str]:
    """The device of a log, and a remark: its sheet has these multiprocessors and this memory.

    ``word`` is the user's device, which counts where the log leaves more than one. Raises Refusal
    where it is none of them, and where there is none and several are left.
    """
    plain, known = device_name(name), device_sheets.names()
    chip = _CHIP.fullmatch(name.lower().strip())
    if chip:
        alike = [one for one in known if one.startswith(_CHIPS[chip[1]])]
    else:
        alike = [n for n in known if n.startswith(plain) and _VARIANT.fullmatch(n, len(plain))]
    sheets = {one: device_sheets.load(one) for one in alike}
    fitting = {n: sheet for n, sheet in sheets.items() if units in (None, sheet.units)}
    if memory_bytes is None and (stated := re.search(r"([0-9]+) ?GB\b", name)):
        memory_bytes = int(stated[1]) << 30
    if memory_bytes is not None:  # the system keeps some of it
        shares = {n: memory_bytes / (sheet.memory_bytes or 1) for n, sheet in fitting.items()}
        fitting = {n: fitting[n] for n, share in shares.items() if 0.7 < share < 1.05} or fitting
    remark = ""
    if not fitting and plain in sheets and not chip:
        remark = f"{plain} has {sheets[plain].units} multiprocessors, this device {units}"
    left = list(fitting) or (alike if chip else [plain])
    usual = [one for one in left if not _MODE.search(one)] or left
    facts = f"{name!a} with {units or 'unknown'} multiprocessors is {' or '.join(usual)}"
    if word:
        if word in left or (chip and word not in known):
            return word, remark
        raise Refusal(CONTRADICTION, f"{facts}, not {word}", "correct --target, or leave it out")
    first = plain if plain in usual else min(usual, key=len)
    if (fitting or not chip) and all(one.startswith(first) for one in usual):
        return first, remark
    raise Refusal("several boards have this name", facts, "say which with --target")
