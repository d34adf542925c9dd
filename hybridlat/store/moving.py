"""Records of signature format 1, moved to the present one by reading their texts again.

Its texts had a line for each constant, with all values of small ones, and operators as their file
wrote them: read here, they are networks in their normal form, to be signed anew. Nothing is
measured anew. A record's id is a hash of its content, so it changes with the signature, and a
record that is moved twice is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from hybridlat.errors import StoreError
from hybridlat.graph import signature_reading
from hybridlat.graph.network import Network
from hybridlat.graph.normal import normal_form, with_onnx_names
from hybridlat.graph.signature import HEADER, Signature, sign
from hybridlat.schema import wire
from hybridlat.schema.measurement import Breakdown, Measurement, id_of
from hybridlat.store.connection import Connection
from hybridlat.store.rows import KIND_CODES, batches, key_of, packed, unpacked

BATCH = 500
_HEADER_1 = "hybridlat-signature 1"
_DELETE_TEXT = "DELETE FROM signature WHERE hash = :hash"
_ADD_TEXT = "INSERT INTO signature (hash, text) VALUES (:hash, :text) ON CONFLICT DO NOTHING"
_KEYS, _BODIES = "SELECT id FROM {}", "SELECT id, body FROM {} WHERE id IN :keys"
_MOVE_BODY = "UPDATE {} SET id = :id, body = :body WHERE id = :old"
_MOVE_ROW = """
UPDATE measurement SET id = :id, signature = :signature
WHERE target_id = (SELECT id FROM target WHERE name = :target) AND kind = :kind
AND signature = :before AND id = :old"""


def read_any(text: str) -> Network:
    """The network of a text of either format; ValueError for one of none."""
    if not text.startswith(f"{_HEADER_1}\n"):
        return signature_reading.read(text)
    return with_onnx_names(normal_form(signature_reading.read(_rewritten(text))))


def moved(hash_: str, text: str) -> Signature:
    """The signature in the present format of what a text stands for; itself where it has that.

    What cannot be read stays as it is.
    """
    if not text.startswith(f"{_HEADER_1}\n"):
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


@dataclass
class Moves:
    """The signatures that others have become, by the older hash."""

    hashes: dict[str, str] = field(default_factory=dict)

    def texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The same texts in the present format by their hashes; the moves are remembered."""
        made = {}
        for hash_, text in texts.items():
            signature = moved(hash_, text)
            made[signature.hash] = signature.text
            if signature.hash != hash_:
                self.hashes[hash_] = signature.hash
        return made

    def measurement(self, record: Measurement) -> Measurement:
        return replace(record, signature=self.hashes.get(record.signature, record.signature))

    def breakdown(self, item: Breakdown) -> Breakdown:
        """The same for a breakdown; a breakdown's JSON says all of it."""
        return Breakdown.from_json(self.body(item.to_json())) if self.hashes else item

    def body(self, body: dict[str, Any]) -> dict[str, Any]:
        hashes = self.hashes
        body = {**body, "signature": hashes.get(body["signature"], body["signature"])}
        for name in ("cells", "layers"):
            if name in body:
                counts: dict[str, int] = {}
                for hash_, count in body[name]:
                    new = hashes.get(hash_, hash_)
                    counts[new] = counts.get(new, 0) + count
                body[name] = [[hash_, count] for hash_, count in counts.items()]
        return body


def move_store(connection: Connection) -> None:
    """Bring a store of schema 1 to schema 2, within the transaction that is open."""
    moves = Moves()
    stored = connection.rows("SELECT hash, text FROM signature", {})
    texts = moves.texts({bytes(hash_).hex(): text for hash_, text in stored})
    connection.change(_DELETE_TEXT, [{"hash": key_of(old)} for old in moves.hashes])
    new = sorted(set(moves.hashes.values()))
    connection.change(_ADD_TEXT, [{"hash": key_of(h), "text": texts[h]} for h in new])
    for id_, old, text in _changed(connection, "payload", moves):
        body = msgspec.json.decode(text)
        row = {
            "old": id_, "id": key_of(id_of(text)), "body": packed(text),
            "target": body["target"], "kind": KIND_CODES[body["kind"]],
            "before": key_of(old["signature"]), "signature": key_of(body["signature"]),
        }  # fmt: skip
        for statement in (_MOVE_BODY.format("payload"), _MOVE_ROW):
            connection.change(statement, [row])
    for id_, _, text in _changed(connection, "breakdown", moves):
        row = {"old": id_, "id": key_of(id_of(text)), "body": packed(text)}
        connection.change(_MOVE_BODY.format("breakdown"), [row])
    connection.define("DELETE FROM cache")
    connection.define("UPDATE hybridlat_meta SET value = '2' WHERE name = 'schema'")


def _changed(
    connection: Connection, table: str, moves: Moves
) -> Iterator[tuple[bytes, dict[str, Any], str]]:
    """The id, content and new text of each record that changes; damaged ones stay as they are."""
    keys = [bytes(key) for (key,) in connection.rows(_KEYS.format(table), {})]
    for part in batches(keys, BATCH):
        for id_, packed_body in connection.rows(_BODIES.format(table), {"keys": part}):
            try:
                old: Any = unpacked(bytes(packed_body))
                new = moves.body(old)
            except (ValueError, KeyError, TypeError, StoreError):
                continue
            if new != old:
                yield bytes(id_), old, wire.canonical(new)
