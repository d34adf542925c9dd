"""``store import --from networks`` and ``--from trtexec`` as users call them."""

import json
from pathlib import Path

import pytest

from hybridlat.onnx_io import to_onnx
from tests.cli.shell import process
from tests.networks import classifier

HEAD = "network,target,batch,latency_ms,source\n"
ROW = "net,t4/tensorrt-8.6/fp16,2,1.5,a page\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "net.onnx").write_bytes(to_onnx(classifier(8, 32), seed=None))
    (tmp_path / "t.csv").write_text(HEAD + ROW + "other,t4/tensorrt-8.6/fp16,2,1.5,\n")
    return tmp_path


COMMAND = ("store", "import", "--from", "networks", "--store", "s.db")


def test_rows_are_imported_once_and_the_rest_is_listed(folder: Path) -> None:
    command = (*COMMAND, "t.csv", "--nets", "nets")
    first, again = process(*command, cwd=folder), process(*command, "--json", cwd=folder)
    assert first.returncode == again.returncode == 0, first.stderr
    assert first.stdout.startswith("1 of 1 records are new")
    document = json.loads(again.stdout)
    assert (document["rows"], document["read"]) == (2, 1)
    assert not any(document[name] for name in ("measurements", "signatures", "breakdowns"))
    assert document["targets"] == ["t4/tensorrt-8.6/fp16"]
    assert document["left_out"][0]["rows"] == [["t.csv, row 2", "other"]]
    assert "t4/tensorrt-8.6/fp16" in first.stdout
    assert (
        "1 row left out: there is no ONNX file of the network in nets (put NAME.onnx there, or "
        "name the file in a column onnx): t.csv, row 2: other"
    ) in first.stderr
    assert process("store", "check", "--store", "s.db", cwd=folder).returncode == 0


def test_rows_that_say_the_same_are_named_once(folder: Path) -> None:
    rows = [*["other"] * 3, "b", "c", "d", "e", "f", "f"]
    lines = "".join(f"{name},t4/tensorrt-8.6/fp16,1\n" for name in rows)
    (folder / "many.csv").write_text("network,target,latency_ms\n" + lines)
    done = process(*COMMAND, "many.csv", "--nets", "nets", cwd=folder)
    assert (
        ": many.csv, row 4: b; many.csv, row 5: c; many.csv, row 6: d; many.csv, row 7: e; "
        "many.csv, row 8 and 1 other: f; and 3 more"
    ) in done.stderr
    assert "9 rows left out" in done.stderr


def test_nothing_imported_ends_with_two(folder: Path) -> None:
    done = process(*COMMAND, "t.csv", cwd=folder)
    assert done.returncode == 2
    assert "2 rows left out: the network's ONNX file is needed" in done.stderr
    assert "none of 2 rows could be imported" in done.stderr


def test_several_files_a_mapping_and_a_default_target(folder: Path) -> None:
    (folder / "u.csv").write_text("net,ms\nnet,3\n")
    (folder / "v.csv").write_text("net,ms\nnet,4\n")
    (folder / "map.toml").write_text("[columns]\nlatency='ms'\n[units]\nlatency='ms'\n")
    done = process(
        *COMMAND, "u.csv", "v.csv", "--nets", "nets", "--columns", "map.toml",
        "--target", "pixel9/torch-2.4/fp32", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 of 2 records are new")
    assert "pixel9 has no data sheet" in done.stderr


def test_a_log_of_trtexec(folder: Path) -> None:
    (folder / "net.log").write_text(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=net.onnx --fp16\n"
        "[I] Selected Device: Tesla T4\n[I] GPU Compute Time: min = 1 ms, median = 1.5 ms\n"
    )
    done = process(
        "store", "import", "--from", "trtexec", "net.log", "--nets", "nets", "--store", "s.db",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 of 1 records are new")
