"""What a target is taken for by a family's law."""

from __future__ import annotations

import pytest

from hybridlat.model.family.dataset import Task
from hybridlat.model.family.shipped import copies_of, task_of
from hybridlat.schema.target import Target

PADDLE = Target("v100", "paddle-tensorrt-2020", "fp16")


def task(layout: str = "", copies: bool = False) -> Task:
    return Task(PADDLE.device, PADDLE.runtime, PADDLE.precision, layout, copies)


@pytest.mark.parametrize(
    ("known", "taken"),
    [
        ([], task(copies=True)),  # as is usual for the engine
        ([task(copies=True), task()], task(copies=True)),
        ([task()], task()),  # as it was measured
        ([task("nhwc"), task("nchw")], task("nchw", copies=True)),
        ([task("nhwc"), task()], task()),
    ],
)
def test_copies_count_as_usual_unless_it_was_measured_otherwise(
    known: list[Task], taken: Task
) -> None:
    assert task_of(PADDLE, known) == taken


@pytest.mark.parametrize(
    ("note", "paddle", "plain"),
    [
        ("", True, False),
        ("including IO", True, True),
        ("mean of 9; not including IO", False, False),
    ],
)
def test_a_note_tells_whether_copies_are_in_a_latency(note: str, paddle: bool, plain: bool) -> None:
    assert copies_of(PADDLE, note) is paddle
    assert copies_of(Target("v100", "tensorrt-8.6", "fp16"), note) is plain
