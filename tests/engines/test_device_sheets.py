"""Data sheets: what is shipped holds against arithmetic, what is wrong is named, a user has own."""

import re
import time
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybridlat.engines import device_sheets, host
from hybridlat.errors import TargetError
from hybridlat.schema.names import device_name, user_folder
from hybridlat.schema.target import Device, Target

SHEETS = Path(__file__).resolve().parents[2] / "data" / "devices"
GPUS = [name for name in device_sheets.names() if device_sheets.load(name).kind == "gpu"]

# Operations of one multiprocessor in one cycle, a multiply-add counting two: tensor cores with
# dense operands and FP32 accumulation from Volta on, vector instructions before.
PER_CYCLE = {
    "3.5": {"fp32": 384}, "3.7": {"fp32": 384}, "5.0": {"fp32": 256}, "5.2": {"fp32": 256},
    "5.3": {"fp32": 256, "fp16": 512}, "6.0": {"fp32": 128, "fp16": 256},
    "6.1": {"fp32": 256, "int8": 1024}, "6.2": {"fp32": 256, "fp16": 512},
    "7.0": {"fp32": 128, "fp16": 1024, "int8": 512},
    "7.2": {"fp32": 128, "fp16": 1024, "int8": 2048},
    "7.5": {"fp32": 128, "fp16": 1024, "int8": 2048},
    "8.0": {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    "8.6": {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    "8.7": {"fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    "9.0": {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "int8": 8192},
    "10.0": {"fp32": 256, "tf32": 4096, "fp16": 8192, "bf16": 8192, "int8": 16384},
}  # fmt: skip
PER_CYCLE |= dict.fromkeys(("8.9", "12.0", "12.1"), PER_CYCLE["8.6"]) | {"11.0": PER_CYCLE["10.0"]}
# Turing's small chips multiply in FP16 by vector instructions.
WITHOUT_TENSOR_CORES = {"fp32": 128, "fp16": 256, "int8": 512}
# GeForce boards accumulate in FP32 at half the rate; servers' boards that share it, throughout.
GEFORCE = {name for name in GPUS if re.match(r"rtx-(?!pro-|.*-ada$)", name)}
TENSOR = ("tf32", "fp16", "bf16", "int8")
SLOWED: dict[str, dict[str, int]] = {n: dict.fromkeys(TENSOR[:3], 2) for n in GEFORCE}
SLOWED |= {name: dict.fromkeys(TENSOR, 2) for name in ("a10g", "l20", "l40")}
SLOWED["h20"] = dict.fromkeys(TENSOR, 4)
ARCHITECTURES = {
    "3": "kepler", "5": "maxwell", "6": "pascal", "7": "volta", "7.5": "turing", "8": "ampere",
    "8.9": "ada", "9": "hopper", "10": "blackwell", "11": "blackwell", "12": "blackwell",
}  # fmt: skip


def sheet(name: str) -> dict[str, Any]:
    """What a sheet states, and what the one that it is based on adds, which is based on none."""
    stated = tomllib.loads((SHEETS / f"{name}.toml").read_text(encoding="utf-8"))
    if "based_on" in stated:
        base = sheet(stated["based_on"])
        assert "based_on" not in base
        stated = base | {"sources": {}} | stated
    return stated


@pytest.mark.parametrize("name", device_sheets.names())
def test_every_sheet_reads_and_makes_sense(name: str) -> None:
    device, stated = device_sheets.load(name), sheet(name)
    assert 0.1e12 < device.peak("fp32") < 200e12
    assert device.peak("fp16") >= device.peak("fp32")
    assert 10e9 < device.bandwidth_bytes_per_s < 10e12
    assert 1 <= device.units <= 200
    assert list(device.cache_bytes) == sorted(device.cache_bytes)
    assert len(device.cache_bytes) >= 2
    product = stated["bus_bits"] / 8 * stated["data_rate_gbit_per_s"]
    assert stated["bandwidth_gb_per_s"] == pytest.approx(product, rel=0.01)


@pytest.mark.parametrize("name", device_sheets.names())
def test_every_number_has_a_source(name: str) -> None:
    """``source`` is that of all which [sources] does not name; that names nothing else."""
    stated = sheet(name)
    texts = [stated["source"]]
    for key, source in stated["sources"].items():
        assert key in stated
        if isinstance(source, dict):
            assert set(source) <= set(stated[key])
        texts += source.values() if isinstance(source, dict) else [source]
    assert all(len(text) > 5 for text in texts)
    if stated["kind"] == "gpu" and "based_on" not in stated:
        assert stated["sources"]["launch_us"].startswith("typical, from no data sheet")


@pytest.mark.parametrize("name", [name for name in GPUS if "sustained_tflops" in sheet(name)])
def test_what_matrix_products_reach_is_a_fair_part_of_the_peak(name: str) -> None:
    """GeForce boards may go above the rate with FP32 accumulation that is their peak here."""
    device = device_sheets.load(name)
    assert set(device.sustained_flops) <= set(device.peak_flops)
    for precision, flops in device.sustained_flops.items():
        assert 0.35 < flops / device.peak_flops[precision] < 1.2, precision
        assert device.sustained_share(precision) <= 1.0


def test_what_nobody_measured_is_taken_to_reach_its_peak() -> None:
    device = device_sheets.load("t4")
    assert device.sustained_share("fp16") == device.sustained_share("amp") < 0.4
    # The same tensor cores under the same power limit.
    assert device.sustained_share("int8") == device.sustained_share("fp16")
    # The sheet knows no BF16: it computes at FP32's rate, and is held back as that is.
    assert device.sustained_share("bf16") == device.sustained_share("fp32") < 1.0
    assert device_sheets.load("l4").sustained_share("fp16") == 1.0


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_states_all_and_its_peaks_are_its_multiprocessors_times_its_clock(name: str) -> None:
    device, stated = device_sheets.load(name), sheet(name)
    small = re.match("gtx-16|t1000|t[46]00", name)
    rates = WITHOUT_TENSOR_CORES if small else PER_CYCLE[device.compute_capability]
    major = device.compute_capability.split(".")[0]
    built_as = ARCHITECTURES.get(device.compute_capability, ARCHITECTURES.get(major))
    assert device.architecture == built_as
    assert 2**30 <= (device.memory_bytes or 0) < 2**40 and 1 < (device.launch_us or 0) < 20
    assert stated["cores_per_unit"] * 2 == rates["fp32"]
    peaks = dict(device.peak_flops)
    twice = pytest.approx(2 * peaks["fp16"], rel=0.006) if name in GEFORCE else None
    assert peaks.pop("fp16_in_fp16", None) == twice
    assert set(peaks) <= set(rates)
    tensor_hz = stated.get("tensor_clock_mhz", stated["clock_mhz"]) * 1e6
    assert 0.85 * device.clock_hz <= tensor_hz <= device.clock_hz
    for precision, flops in peaks.items():
        hertz = device.clock_hz if precision == "fp32" else tensor_hz
        rate = rates[precision] / SLOWED.get(name, {}).get(precision, 1)
        assert flops == pytest.approx(rate * device.units * hertz, rel=0.03), precision


@pytest.mark.parametrize("name", [name for name in GPUS if "based_on" in sheet(name)])
def test_a_mode_or_a_slice_is_no_quicker_a_unit_than_its_clock(name: str) -> None:
    device, base = device_sheets.load(name), device_sheets.load(sheet(name)["based_on"])
    share = device.units * device.clock_hz / (base.units * base.clock_hz)
    for rates in ("peak_flops", "sustained_flops"):
        whole = {p: flops * share for p, flops in getattr(base, rates).items()}
        assert getattr(device, rates) == pytest.approx(whole)
    if "-mig-" in name:
        part = device.bandwidth_bytes_per_s / base.bandwidth_bytes_per_s
        assert name.startswith(base.name) and device.units <= base.units
        assert part == pytest.approx(device.cache_bytes[-1] / base.cache_bytes[-1], rel=0.01)
        assert device.memory_bytes == pytest.approx((base.memory_bytes or 0) * part, rel=0.03)


@pytest.mark.parametrize("name", ["abacus", "../devices/v100", "", ".", "v100\n"])
def test_an_unknown_device_names_the_choices_and_no_name_leaves_the_folder(name: str) -> None:
    with pytest.raises(TargetError, match=r"has no data sheet: choose one of .*v100"):
        device_sheets.load(name)


GOOD = """
title = "A board"
kind = "gpu"
bandwidth_gb_per_s = 900
units = 80  # streaming multiprocessors
clock_mhz = 1530
cache_kib = [128, 6144]
source = "its data sheet"

[peak_tflops]
fp32 = 15.7
fp16 = 125
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("units = 80", "", "missing required field `units`"),
        ("units = 80", f"units = {10**400}", "units is too large, but must be"),
        ("units = 80", "units = true", "got `bool` - at `units`"),
        ("units = 80", "unit = 80", "unknown field `unit`"),
        ("900", "nan", "bandwidth_gb_per_s is nan, but must be 0.1 to 1e"),
        ("fp16 = 125", "fp16 = 1e-300", "peak_tflops.fp16 is 1e-300, but must be"),
        ("[peak_tflops]", "bus_bits = 0\n[peak_tflops]", "bus_bits is 0, but must be"),
        ('"A board"', "[" * 9000, "not TOML"),
        ('"gpu"', f'"{"x" * 9000}"', "Invalid enum value 'xxx"),
        ("fp16 =", '"\\u001b" =', r"peak_tflops knows no \\x1b"),
        ("1530", "0", "clock_mhz is 0"),
        ("900", "0.9", r"bandwidth_gb_per_s is 1.74e\+04 FLOP a byte, and GPUs have 0.5 to 1000"),
        ("1530", "1.53", r"clock_mhz\) is 1.28e\+05 FLOP of a unit in a cycle"),
        ("units = 80", "units = 5120", "in a cycle, and GPUs have 8 to 2000: one of these"),
        ("15.7", "15700", r"clock_mhz\) is 1.28e\+05 FLOP"),
        ("units = 80", "units = 80\nmemory_gb = 16384", "19.5 seconds to read it"),
        ("[128, 6144]", "128", "got `int` - at `cache_kib`"),
        ("[128, 6144]", "[128, 0]", r"cache_kib is 0, but must be 1 to 1\.07374e\+09"),
        ("fp32 = 15.7", "", r"\[peak_tflops\] with at least fp32"),
        ("fp16 =", "half =", "peak_tflops knows no half"),
        ("units = 80", "based_on = 'abacus'", "it is based on 'abacus', which is no shipped"),
        ("units = 80", "based_on = 'v100'\nunits = 'x'", "got `str` - at `units`"),
        ("fp16 = 125", "[sustained_tflops]\nfp16_in_fp16 = 9", "knows no fp16_in_fp16"),
        ("fp16 = 125", "fp16 = 125\n[sources]\nunits = 3", "at `sources"),
    ],
)
def test_a_broken_sheet_is_one_sentence(old: str, new: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    assert old in GOOD
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(TargetError, match=says) as caught:
        device_sheets.read(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be read"):
        device_sheets.read(tmp_path / "absent.toml")
    with pytest.raises(TargetError, match=r"read .it is no regular file"):
        device_sheets.read("/dev/zero")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(TargetError, match=r"read .it is larger than 1 MiB"):
        device_sheets.read(tmp_path / "large.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TargetError, match="not TOML"):
        device_sheets.read(str(tmp_path / "binary.toml"))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's own sheets, empty."""
    folder = tmp_path / "config" / "devices"
    folder.mkdir(parents=True)
    monkeypatch.setattr("platformdirs.user_config_path", lambda _: tmp_path / "config")
    return folder


SHORT = """
kind = "gpu"
bandwidth_gb_per_s = 256
units = 20
clock_mhz = 1500
[peak_tflops]
fp32 = 7.7
"""


def test_a_user_s_short_sheet_is_a_device_and_comes_before_a_shipped_one(own: Path) -> None:
    assert user_folder() == own and device_name("my-gpu") == "my"
    for board in ("my-board", "my-gpu"):  # tables mean it too, whatever else its name says
        (own / f"{board}.toml").write_text(SHORT, encoding="utf-8-sig")  # by Notepad
        assert board in device_sheets.names() and device_name(board) == board
    device = device_sheets.of_target(Target.parse("my-board/tensorrt-10.3/fp16"))
    assert (device.name, device.title, device.units) == ("my-board", "my-board", 20)
    assert device.peak("fp16") == 7.7e12
    assert device_sheets.load("v100").units == 80  # it comes before the shipped one at once
    (own / "v100.toml").write_text(SHORT)
    assert device_sheets.load("v100").units == 20
    assert device_sheets.names().count("v100") == 1


def test_a_mode_of_one_s_own_is_three_lines(own: Path) -> None:
    mode = 'based_on = "orin-nano"\nunits = 4\nclock_mhz = 312.5\n'
    (own / "orin-nano-5w.toml").write_text(mode)
    device, base = device_sheets.load("orin-nano-5w"), device_sheets.load("orin-nano")
    assert device.peak("int8") == pytest.approx(base.peak("int8") / 4)
    assert device.bandwidth_bytes_per_s == base.bandwidth_bytes_per_s
    (own / "big.toml").write_text('based_on = "h100"\nunits = 100000\nclock_mhz = 20000\n')
    with pytest.raises(TargetError, match=r"big.toml .*: peak_tflops\.\w+ is \S+, but must be"):
        device_sheets.load("big")
    (own / "orin-nano.toml").write_text(mode + "[peak_tflops]\nfp32 = 1\n")
    assert device_sheets.load("orin-nano").peak_flops == {"fp32": 1e12}


def test_another_sheet_stands_for_its_device_inside_its_block(own: Path, tmp_path: Path) -> None:
    (own / "v100.toml").write_text(SHORT.replace("20", "21"))
    (tmp_path / "v100.toml").write_text(SHORT)
    device = device_sheets.read(tmp_path / "v100.toml")
    inner = device_sheets.read(tmp_path / "v100.toml", "another")
    assert (device.units, inner.name) == (20, "another")
    with device_sheets.with_sheet(device):
        assert device_sheets.load("v100") is device
        with device_sheets.with_sheet(inner):
            assert device_sheets.of_target(Target.parse("another/torch/fp16")) is inner
            assert "another" in device_sheets.names()
        assert "another" not in device_sheets.names()
    assert device_sheets.load("v100").units == 21


def test_this_machines_cpu_is_probed() -> None:
    probed = device_sheets.probe_cpu(1)
    assert probed.kind == "cpu"
    assert probed.units == 1
    assert 1e9 < probed.peak("fp32") < 1e13
    assert 1e8 < probed.bandwidth_bytes_per_s < 1e12
    assert probed.cache_bytes == tuple(sorted(probed.cache_bytes))


def test_a_probe_does_not_count_what_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the CPU looked half as fast, and so did all that was predicted."""
    waiting = SimpleNamespace(get_inputs=lambda: [SimpleNamespace(name="x")])
    waiting.run = lambda outputs, feed: time.sleep(0.01)
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *args, **options: waiting)
    assert device_sheets._matmul_flops.__wrapped__(1, size=64, repeats=3) > 2 * 64**3 / 0.005


@pytest.mark.parametrize(
    ("indices", "sizes"),
    [
        ("1 Data 48K,1 Instruction 32K,2 Unified 2048K", (48 * 1024, 2 * 2**20)),
        ("1 Data 64K,2 Unified ,3 Unified many", (64 * 1024,)),
        (" Data 64K,2  -1K", (32 * 1024, 2**20, 16 * 2**20)),
        ("", (32 * 1024, 2**20, 16 * 2**20)),
    ],
)
def test_caches_are_those_that_the_system_describes(
    indices: str, sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kernels of ARM have no file for a size, a level or a type, or none at all."""
    for number, index in enumerate(filter(None, indices.split(","))):
        folder = tmp_path / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, text in zip(("level", "type", "size"), index.split(" "), strict=True):
            if text:
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setenv(host.IDENTITY_VARIABLE, str(tmp_path))
    assert host.cpu().cache_bytes == sizes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bandwidth_bytes_per_s", 1e-291),
        ("units", 0),
        ("peak_flops", {"fp16": 1e12}),
        ("cache_bytes", [-1]),
        ("from_the_future", 3),
    ],
)
def test_a_mapping_is_a_device_or_names_what_is_wrong(key: str, value: object) -> None:
    device = device_sheets.load("v100")
    stated = {**asdict(device), "sources": {}, key: value}
    if key == "from_the_future":
        del stated["launch_us"]
        assert Device.from_mapping(stated) == replace(device, launch_us=None)
    else:
        with pytest.raises(ValueError, match=key):
            Device.from_mapping(stated)
