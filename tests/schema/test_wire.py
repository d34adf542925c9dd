"""Documents are read as one form, or not at all."""

from __future__ import annotations

import msgspec
import pytest

from hybridlat.schema.wire import decode_or_none


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    counts: dict[str, int]


@pytest.mark.parametrize(
    "text",
    [None, "", "x", '{"name":"a","counts":{"b":1', "[]", '{"name":1,"counts":{}}', b"\xff",
     "\ud800", '{"name":"a","counts":{},"more":1}'],
)  # fmt: skip
def test_a_damaged_document_counts_as_missing(text: str | bytes | None) -> None:
    assert decode_or_none(text, Entry) is None


def test_a_sound_document_is_read() -> None:
    assert decode_or_none('{"name":"a","counts":{"b":1}}', Entry) == Entry("a", {"b": 1})
    assert decode_or_none(b"[2,[1.5]]", tuple[int, list[float]]) == (2, [1.5])
