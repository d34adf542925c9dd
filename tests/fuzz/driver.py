"""Seeded mutations of what people bring, each tried in a child process; what is no answer is named.

``make fuzz KIND=networks SEED=7 COUNT=10000``, or of a seed the inputs of the further numbers:
``python -m tests.fuzz.driver networks 7 0 4005 2607``.

A kind is a module of this folder with two functions. ``made(number, rng)`` gives an input with a
label. ``attempt(label, data, folder)`` hands it to hybridlat, with an empty folder for its files,
and returns "answered", "refused", or "wrong" with words behind it. A HybridlatError of one short
line is a refusal; any other exception is wrong, and so is what ends the process, takes more than a
minute, or more than two gigabytes.
"""

import contextlib
import importlib
import os
import random
import resource
import select
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hybridlat.errors import HybridlatError
from tests.networks import ROOT

MOST_BYTES = 2 << 30
ADDRESS_BYTES = 12 << 30  # more than any answer maps; less than the machine has
MOST_SECONDS = 60.0
LONGEST_MESSAGE = 900
SELF, CHILDREN = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


def main(arguments: Sequence[str]) -> int:
    """Try ``COUNT`` inputs of ``SEED``, or the further numbers; 1 where one ends in no answer."""
    kind, seed, *counts = arguments
    count, *numbers = map(int, counts)
    codes: Counter[str] = Counter()
    for number, outcome in outcomes(kind, int(seed), numbers or list(range(count))):
        code = outcome.split()[0].rstrip(":")
        codes[code] += 1
        if code == "wrong":
            print(f"WRONG {kind} {seed} 0 {number}: {outcome}", flush=True)
    print(", ".join(f"{count} {code}" for code, count in sorted(codes.items())))
    return 1 if codes["wrong"] else 0


def outcomes(kind: str, seed: int, numbers: list[int]) -> Iterator[tuple[int, str]]:
    """How each number ends; a child that dies, hangs or grows is replaced behind its input."""
    left = list(numbers)
    while left:
        words = [sys.executable, "-m", "tests.fuzz.driver", "--child", kind, str(seed)]
        words += map(str, left)
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout is not None
            while left:
                ready, _, _ = select.select([child.stdout], [], [], MOST_SECONDS)
                line = child.stdout.readline().decode() if ready else ""
                if line:
                    yield left.pop(0), line.partition(" ")[2].strip()
                    continue
                if not ready:
                    child.kill()
                code = child.wait()
                if code or not ready:  # a child that has grown ends by itself, with 0
                    end = f"exit code {code}" if ready else f"no answer in {MOST_SECONDS:.0f} s"
                    yield left.pop(0), f"wrong {end}"
                break


def child(kind: str, seed: int, numbers: list[int]) -> None:
    """Try the inputs one by one, a line each."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print
    module = importlib.import_module(f"tests.fuzz.{kind}")
    for number in numbers:
        label, data = module.made(number, random.Random(f"{seed}/{number}"))
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = module.attempt(label, data, Path(folder))
            except HybridlatError as error:
                outcome = refusal(error)
            except Exception as error:  # noqa: BLE001  the very thing that is looked for
                traceback.print_exception(error)
                outcome = f"wrong {type(error).__name__}: {error}"
        peak_bytes = _peak_bytes()
        if peak_bytes > MOST_BYTES:
            outcome = f"wrong {peak_bytes / (1 << 30):.1f} GB"
        print(number, *outcome.split(), f"[{label}]", file=answers)
        if peak_bytes > MOST_BYTES:
            return


def _peak_bytes() -> int:
    """The most memory that this process or one that it has started has held, also if it has ended.

    Every process counts by itself, as what a library takes is in one of them.
    """
    mine, ended = (resource.getrusage(who).ru_maxrss for who in (SELF, CHILDREN))
    peaks = [mine, ended]
    for listing in Path("/proc/self/task").glob("*/children"):
        for number in listing.read_text().split():
            with contextlib.suppress(OSError):  # it has just ended
                status = Path(f"/proc/{number}/status").read_text()
                peaks += [int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line]
    return max(peaks) * 1024


def refusal(error: Exception) -> str:
    """Return ``refused`` where the message is one line that a person reads."""
    text = str(error)
    return "refused" if is_a_sentence(text) else f"wrong message: {text[:300]!r}"


def is_a_sentence(text: str) -> bool:
    return 0 < len(text) <= LONGEST_MESSAGE and text.isprintable()


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2], int(sys.argv[3]), [int(number) for number in sys.argv[4:]])
    else:
        sys.exit(main(sys.argv[1:]))
