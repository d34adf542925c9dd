"""Addresses without their passwords."""

from __future__ import annotations

import pytest

from hybridlat.schema.address import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cr@t@host/db", "postgresql://ann@host/db"),
        (
            "postgresql+psycopg://ann@host/db?host=/tmp",
            "postgresql+psycopg://ann@host/db?host=/tmp",
        ),
        ("https://ann:secret@tracking:5000", "https://ann@tracking:5000"),
        ("sqlite:////data/latency.db", "sqlite:////data/latency.db"),
        ("sqlite:////da:ta/a@b.db", "sqlite:////da:ta/a@b.db"),
        ("postgresql://h/db?password=secret&user=ann", "postgresql://h/db?password=***&user=ann"),
    ],
)
def test_a_password_is_left_out(url: str, shown: str) -> None:
    assert without_password(url) == shown
