"""Broken and odd data sheets of devices: seeded mutations of shipped ones."""

import math
import random
from pathlib import Path

from hybridlat import Predictor
from tests.fuzz.mutations import damaged
from tests.networks import NETS, ROOT

SHEETS = [ROOT / f"data/devices/{name}.toml" for name in ("v100", "orin-nano", "orin-nano-7w")]
VALUES = (
    "0", "-1", "1e-300", "1e300", "1e29", "nan", "-inf", "true", "'x'", "[]", "{}", "[1, 'a']",
    "1" * 400, "0x" + "f" * 5000, "1979-05-27", "[" * 3000, "{a=" * 3000, "{a = {a = 1}}",
    "'" + "x" * 5000 + "'", '"\\u001b[2J"', "'''\n\n'''", "[1e-300]", "[nan, 1]", "{fp32 = 1e-300}",
    "{fp32 = 7, fp16 = inf}", "'../v100'", "'v100'", "9" * 18, "1.5", "1_000",
)  # fmt: skip
MOST_US = 1e9  # that any network of NETS takes on the slowest device that a sheet may describe


def made(number: int, rng: random.Random) -> tuple[str, bytes]:
    path = SHEETS[number % len(SHEETS)]
    mutate = damaged if rng.random() < 0.2 else odd_line
    return f"{number}-{path.stem}-{mutate.__name__}", mutate(path.read_bytes(), rng)


def attempt(label: str, data: bytes, folder: Path) -> str:
    """Read the sheet and predict by what it says: a latency that a clock can show."""
    del label
    sheet = folder / "odd.toml"
    sheet.write_bytes(data)
    target = "odd/tensorrt-10/fp16"
    with Predictor(target, store="sqlite://", measure="never", device=sheet) as predictor:
        us = predictor.predict(NETS / "squeezenet.onnx").latency_us
    is_plausible = us is not None and math.isfinite(us) and 0.1 < us < MOST_US
    return "answered" if is_plausible else f"wrong latency {us} us"


def odd_line(data: bytes, rng: random.Random) -> bytes:
    """A value, its key or its power of ten another, a line missing or twice, or another base."""
    lines = data.decode().splitlines()
    if rng.random() < 0.1:
        units, mhz = rng.choice((1, 7, 10**5)), rng.choice((1, 300, 20_000))
        return f"based_on = 'h100'\nunits = {units}\nclock_mhz = {mhz}\n".encode()
    i = rng.choice([i for i, line in enumerate(lines) if " = " in line])
    key, _, value = lines[i].partition(" = ")
    name = rng.choice((f"{key}x", "", "a." * 3000 + "b", key.upper()))
    scaled = f"{lines[i]}e{rng.choice((-300, -30, -9, -3, 3, 9, 30))}"
    odd = f"{key} = {rng.choice(VALUES)}"
    lines[i] = rng.choice((odd, odd, scaled, f"{name} = {value}", "", f"{lines[i]}\n{lines[i]}"))
    return ("\n".join(lines) + "\n").encode()
