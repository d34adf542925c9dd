"""A fleet's file is read; what is wrong with it is said with its device, the choices and a fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridlat.errors import InputError
from hybridlat.measuring.fleet_device import read_fleet

ORIN = 'target = "orin/tensorrt-8.6/fp16"\n'
FAKE = 'target = "fake/fake-1.0/fp32/1t"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_every_kind_of_device(tmp_path: Path) -> None:
    text = f"""\
scheduler = "tcp://server:8786"
patience_s = 30

[[device]]
name = "left"
target = ["orin/tensorrt-8.6/fp16", "orin/tensorrt-8.6/fp32"]
host = "user@left"
runner = "trtexec"
limit_s = 60

[[device]]
{FAKE}local = true
env = {{ CUDA_VISIBLE_DEVICES = "1" }}

[[device]]
{FAKE}dask = true
"""
    fleet = read_fleet(write(tmp_path, text))
    left, here, dask = fleet.device
    assert (fleet.scheduler, fleet.patience_s) == ("tcp://server:8786", 30.0)
    assert (left.name, left.host, left.runner, left.limit_s) == ("left", "user@left", "trtexec", 60)
    assert left.resources == {"orin/tensorrt-8.6/fp16": 1.0, "orin/tensorrt-8.6/fp32": 1.0}
    assert (here.name, here.env, dask.dask) == ("local-2", {"CUDA_VISIBLE_DEVICES": "1"}, True)
    assert list(map(str, fleet.targets)) == [*left.resources, "fake/fake-1.0/fp32/1t"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "device is missing"),
        ("device = 3", "device: Expected `array`"),
        ("[[device]\n", "is not TOML"),
        ("speed = 3\n[[device]]\n", "unknown key 'speed': choose from device, scheduler,"),
        (f"[[device]]\n{ORIN}\nhots = 'a'", "device 1: unknown key 'hots'"),
        (f"[[device]]\n{ORIN}", "device 1: it has none of host, local and dask"),
        (f"[[device]]\n{ORIN}local = true\nhost = 'a'", "it has host and local: write one of"),
        (f"[[device]]\n{ORIN}local = 1", "device 1: local: Expected `bool`"),
        ("[[device]]\nlocal = true", "device 1: target is missing"),
        ("[[device]]\ntarget = 'orin'\nlocal = true", "device 1: 'orin' is not a target"),
        ("[[device]]\ntarget = 'orin/tensorrt/fp16'\nhost = 'a'",
         "write it, such as orin/tensorrt-8.6/fp16"),
        (f"[[device]]\n{FAKE}host = 'a'", "plans are for tensorrt"),
        (f"[[device]]\n{ORIN}host = '-oProxyCommand=x'", "device 1: '-oProxyCommand=x'"),
        (f"[[device]]\n{ORIN}host = 'a'\nrunner = 'x'", "choose from auto, worker, trtexec"),
        (f"[[device]]\n{ORIN}host = 'a'\nlimit_s = 0", "device 1: limit_s: Expected `float` >"),
        (f"[[device]]\n{ORIN}local = true\nlimit_s = 9", "limit_s goes with host alone"),
        (f"[[device]]\n{ORIN}host = 'a'\nenv = {{A = '1'}}", "env goes with local alone"),
        (f"[[device]]\n{ORIN}local = true\nenv = {{A = 1}}", "device 1: env: Expected `str`"),
        (f"[[device]]\n{ORIN}dask = true", "device 1: dask = true needs the scheduler"),
        (f"scheduler = 'server'\n[[device]]\n{ORIN}local = true", "scheduler: Expected"),
        (f"[[device]]\n{ORIN}host = 'a'\n[[device]]\n{ORIN}host = 'a'\nname = 'b'",
         "device 2: it is device 1 a second time"),
        (f"[[device]]\n{FAKE}local = true\n[[device]]\n{FAKE}local = true\nname = 'b'",
         "local devices differ by env"),
        (f"[[device]]\n{ORIN}host = 'a'\nname = 'x'\n[[device]]\n{ORIN}host = 'b'\nname = 'x'",
         "device 2: it is device 1 a second time, or has its name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_its_place(
    tmp_path: Path, text: str, words: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_fleet(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_fleet(tmp_path / "none.toml")
