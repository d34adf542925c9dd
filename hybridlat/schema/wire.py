"""JSON documents as typed values, read strictly: damage is an error, or counts as missing."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from hybridlat.schema.shown import visible

T = TypeVar("T")
_LONGEST_PHRASE = 300  # a document may hold any name


def decode(text: str | bytes, form: type[T]) -> T:
    """A JSON document as ``form``; ValueError names what is wrong."""
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(phrase_of(error)) from None


def decode_or_none(text: str | bytes | None, form: type[T]) -> T | None:
    """A JSON document as ``form``; None where there is none, or one of another form.

    For caches: what is damaged there counts as missing. ``form`` is any type that msgspec knows,
    such as a Struct, a dataclass or ``tuple[int, dict[str, float]]``.
    """
    with suppress(ValueError):
        return None if text is None else decode(text, form)
    return None


def phrase_of(error: Exception) -> str:
    """``latency_us: expected a float, got a str``, of "Expected `float`, got `str` - at `$.…`"."""
    words = visible(str(error))
    words = words if len(words) <= _LONGEST_PHRASE else f"{words[:_LONGEST_PHRASE]}…"
    sentence, _, path = words.replace("`", "").partition(" - at $")
    sentence = sentence[:1].lower() + sentence[1:] if sentence[:4] != "JSON" else sentence
    return f"{path.lstrip('.')}: {sentence}" if path else sentence
