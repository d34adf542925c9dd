"""``make drift WHY="…"``: write the table of predictions anew and say why it moved.

Without a reason the moves are shown, and nothing is written.
"""

import argparse
import math
import sys
from collections.abc import Sequence

from tests.drift.predictions import (
    FOLDER,
    Move,
    engine_version,
    moves,
    predicted,
    read_table,
    write_table,
)

LOG = FOLDER / "accepted.md"


def entry(moved: Sequence[Move], why: str) -> str:
    """A line of the log: how many predictions moved, how far, where, and why."""
    pairs = {(move.network, move.target) for move in moved}
    networks = len({network for network, _ in pairs})
    targets = sorted({target for _, target in pairs})
    sizes = [abs(move.change) for move in moved if math.isfinite(move.change)]
    far = f", by {100 * max(sizes):.3g} % at most" if sizes else ""
    where = ", ".join(targets) if len(targets) <= 4 else f"{len(targets)} targets"
    return (
        f"- {why.strip()} ({len(pairs)} predictions of {networks} networks moved{far}: "
        f"{where or 'none'}; {engine_version()})\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Show what moved; with a reason, accept it. 1 where an answer is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.drift", description=__doc__)
    parser.add_argument("--why", default="", help="the reason, which the log keeps")
    why = parser.parse_args(arguments).why
    new = predicted()
    moved = moves(read_table()[1], new)
    print("\n".join(map(str, moved)) or "nothing moved by more than 1 %")
    if any(move.is_lost for move in moved):
        print("an answer turned into none: that is not accepted, whatever the reason")
        return 1
    if why.strip():
        write_table(new)
        with LOG.open("a", encoding="utf-8") as log:
            log.write(entry(moved, why))
    elif moved:
        print('accept it with: make drift WHY="the reason"')
    return 0


if __name__ == "__main__":
    sys.exit(main())
