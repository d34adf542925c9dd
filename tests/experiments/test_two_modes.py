"""Both modes are found: in made-up staircases, and in the sweep that comes along."""

import numpy as np
import pytest

from tests.experiments.scripts import FOLDER, load

fine = load("two_modes")


def test_a_made_jump_is_found() -> None:
    along = np.arange(18.0, 130.0, 2)
    steps = 10 + 2 * np.ceil(along / 16) * 16
    latency = np.where(along % 4 == 0, steps, 50 + 3 * along)
    explained = fine.explain(fine.Series("c_in of a made-up engine", along, latency))
    assert (explained.blocks, explained.alignment) == ((16, 0), 4)
    assert explained.both == pytest.approx(0, abs=1e-6)
    assert explained.steps > 5


def test_the_sweep_shows_both_modes() -> None:
    every = {s.title: fine.explain(s) for s in fine.read(FOLDER / "two_modes_sweep")}
    assert len(every) == 4
    window = every["c_out of 3x3, 64 channels in, 28x28"]
    assert window.blocks[0] == 16  # the engine's block of channels
    assert window.both < 2 < 5 < window.plain
    channels = every["c_in of 3x3, 64 channels out, 28x28"]
    assert channels.alignment == 4
    assert channels.both < 2 < 10 < channels.steps
