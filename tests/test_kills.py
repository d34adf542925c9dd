"""What a killed import committed is kept; ``python -m tests.kills 200`` tries all commands."""

from __future__ import annotations

from tests import kills
from tests.slow import slow


@slow
def test_a_killed_import_loses_nothing() -> None:
    assert kills.main(2, 0, ["import"]) == 0
