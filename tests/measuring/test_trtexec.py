"""Exports of trtexec in the shapes that its versions write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import trtexec_profile
from hybridlat.errors import InputError
from hybridlat.measuring import trtexec
from tests.board.conftest import FAKE


@pytest.fixture(params=["8.2", "8.5", "8.6", "10", "11"])
def exports(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    verbosity = "--nvtxMode=verbose" if request.param == "8.2" else "--profilingVerbosity=detailed"
    subprocess.run(
        [sys.executable, "-I", "-S", str(FAKE), f"--onnx={model}", verbosity,
         *(f"--export{what}={tmp_path / what}.json" for what in ("Times", "Profile", "LayerInfo"))],
        env={"FAKE_TRTEXEC": request.param}, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


def test_all_three_of_every_version(exports: Path) -> None:
    times = trtexec.read_times(exports / "Times.json", warm_up_ms=400)
    assert len(times) == 400
    assert max(times) / min(times) < 1.02  # the warm-up is not among them
    layers = trtexec.layers_of(trtexec.read_export(exports / "LayerInfo.json"))
    assert layers[0].name == "conv1 + relu1"
    assert layers[0].nodes == ("conv1", "relu1")
    assert layers[1].nodes == ()
    profile = trtexec_profile.read_profile(exports / "Profile.json")
    assert len(profile) == 2
    engine_us = min(times)
    report = trtexec_profile.report(profile, engine_us)
    assert report.constant_us == pytest.approx((report.sum_us - engine_us) / 2)
    assert report.corrected_us == pytest.approx(engine_us, rel=0.01)
    assert "the engine itself" in "\n".join(report.lines())


def test_names_alone_and_control_characters(tmp_path: Path) -> None:
    assert trtexec.layers_of({"Layers": ["a + b"]})[0].nodes == ("a", "b")
    broken = '{"Layers": [{"Name": "a\x1eb", "LayerType": "k",},]}'
    assert trtexec.layers_of(trtexec.read_tolerant(broken))[0].kind == "k"
    for text in ("", "{", "no json"):
        with pytest.raises(InputError):
            trtexec.read_tolerant(text)


@pytest.mark.parametrize("reader", [trtexec_profile.read_profile, trtexec.read_times])
def test_another_file_is_refused(reader: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"other": 1}]))
    with pytest.raises(InputError, match=r"x\.json"):
        reader(path)
    with pytest.raises(InputError, match="cannot be read"):
        reader(tmp_path / "nowhere")


@given(
    st.floats(0.1, 20.0),
    st.lists(st.tuples(st.integers(1, 300), st.floats(50, 1e5)), min_size=1, max_size=8),
)
def test_a_constant_that_is_there_is_found(
    constant: float, engines: list[tuple[int, float]]
) -> None:
    made = [trtexec_profile.ProfiledEngine(n, m + constant * n, m) for n, m in engines]
    assert trtexec_profile.fit_constant(made) == pytest.approx(constant, rel=1e-6)
