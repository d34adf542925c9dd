"""The table at the end of a run, from the plan and its results alone."""

from typing import Any, Dict, List

from .journal import read_lines
from .runner import Plan


def table(plan: Plan, results: str) -> str:
    """One line a stage: tasks measured of all, and of its networks the median latency each."""
    visits: Dict[str, List[Dict[str, Any]]] = {}
    failures: Dict[str, str] = {}
    for line in read_lines(results):
        if line.get("kind") == "visit":
            visits.setdefault(line["task"], []).append(line)
        elif line.get("kind") == "failure":
            failures[line["task"]] = str(line.get("error"))
    stages: Dict[str, List[Dict[str, Any]]] = {}
    for task in plan.tasks:
        stages.setdefault(str(task.get("title", "tasks")), []).append(task)
    out = ["%-44s %9s %9s %12s %9s" % ("stage", "measured", "failed", "sum ms", "repeat %")]
    for title, tasks in stages.items():
        times, repeats = [], []
        for task in tasks:
            medians = [_result(task, visit) for visit in visits.get(task["task"], [])]
            if medians:
                times.append(sorted(medians)[len(medians) // 2])
            if len(medians) > 1 and min(medians) > 0:
                repeats.append(100.0 * (max(medians) / min(medians) - 1.0))
        failed = sum(1 for t in tasks if t["task"] in failures and t["task"] not in visits)
        out.append(
            "%-44s %4d/%-4d %9d %12.3f %9s"
            % (
                title[:44],
                len(times),
                len(tasks),
                failed,
                sum(times) / 1e3,
                "%.2f" % (sum(repeats) / len(repeats)) if repeats else "-",
            )
        )
    for task_id, error in list(failures.items())[:10]:
        if task_id not in visits:
            out.append("failed %s: %s" % (task_id, error[:160]))
    return "\n".join(out)


def _result(task: Dict[str, Any], visit: Dict[str, Any]) -> float:
    medians: List[float] = []
    for item in task["items"]:
        ordered = sorted(visit["samples_us"].get(item) or [0.0])
        medians.append(ordered[len(ordered) // 2])
    return medians[0] - sum(medians[1:])
