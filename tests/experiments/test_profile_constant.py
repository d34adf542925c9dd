"""The profile experiment on made-up engines whose constant is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "07_profile_constant.py"
HEAD = "model,precision,device,n_layers,sum_layers_avg_us,net_median_us,net_mean_us\n"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--data", str(folder)], capture_output=True, text=True,
        timeout=60, env=dict(os.environ),
    )  # fmt: skip


def test_the_constant_of_other_networks_mends_the_sum(tmp_path: Path) -> None:
    rows = [("a", 50, 1000.0), ("b", 80, 700.0), ("b.qat", 70, 400.0)]
    text = "".join(f"{n},fp16,NVIDIA X,{k},{m + 2.5 * k},{m},\n" for n, k, m in rows)
    (tmp_path / "networks.csv").write_text(HEAD + text)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    last = [word.strip() for word in done.stdout.splitlines()[-1].split("|")]
    assert last[1:3] == ["X", "3"]
    assert float(last[4]) == 2.5
    assert float(last[5]) == float(last[6]) == 0.0
    assert float(last[3]) > 10


def test_without_the_data_it_says_where_it_looked(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
