"""What comes from another machine never decides where is written or read."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hybridlat.board import BoardError
from hybridlat.board.plan import Plan, in_order
from hybridlat.errors import InputError, StoreError
from hybridlat.measuring import plan_results
from hybridlat.measuring.ssh import RemoteHost
from tests.board.conftest import MakePlan, change

OUTSIDE = ("../evil", "/etc/passwd", "models/../../evil", "models/", "models/.hidden", "a\0b", "")
EDITS: dict[str, Callable[[dict[str, Any], str], object]] = {
    "file": lambda body, name: body["items"].update(m={"file": name or "elsewhere.onnx"}),
    "item": lambda body, name: body["items"].update({name: {}}),
    "noise": lambda body, name: body["noise"].update({name: 10}),
    "task": lambda body, name: body["tasks"][0].update(items=[name]),
    "reference": lambda body, name: body.update(reference=name or "../evil"),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_manifest_that_names_files_outside_is_refused_on_both_sides(
    make_plan: MakePlan, name: str, edit: Callable[[dict[str, Any], str], object]
) -> None:
    folder = change(make_plan("fake"), lambda body: edit(body, name))
    with pytest.raises(BoardError, match="is no name"):
        Plan(str(folder))
    with pytest.raises(StoreError, match="is no name"):
        plan_results.read_results(folder)


def test_a_plans_name_is_sixteen_digits_before_it_is_part_of_a_command(make_plan: MakePlan) -> None:
    folder = make_plan("fake")
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"plan": "x; rm -rf ~"}))
    with pytest.raises(InputError, match="is no hash"):
        RemoteHost("user@board").measure(folder)


@pytest.mark.parametrize("host", ["user@board\n", "-oProxyCommand=x", "a b", "", "$(x)", "a;b"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(InputError, match="is no host"):
        RemoteHost(host)


def test_rounds_of_a_group_come_before_the_next_group() -> None:
    tasks: list[dict[str, Any]] = [
        {"task": f"t{n}", "items": [f"a{n}", f"b{n}"], "stage": 1, "rounds": 2} for n in range(60)
    ]
    tasks += [{"task": "whole", "items": ["w"], "stage": 0, "rounds": 2}]
    order = [(task["task"], number) for number, task in in_order(tasks)]
    assert sorted(order) == sorted((t["task"], n) for t in tasks for n in range(2))
    assert order[:2] == [("whole", 0), ("whole", 1)]
    assert order[2] == ("t0", 0)
    second = order.index(("t0", 1))
    # Apart in time, and all models, two a task, still on the device.
    assert 10 < len({name for name, _ in order[2:second]}) < 24
