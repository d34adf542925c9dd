"""``--fleet`` on the command line: what it prints, and what cannot work."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from tests.cli.shell import FAKE

FLEET = f'[[device]]\ntarget = "{FAKE}"\nlocal = true\n'


def fleet(folder: Path, text: str = FLEET) -> str:
    path = folder / "fleet.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.skipif(
    not importlib.util.find_spec("distributed"), reason="distributed (Dask) is not installed"
)
def test_a_report_of_every_network_and_device(
    nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(shutil.copy(nets / "known.db", tmp_path / "s.db"))
    asked = ["measure", str(nets / "a.onnx"), str(nets / "bad.onnx"), "--cells", "--fleet",
             fleet(tmp_path), "--store", store]  # fmt: skip
    assert cli.run(asked) == 2
    said = capsys.readouterr()
    assert f"a.onnx  on {FAKE}" in said.out and "sum of cells" in said.out
    assert any(line.split()[:1] == ["local"] for line in said.out.splitlines())
    assert "bad.onnx on" in said.err  # and it costs only itself
    assert cli.run([asked[0], asked[1], *asked[3:], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["networks"][0]["records"] == [] and document["networks"][0]["known"] > 0
    (device,) = document["devices"]
    assert (device["name"], device["targets"], device["cells"]) == ("local", [FAKE], 0)
    assert document["problems"] == []


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("[[device]]\nhost = 3\n", [], "Expected `str | null`, got `int` - at `$.device[0].host`"),
        (FLEET, ["--target", FAKE], "--target does not go with --fleet"),
        (FLEET, ["--host", "user@board"], "--host does not go with --fleet"),
    ],
)
def test_what_cannot_work_is_one_sentence(
    nets: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    more: list[str],
    words: str,
) -> None:
    file = fleet(tmp_path, text)
    assert cli.run(["measure", str(nets / "a.onnx"), "--fleet", file, *more]) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err
