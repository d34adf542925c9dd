"""What notes and comments state of a run, in parts or within longer phrases."""

import functools
import re
import string
from collections.abc import Iterator

from hybridlat.schema import names
from hybridlat.schema.plugins import shipped_table
from hybridlat.schema.target import Target
from hybridlat.store.importers.cells import (
    Refusal,
    Size,
    agreeing,
    board,
    is_device,
    shape,
    target_of,
)
from hybridlat.store.importers.files import LONGEST_NOTE

_NOTED = {
    name: re.compile(form, re.IGNORECASE) for name, form in shipped_table("names")["noted"].items()
}
_ASIDE, _BEHIND, _OF_OTHERS = (
    re.compile(form, re.IGNORECASE) for form in shipped_table("names")["prose"].values()
)
_PARTS = re.compile(r"[,;|()]\s*|\.\s+|\s[/+–-]\s|/(?=tensorrt|torch|onnx)|\s--")  # of a note


def _stated_within(part: str) -> Iterator[tuple[str, frozenset[str]]]:
    """What a part of a note states, by all of its words or behind one such as "on"."""
    yield (whole := stated_by(part))
    part = _ASIDE.sub("", part)
    if not (whole[1] or _OF_OTHERS.search(part)):
        for behind in _BEHIND.finditer(part):
            words = part[behind.end() :].split()[:4]
            each = (stated_by(" ".join(words[:count]).strip(".!?")) for count in (4, 3, 2, 1))
            yield next((one for one in each if one[1] and "exporter" not in one[1]), whole)


@functools.lru_cache(1 << 12)
def stated_by(part: str) -> tuple[str, frozenset[str]]:
    """What a cell or a part of a note is in itself (``V100`` of "on V100"), and of which kinds."""
    match = _NOTED["fact"].fullmatch(part.strip())
    fact = match["fact"] if match else ""
    kinds = {name for name, form in _NOTED.items() if form.fullmatch(fact)} - {"fact"}
    return fact, frozenset(kinds | ({"device"} if is_device(fact) else set()))


def checked_note(
    note: str, target: Target, batch: int | None, size: Size | None
) -> tuple[Size | None, dict[str, str]]:
    """The size, which the note may state, and the GPU's clock in MHz and limit in W.

    Refusal for a part that is another fact than its row's.
    A part that speaks of more (``faster than FP32``) counts for nothing.
    """
    held = dict[str, str]()
    parts = dict.fromkeys(_PARTS.split(note[: 2 * LONGEST_NOTE]))
    for own_part, (fact, kinds) in ((part, one) for part in parts for one in _stated_within(part)):
        device = f"{names.MODES.sub('', target.device)} {fact}" if "mode" in kinds else fact
        is_export = "exporter" in kinds and fact == own_part.strip()
        if not kinds or (is_export and "torch" not in target.engine):
            continue  # not "measured in" it: the file comes from there
        stated = {name: fact * (name in kinds) for name in ("engine", "precision")}
        stated["device"] = board(device, target) if is_device(device) else ""
        other = target_of(stated, target)
        agreeing(target, other.device, other.runtime, other.precision)
        is_other = "batch" in kinds and int(re.sub(r"\D", "", fact)) != (batch or 1)
        noted = shape(fact.lstrip("=: _" + string.ascii_letters))[1] if "size" in kinds else size
        size = size or noted
        is_other |= noted != size
        held |= {name: re.sub(r"\D", "", fact) for name in kinds & {"clock", "power_limit"}}
        if is_other or ("mode" in kinds and other.device != target.device):
            own = f"{fact} beside {target.device}, batch {batch or 1}, size {size or 'of the file'}"
            raise Refusal("the row contradicts itself", own, "correct one of them")
    return size, held
