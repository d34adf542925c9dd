"""The table at the end of a run, from the plan and its results alone."""

from typing import Any, Dict, List, Tuple

from .journal import read_lines
from .plan import Plan

_Visits = Dict[str, List[Dict[str, Any]]]


def table(plan: Plan, results: str) -> str:
    """Two tables: of every stage what was measured, and how well cells add up to networks.

    The second says, for each precision and way to time a cell, of how many networks every cell
    and the whole are measured, the RMSPE of the plain sum against the whole, its bias, and the
    noise floor: how far the networks' second measurement is from their first.
    """
    visits: _Visits = {}
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
                times.append(_median(medians))
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
    return "\n".join(out + _sums(plan, visits))


def _sums(plan: Plan, visits: _Visits) -> List[str]:
    """The sum of the cells of every network against the network itself."""
    tasks = {task["task"]: task for task in plan.tasks}
    cells: Dict[Tuple[str, str], Dict[str, float]] = {}
    wholes: Dict[str, Dict[str, List[float]]] = {}
    for record in plan.records:
        task = tasks[record["task"]]
        medians = [_result(task, visit) for visit in visits.get(task["task"], [])]
        if not medians:
            continue
        precision, key = record["precision"], record["signature"]
        if record["kind"] == "network":
            wholes.setdefault(precision, {}).setdefault(key, []).append(_median(medians))
        else:
            cells.setdefault((precision, record["method"]), {})[key] = _median(medians)
    if not cells:
        return []
    head = ("cells", "method", "networks", "RMSPE %", "bias %", "noise floor %")
    out = ["", "%-10s %-14s %9s %9s %9s %14s" % head]
    for (precision, method), known in sorted(cells.items()):
        whole = wholes.get(precision, {})
        again = [times[1] / times[0] - 1.0 for times in whole.values() if len(times) > 1]
        errors = []
        for network in plan.breakdowns:
            parts = [(known.get(h), n) for h, n in network["cells"]]
            if (
                network["precision"] == precision
                and network["signature"] in whole
                and all(value is not None for value, _ in parts)
            ):
                total = sum(value * n for value, n in parts if value is not None)
                errors.append(total / whole[network["signature"]][0] - 1.0)
        out.append(
            "%-10s %-14s %9d %9s %9s %14s"
            % (
                precision,
                method,
                len(errors),
                _rms(errors),
                "%+.2f" % (100.0 * sum(errors) / len(errors)) if errors else "-",
                _rms(again),
            )
        )
    return out


def _result(task: Dict[str, Any], visit: Dict[str, Any]) -> float:
    medians = [_median(visit["samples_us"].get(item) or [0.0]) for item in task["items"]]
    return medians[0] - sum(medians[1:])


def _median(values: List[float]) -> float:
    ordered = sorted(values)
    return float(ordered[len(ordered) // 2])


def _rms(errors: List[float]) -> str:
    return "%.2f" % (100.0 * (sum(e * e for e in errors) / len(errors)) ** 0.5) if errors else "-"
