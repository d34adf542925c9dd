"""The README's first lines of Python, saved as a script, on a machine that no pack knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)

# Read by every Python that starts with its folder on the path, the measuring process too.
UNHEARD_OF = """\
from hybridlat.engines import host
host.cpu_device = lambda: "unheard-of-1"
from hybridlat.measuring import schedule
schedule.ON_DEMAND = schedule.MeasurementConfig(rounds=1, processes=1, max_processes=1)
"""


def test_the_first_example_measures_what_nobody_knows(tmp_path: Path) -> None:
    example = PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert "hybridlat.predict(" in example and "__main__" not in example
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    (tmp_path / "data").symlink_to(ROOT / "data")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").write_text(UNHEARD_OF)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(elsewhere), str(ROOT)]),
            "XDG_DATA_HOME": str(tmp_path / "share"), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        },
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "(measured)" in done.stdout
    told = subprocess.run(
        [sys.executable, "-m", "hybridlat", "store", "stats"], cwd=tmp_path, capture_output=True,
        text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path / "share")},
    )  # fmt: skip
    assert "unheard-of-1/" in told.stdout
