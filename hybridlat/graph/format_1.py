"""Signature texts of format 1, as stores, packs and plans of older versions hold them.

They had a line for each constant, with all values of small ones, and operators as their file wrote
them: read here, they are networks in their normal form, to be signed anew.
"""

from __future__ import annotations

from hybridlat.graph import signature_reading
from hybridlat.graph.network import Network
from hybridlat.graph.normal import normal_form, with_onnx_names
from hybridlat.graph.signature import HEADER, Signature, sign

HEADER_1 = "hybridlat-signature 1"


def read_any(text: str) -> Network:
    """The network of a text of either format; ValueError for one of none."""
    if not text.startswith(f"{HEADER_1}\n"):
        return signature_reading.read(text)
    return with_onnx_names(normal_form(signature_reading.read(_rewritten(text))))


def moved(hash_: str, text: str) -> Signature:
    """The signature in the present format of what a text stands for; itself where it has that.

    What cannot be read stays as it is.
    """
    if not text.startswith(f"{HEADER_1}\n"):
        return Signature(hash_, text)
    try:
        return sign(read_any(text))
    except (ValueError, LookupError, TypeError, ArithmeticError):
        return Signature(hash_, text)


def _rewritten(text: str) -> str:
    """The lines of the present format: constants where they are read."""
    constants: dict[str, str] = {}
    lines = [HEADER]
    for line in text.strip().split("\n")[1:]:
        word, _, rest = line.partition(" ")
        if word == "constant":
            head, has_values, values = rest.partition(" =")
            number, dtype, shape = (*head.split(" "), "")[:3]
            written = ",".join(values.split())
            constants[number] = f"{dtype}:{shape}{'=' * bool(has_values)}{written}"
        elif word == "input":
            number, dtype, shape = (*rest.split(" "), "")[:3]
            lines.append(f"input {number} {dtype}:{shape}")
        elif word == "node":
            head, _, wiring = rest.partition(" (")
            sources, _, results = wiring.partition(") -> (")
            read = " ".join(constants.get(number, number) for number in sources.split(" "))
            lines.append(f"node {head} ({read}) -> ({results}")
        else:
            lines.append(line)
    return "\n".join([*lines, ""])
