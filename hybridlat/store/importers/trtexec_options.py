"""What every option of trtexec 7 to 11 and of tensorrt_rtx does to the latency that it prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hybridlat.schema.plugins import shipped_table
from hybridlat.store.importers.table import Refusal

CONTRADICTION = "the log contradicts --target"
MIXED = "no target has this precision or this mix"

_TABLE = shipped_table("trtexec")
_PLAIN, _KEPT = (re.compile("|".join(_TABLE[name])) for name in ("plain", "kept"))
_PATTERNS = {
    word.partition("=")[0]: (word.partition("=")[2], effect)
    for effect, words in _TABLE["other"].items()
    for word in words
}
_MS = r"([0-9]+(?:[.,][0-9]+)?(?:e[-+]?[0-9]{1,3})?) ms"
PRINTED = {
    name: re.compile("|".join([forms] if isinstance(forms, str) else forms).replace("MS", _MS))
    for name, forms in _TABLE["printed"].items()
}
"""What logs print."""


def check(options: Mapping[str, str], text: str) -> None:
    """Raise Refusal for a run that failed, or that timed something else than the network."""
    for name, value in options.items():
        pattern, effect = _PATTERNS.get(name, ("", ""))
        if not (effect or _PLAIN.fullmatch(name) or _KEPT.fullmatch(name)):
            effect = "it is not known whether the option changes what is timed"
        if pattern and re.fullmatch(pattern, value, re.IGNORECASE):
            continue
        if name in ("dumpProfile", "exportProfile") and "separateProfileRun" in options:
            continue
        if effect:
            raise Refusal(effect, f"--{name}={value}"[:80].rstrip("="), "run trtexec without it")
    if printed := PRINTED["other"].search(text):
        reason = "the run failed, or is no plain one of the GPU"
        raise Refusal(reason, printed[0][:80], "run it again")
    names = ("optShapes", "maxShapes", "minShapes")
    built = next((options[name] for name in names if options.get(name)), "")
    run = options.get("shapes") or built
    if other := set(run.split(",")).difference((built or run).split(",")):
        raise Refusal("the engine is built for other sizes", min(other)[:80], "build it for these")


def kept(options: Mapping[str, str]) -> str:
    """The options that a record keeps, as they were written."""
    names = sorted(name for name in options if _KEPT.fullmatch(name))
    return " ".join(f"--{name}={options[name]}".rstrip("=") for name in names)[:500]
