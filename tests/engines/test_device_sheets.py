"""Data sheets and the micro-benchmark."""

from pathlib import Path

import pytest

from hybridlat.engines import device_sheets
from hybridlat.errors import TargetError


@pytest.mark.parametrize("name", device_sheets.names())
def test_every_sheet_reads_and_makes_sense(name: str) -> None:
    device = device_sheets.load(name)
    assert 0.1e12 < device.peak("fp32") < 200e12
    assert device.peak("fp16") >= device.peak("fp32")
    assert 10e9 < device.bandwidth_bytes_per_s < 10e12
    assert 1 <= device.units <= 200
    assert device.source
    assert list(device.cache_bytes) == sorted(device.cache_bytes)


def test_an_unknown_device_names_the_choices() -> None:
    with pytest.raises(TargetError, match="v100"):
        device_sheets.load("abacus")


@pytest.mark.parametrize(
    "text", ["", "title = 3", 'kind = "gpu"\n[peak_tflops]\nfp32 = 1', "not toml at all ]["]
)
def test_a_broken_sheet_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(text)
    with pytest.raises(TargetError, match=r"odd\.toml"):
        device_sheets.read(file)


def test_a_probed_cpu_survives_its_own_sheet(tmp_path: Path) -> None:
    probed = device_sheets.probe_cpu(1)
    assert probed.kind == "cpu"
    assert probed.units == 1
    assert 1e9 < probed.peak("fp32") < 1e13
    assert 1e8 < probed.bandwidth_bytes_per_s < 1e12
    file = tmp_path / f"{probed.name}.toml"
    file.write_text(device_sheets.to_toml(probed))
    again = device_sheets.read(file)
    assert again.peak("fp32") == pytest.approx(probed.peak("fp32"), rel=1e-4)
    assert again.cache_bytes == probed.cache_bytes
