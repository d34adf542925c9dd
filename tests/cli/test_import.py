"""``import`` as users call it: tables, logs of trtexec, packs, what another package reads."""

import json
import shutil
from pathlib import Path

import pytest

from hybridlat.engines.fusion.precision import in_precision
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.whole_networks import measured_networks
from hybridlat.graph.signature import sign
from hybridlat.onnx_io import read_network, to_onnx
from hybridlat.onnx_io.file import shipped_networks
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.cli.shell import call, run_import
from tests.fakes import fake_importer
from tests.networks import classifier

pytestmark = pytest.mark.usefixtures("folder")


FAKE_IMPORT = ("store", "import", "--from", "fake", "lines.txt", "--store", "s.db")
NO_FILE = (
    "there is no ONNX file of the network in nets (put NAME.onnx there, or name the file in a "
    "column onnx)"
)


def table(*names: str) -> None:
    lines = "".join(f"{name},t4/tensorrt-8.6/fp16,2,1.5,a page\n" for name in names)
    Path("t.csv").write_text("network,target,batch,latency_ms,source\n" + lines)


def test_rows_are_imported_once_and_the_rest_is_listed_by_reason() -> None:
    table("a", "a", "a", "b", "net", "c", "d", "e", "f", "f")
    words = ("t.csv", "--nets", "nets", "--target", "t4/tensorrt-8.6/fp32")
    first, again = run_import(*words), run_import(*words, "--json")
    assert first.exit_code == again.exit_code == 0, first.stderr
    assert first.stdout.startswith("1 of 1 records are new")
    document = json.loads(again.stdout)
    assert (document["rows"], document["read"]) == (10, 1)
    assert not any(document[name] for name in ("measurements", "signatures", "breakdowns"))
    assert document["targets"] == ["t4/tensorrt-8.6/fp16"]
    assert document["left_out"][0]["rows"][3] == ["t.csv, row 4", "b"]
    stated = "t4/tensorrt-8.6/fp32 are kept as they state it: t4/tensorrt-8.6/fp16"
    assert f"rows that state another target than {stated}" in first.stderr
    rows = "row 1: a (×3); t.csv, row 4: b; t.csv, row 6: c; t.csv, row 7: d; t.csv, row 8: e"
    assert f"9 rows left out: {NO_FILE}: t.csv, {rows}; and 1 more" in first.stderr
    with Store("s.db") as opened:
        assert opened.check() == []
    none = run_import("t.csv")
    assert "10 rows left out: the network's ONNX file is needed" in none.stderr
    assert isinstance(none.exception, InputError)
    assert "none of 10 rows could be imported" in str(none.exception)


def test_a_latency_that_nobody_expects_is_kept_and_named(folder: Path) -> None:
    target = "t4/tensorrt-8.6/fp16"
    rows = [f"net,{target},8,{ms}\n" for ms in (900, 0.1, 0.11)]
    rows += [f"net,{target},4,{ms}\n" for ms in (0.1, 0.11, 0.13)]
    Path("t.csv").write_text("".join(["network,target,batch,latency_ms\n", *rows]))
    done = run_import("t.csv", "--nets", "nets", "--json")
    document = json.loads(done.stdout)
    assert document["measurements"] == 6
    far, apart = document["surprising"]
    assert far.startswith(f"net on {target}: 900 ms where ") and far.endswith("; wrong unit?")
    assert apart == f"net on {target}: 100 µs and 900 ms contradict each other"
    asks = ("predict", "nets/net.onnx", "--target", target, "--batch", "8", "--store", "s.db")
    assert "3 records of the network contradict each other" in call(*asks, code=3).out
    with Store("s.db") as opened:
        (taught,) = measured_networks(opened, Target.parse(target))
        assert taught.latency_us == 110.0  # the middle one; what contradicts itself teaches nothing
        opened.export("packs", source="a page", licence="")
    (pack,) = (folder / "packs").iterdir()
    words = ("packs", "--json", "--store", "t.db")
    assert json.loads(run_import(*words).stdout)["targets"] == [target]
    known = run_import(str(pack), "--store", "u.db")
    assert far in known.stderr  # of packs too, before they are known


def test_several_files_a_mapping_and_a_default_target(folder: Path) -> None:
    (folder / "u.csv").write_text("net,ms\nnet,3\n")
    (folder / "v.csv").write_text("net,ms\nnet,4\n")
    (folder / "map.toml").write_text("[columns]\nlatency='ms'\n[units]\nlatency='ms'\n")
    options = ("--nets", "nets", "--columns", "map.toml", "--target", "pixel9/torch-2.4/fp32")
    done = run_import("u.csv", "v.csv", *options)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("2 of 2 records are new")
    assert "pixel9 has no data sheet: write " in done.stderr
    table = "network,device,latency_ms\nnet,Tesla V100 Ultra,1\n"
    (folder / "w.csv").write_text(table)
    done = run_import("w.csv", "--nets", "nets", "--target", "t4/torch-2.4/fp32")
    assert "w.csv, row 1: Tesla V100 Ultra is v100, a part of it or another" in done.stderr
    done = run_import("w.csv", "--nets", "nets", "--target", "Orin/tensorrt-8.6/fp16")
    assert "'Orin' is the chip of orin-agx, orin-agx-32gb, orin-nano" in str(done.exception)


@pytest.mark.parametrize("target", ["orin-nano/tensorrt/fp16", "t4/tensorrt-8.6/fp16"])
def test_imports_and_plans_have_the_cells_of_predictions(folder: Path, target: str) -> None:
    net = str(shipped_networks()["resnet18"])
    Path("t.csv").write_text(f"network,target,latency_ms\nresnet18,{target},2\n")
    with Store("s.db") as opened:  # what an older release made of the network
        old = Breakdown(
            Target.parse(target), "resnet18", sign(read_network(net)).hash, ((32 * "a", 1),)
        )
        opened.add_breakdowns([old])
    assert run_import("t.csv", "--nets", str(Path(net).parent)).exit_code == 0
    call("plan", net, "--target", target, "-o", "plan", "--store", "other.db")
    (planned,) = json.loads((folder / "plan" / "manifest.json").read_text())["breakdowns"]
    body = call("predict", net, "--target", target, "--json", "--store", "other.db").body
    with Store("s.db") as opened:
        (imported,) = measured_networks(opened, old.target)
    cells = {cell["signature"] for cell in body["cells"]}
    assert cells == {*imported.cells} == {key for key, _ in planned["cells"]}


def test_what_another_package_reads_is_imported_once_or_named_where_it_fails(folder: Path) -> None:
    (folder / "lines.txt").write_text("10 11 -1 nan")
    first, again = (call(*FAKE_IMPORT, "--json").body for _ in range(2))
    counts = {"read": 2, "measurements": 2, "breakdowns": 0, "signatures": 1}
    counts["skipped"] = {"latency is not a positive number": 2}  # type: ignore[assignment]
    assert first == counts | {"targets": [str(fake_importer.TARGET)], "surprising": []}
    assert again == {**first, "measurements": 0, "signatures": 0}
    (folder / "lines.txt").write_text("10 -1")
    assert "1 row left out: latency is not a positive number" in call(*FAKE_IMPORT).err
    (folder / "lines.txt").write_text("ten")
    failure = call(*FAKE_IMPORT, code=2).err
    assert "importer fake of tests.fakes.fake_importer failed over lines.txt" in failure
    assert "ValueError: could not convert string to float: 'ten'" in failure


def test_each_kind_is_known_by_its_look(folder: Path) -> None:
    table("net")
    words = ("t.csv", "--nets", "nets")
    assert run_import(*words).stdout.startswith("1 of 1 records are new")
    assert run_import("--from", "networks", *words).stdout.startswith("0 of 1 records")
    with Store("s.db") as opened:
        opened.export("packs", source="a page", licence="")
    (pack,) = (folder / "packs").iterdir()
    for path in ("packs", str(pack)):
        assert run_import(path, "--json").exit_code == 0
    (folder / "net.log").write_text("no times")
    assert "1 row left out: the log states no median" in run_import("net.log").stderr
    refused = run_import("packs", "t.csv").exception
    assert "these are packs (packs) and tables (t.csv): import each kind" in str(refused)
    call("plan", "nets/net.onnx", "--target", "t4/tensorrt-8.6/fp16", "-o", "plan")
    assert "results" in str(run_import("plan").exception)
    manifest = json.loads((folder / "plan" / "manifest.json").read_text())
    line = {"kind": "board", "format": 1, "board_id": "b", "at": "2026-11-21T10:00:00Z"}
    line |= {"plan": manifest["plan"], "board": {"engine": "tensorrt", "engine_version": "8.6"}}
    (folder / "plan" / "results.jsonl").write_text(json.dumps(line) + "\n{NaN}\n")
    assert "holds no whole line of a result: copy it" in str(run_import("plan").exception)
    shutil.copytree("plan", "boards/one")
    results = folder / "boards" / "one" / "results.jsonl"
    results.rename(results.with_suffix(".jsonl.txt"))  # as browsers save it
    assert "boards/one holds no whole line" in str(run_import("boards").exception)
    (folder / "plan" / "results.jsonl").rename(folder / "results.jsonl")
    assert "part of a plan: import the plan's folder" in str(run_import("results.jsonl").exception)
    assert "--columns is for tables, not for plans" in run_import("plan", "--columns", "c").stderr
    (folder / "plan" / "manifest.json").unlink()  # its lists are texts, as logs are
    assert "a plan without its manifest.json" in str(run_import("plan").exception)
    assert call("store", "import", "packs", "--store", "t.db").out.startswith("1 new record, with")


LOG = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=net.onnx --fp16{}
[I] Selected Device: {}
[I] SMs: {}
[I] Input binding for {} with dimensions 2x3x32x32 is created.
[I] GPU Compute Time: min = 1.0 ms, max = 1.9 ms, mean = 1.3 ms, median = 1.2 ms
"""


def test_logs_that_contradict_the_target_or_time_something_else(folder: Path) -> None:
    (folder / "logs").mkdir()
    dla = " --useDLACore=0"
    for name, words, units in (("a", "", 8), ("b", "", 16), ("c", dla, 8), ("d", dla, 8)):
        (folder / "logs" / f"{name}.log").write_text(LOG.format(words, "Orin", units, "x"))
    nano = run_import("logs", "--nets", "nets", "--target", "orin-nano/tensorrt/fp16")
    assert nano.stdout.startswith("1 of 1 records are new"), nano.output
    assert "  orin-nano/tensorrt-8.6/fp16" in nano.stdout
    assert "c.log, line 1: --useDLACore=0; d.log, line 1: --useDLACore=0" in nano.stderr
    assert isinstance(nano.exception, InputError)
    assert str(nano.exception).startswith(
        "b.log, line 1: the log contradicts --target: 'Orin' with 16 multiprocessors is orin-agx, "
        "not orin-nano"
    )
    assert "orin-agx/tensorrt-8.6/fp16" in run_import("logs/b.log", "--nets", "nets").stdout
    asks = ("nets/net.onnx", "--target", "orin-agx/tensorrt-8.6/fp16", "--batch", "2")
    shown = call("predict", *asks, "--store", "s.db").out
    assert "measured (1 run, from an imported log)" in shown
    (folder / "logs" / "t.csv").write_text("network\n")
    assert "holds tables and logs of trtexec" in str(run_import("logs", "--nets", "nets").exception)
    alone = run_import("logs/c.log", "--nets", "nets")
    assert (alone.stdout, str(alone.exception)[:30]) == ("", "none of 1 row could be importe")


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("float16", "fp16")])
def test_a_typed_network_has_its_file_s_precision(folder: Path, dtype: str, precision: str) -> None:
    network = classifier(8, 32)
    if dtype == "float16":
        network = in_precision(network, "float16")
    (folder / "nets" / "net.onnx").write_bytes(to_onnx(network, seed=None))
    text = LOG.format("", "NVIDIA L4", 58, network.inputs[0])
    (folder / "a.log").write_text(text.replace(" --fp16", "").replace("v8601", "v110201"))
    done = run_import("a.log", "--nets", "nets")
    assert f"  l4/tensorrt-11.2/{precision}\n" in done.stdout, done.output
    other = run_import("a.log", "--nets", "nets", "--target", "l4/tensorrt/int8")
    assert f"contradicts --target: {precision} in net.onnx, not int8" in str(other.exception)
