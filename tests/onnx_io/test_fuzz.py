"""Whatever file it is given, hybridlat answers with an estimate or a sentence, and in time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNT = 240
SLICES = 4
SLICE_TIMEOUT_S = 400

PROGRAM = """
import sys, time
from pathlib import Path
from hybridlat.api import Predictor
from hybridlat.errors import HybridlatError
from tests.onnx_io.fuzz import corpus

number, slices, count, store = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
codes = {}
with Predictor(store=store, measure="never") as predictor:
    for place, (name, data) in enumerate(corpus(count)):
        if place % slices != number:
            continue
        print("doing", name, flush=True)
        started = time.process_time()
        try:
            estimate = predictor.predict(data, name=name)
            code = 3
            named = [n for cell in estimate.cells for n in cell.nodes]
            assert len(named) == len(set(named)), name
        except HybridlatError as error:
            code = error.exit_code
            assert str(error) and "\\n" not in str(error), (name, str(error))
            assert len(str(error)) < 900, (name, len(str(error)))
        codes[code] = codes.get(code, 0) + 1
        # Of its own time: what else the machine does is not the file's fault.
        assert time.process_time() - started < 30, name
print("codes", sorted(codes.items()))
"""


def test_no_traceback_no_crash_no_hang(tmp_path: Path) -> None:
    """In processes of their own, so that an engine that crashes is seen as such."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(i), str(SLICES), str(COUNT),
             f"sqlite:///{tmp_path / f'{i}.db'}"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i in range(SLICES)
    ]  # fmt: skip
    seen: set[str] = set()
    try:
        for process in running:
            output, _ = process.communicate(timeout=SLICE_TIMEOUT_S)
            assert process.returncode == 0, output[-3000:]
            seen |= {code for code in ("(2,", "(3,") if code in output.splitlines()[-1]}
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert seen == {"(2,", "(3,"}  # the corpus holds both broken files and sound ones
