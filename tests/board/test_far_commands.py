"""``--host``, ``plan`` and ``import`` from the command line, down to a prediction."""

import json
import shlex
from pathlib import Path

import pytest

from hybridlat.cli import main as cli
from hybridlat.onnx_io import to_onnx
from tests.board.conftest import RunScript
from tests.networks import classifier

TARGET = "orin-agx/tensorrt/fp16"
THERE = "orin-agx/tensorrt-8.6/fp16"
TABLE = "orin-nano/tensorrt-8.6.1/fp16"  # a published table's name of an engine


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HYBRIDLAT_STORE", f"{tmp_path}/store.db")
    path = tmp_path / "net.onnx"
    path.write_bytes(to_onnx(classifier(8), seed=1))
    return path


def sources(net: Path, capsys: pytest.CaptureFixture[str], target: str = THERE) -> set[str]:
    """Where the cells of a prediction come from."""
    cli.run(["predict", str(net), "--target", target, "--json", "--measure", "never"])
    return {cell["source"] for cell in json.loads(capsys.readouterr().out)["cells"]}


def test_measure_on_a_board_and_predict_from_its_records(
    far: Path, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["measure", str(net), "--host", "user@board"]
    assert cli.run([*there, "--target", TARGET, "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)  # alone on standard output
    assert document["target"] == THERE
    assert document["latency_us"] > 0
    assert {record["kind"] for record in document["records"]} == {"network", "cell"}
    assert "user@board: measuring with trtexec" in printed.err
    assert "model 1 of" in printed.err
    assert not list((net.parent / "cache" / "hybridlat" / "plans").iterdir())
    # All of it is known now; whole networks are measured whenever they are asked for.
    cli.run([*there, "--target", THERE, "--cells"])
    printed = capsys.readouterr()
    assert f"net.onnx  on {THERE}" in printed.out
    assert "sum of cells" in printed.out and "model 1 of" not in printed.err
    assert sources(net, capsys) == {"measured"}


def test_plan_run_import_predict_by_hand(
    net: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, run_sh: RunScript
) -> None:
    folder = tmp_path / "plan"
    assert cli.run(["plan", str(net), "-o", str(folder), "--target", TARGET]) == 0
    assert run_sh(folder, "8.6").returncode == 0
    assert cli.run(["import", str(folder), "--json"]) == 0
    texts = capsys.readouterr().out.splitlines()
    first = json.loads("\n".join(texts[texts.index("{") :]))
    assert first["targets"] == [THERE]
    assert first["new"] == first["records"] > 1
    assert cli.run(["import", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("0 of ")  # nothing is kept twice
    assert sources(net, capsys) == {"measured"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (f"--host user@elsewhere --target {TARGET}", 3, "user@elsewhere cannot be reached"),
        ("--host user@board", 2, "needs --target"),
        (f"--host -oProxyCommand=x --target {TARGET}", 2, "is no host"),
        (f"--host user@board --target {TARGET} --runner worker", 3, "there is no NVIDIA driver"),
        ("--host user@board --target cpu/onnxruntime/fp32", 2, "plans are for tensorrt"),
        (f"--host user@board --target {TABLE}", 2, "measure orin-nano/tensorrt/fp16"),
        ("--time-limit 1s", 2, "--time-limit goes with --host"),
        ("--runner trtexec", 2, "--runner goes with --host"),
    ],
)
@pytest.mark.usefixtures("far")
def test_what_cannot_work_is_one_sentence(
    net: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, words: str
) -> None:
    assert cli.run(["measure", str(net), *arguments.split()]) == code
    printed = capsys.readouterr()
    last = printed.err.splitlines()[-1]
    assert printed.out == "" and last.startswith(("hybridlat: ", "Error: ")) and words in last


@pytest.mark.parametrize(
    ("target", "advised"),
    [
        ("orin-nano/tensorrt/fp16", "orin-nano/tensorrt/fp16"),  # predicted by a table's newest
        ("orin-nano/tensorrt-trtutils/fp16", "orin-nano/tensorrt/fp16"),
        ("orin-nano/tensorrt-8.6/fp16", "orin-nano/tensorrt-8.6/fp16"),
    ],
)
def test_the_commands_that_are_advised_end_well(
    net: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, target: str, advised: str
) -> None:
    cli.run(["predict", str(net), "--target", target, "--json"])
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    fixes = [
        r["fix"] for r in remarks if r["fix"].startswith(("hybridlat measure", "hybridlat plan"))
    ]
    assert len(fixes) == 2 and all(f"--target {advised} " in f"{fix} " for fix in fixes)
    (plan,) = [shlex.split(fix)[1:] for fix in fixes if " plan " in fix]
    assert cli.run([*plan[:-1], str(tmp_path / "plan")]) == 0


def test_a_plan_is_not_written_for_a_tables_name_nor_over_another_file(
    net: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = ["plan", str(net), "-o", str(tmp_path), "--target"]
    assert cli.run([*plan, TABLE]) == 2
    assert "measure orin-nano/tensorrt/fp16" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{}")
    assert cli.run([*plan, TARGET]) == 2
    assert "holds another plan" in capsys.readouterr().err
