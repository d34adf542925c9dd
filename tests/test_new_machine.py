"""The README's first lines of Python, saved as a script, on a machine that no pack knows."""

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT, blocks

# Read by every Python that starts with its folder on the path, the measuring process too.
QUICK = """\
from hybridlat.measuring import schedule
schedule.ON_DEMAND = schedule.MeasurementConfig(rounds=1, processes=1, max_processes=1)
"""


def test_the_first_example_measures_what_nobody_knows(tmp_path: Path) -> None:
    example = next(b.text for b in blocks(ROOT / "README.md") if b.language == "python")
    assert "hybridlat.predict(" in example and "__main__" not in example
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(QUICK)
    (tmp_path / "cpuinfo").write_text("model name : Unheard of 1\n")
    (tmp_path / "data").symlink_to(ROOT / "data")

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
            "HYBRIDLAT_IDENTITY": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "share"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip

    done = python("example.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "unheard-1/" in python("-m", "hybridlat", "store", "stats").stdout
