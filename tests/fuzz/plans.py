"""Plans that were changed on their way: manifests with a right hash, odd files, odd results."""

import functools
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from hybridlat.board import BoardError
from hybridlat.board.journal import Journal, read_lines
from hybridlat.board.plan import Plan, in_order, make_files, name_of
from hybridlat.errors import StoreError
from hybridlat.measuring.measurer import import_results
from hybridlat.measuring.plans import draft_for
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.fuzz.driver import refusal
from tests.fuzz.mutations import LINK, PIPE, Files, damaged, odd_lines, odd_value, write
from tests.networks import classifier

RESULTS, MANIFEST = "results.jsonl", "manifest.json"


def made(number: int, rng: random.Random) -> tuple[str, Files]:
    mutate = MUTATIONS[number % len(MUTATIONS)]
    return f"{number}-{mutate.__name__}", mutate(dict(sound_plan()), rng)


def attempt(label: str, data: Files, folder: Path) -> str:
    """Import it as the package does, and open it as a board does: answers of one kind."""
    write(folder, data)
    try:
        plan = Plan(str(folder))
        in_order(plan.tasks)
        plan.check_files()
        if sum(plan.noise.values()) < 1 << 20:
            make_files(plan.file("blocks"), plan.file("models"), plan.noise)
    except BoardError as error:
        if refusal(error) != "refused":
            return refusal(error)
    with Store("sqlite://") as store:
        try:
            records, _ = import_results(folder, store)
        except StoreError as error:
            if "no results yet" in str(error) and RESULTS in data:
                return "wrong the results are there"
            raise
    if any(problem for record in records for problem in record.problems()):
        return "wrong records"
    return _goes_on(folder) if label.endswith("results") else "answered"


def _goes_on(folder: Path) -> str:
    """Whether what was whole stays, and a board's next line joins it."""
    path = str(folder / RESULTS)
    before = list(read_lines(path))
    header = next(line for line in before if line["kind"] == "board")
    journal = Journal(path, header["plan"], header["board_id"], header["board"])
    journal.write({"kind": "failure", "task": "t", "round": 0, "error": "\ud800"})
    after = list(read_lines(path))
    is_kept = after[: len(before)] == before and len(after) > len(before)
    return "answered" if is_kept else "wrong lost"


@functools.cache
def sound_plan() -> Files:
    """The files of a plan of two small networks that was measured."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        networks = [(f"net{c}", classifier(c)) for c in (8, 16)]
        draft_for(networks, Target("t4", "tensorrt", "fp16"), rounds=2).write(folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and "hybridlat_board" not in path.parts
        }
    return {**files, RESULTS: _results(json.loads(files[MANIFEST]))}


def _results(manifest: dict[str, Any]) -> bytes:
    """Results of all of its tasks, as worker.py writes them."""
    rng = random.Random("journal")
    about = {"format": 1, "board_id": "0123456789abcdef", "at": "2026-11-21T10:00:00Z"}
    facts = {"engine": "tensorrt", "engine_version": "10.3", "runner": "worker", "gpu": "T4"}
    lines = [{"kind": "board", **about, "plan": manifest["plan"], "board": facts}]
    visit = {"kind": "visit", **about, "reference_us": 7.0, "process": 1, "built": {}}
    for task in manifest["tasks"]:
        samples = {item: [50 + rng.random() for _ in range(9)] for item in task["items"]}
        sensors = {item: {"sm_mhz": 1500.0} for item in task["items"]}
        result = {"task": task["task"], "samples_us": samples, "sensors": sensors}
        lines += [visit | result | {"round": number} for number in range(task["rounds"])]
    failed = {"task": task["task"], "round": task["rounds"] - 1, "items": task["items"]}
    lines[-1] = {"kind": "failure", **about, **failed, "error": "out of memory"}
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def manifest(folder: Files, rng: random.Random) -> Files:
    """Odd values in it, its hash made right; the results stay those of the plan."""
    body = json.loads(folder[MANIFEST])
    old = body.pop("plan")
    for _ in range(rng.choice((1, 1, 1, 3))):
        key = rng.choice(list(body))
        body[key] = odd_value(body[key], rng)
    body["plan"] = name_of(body)
    results = folder[RESULTS].replace(old.encode(), body["plan"].encode())
    return {**folder, RESULTS: results, MANIFEST: json.dumps(body).encode()}


def odd_file(folder: Files, rng: random.Random) -> Files:
    """Links, pipes and files that are missing or damaged."""
    name = rng.choice(list(folder))
    content = folder.pop(name)
    links = [LINK + to for to in (b"/dev/zero", b"/proc/self/mem", b"nowhere", b".")]
    other = rng.choice((None, *links, PIPE, b"", content * 2, damaged(content, rng)))
    return folder if other is None else {**folder, name: other}


def results(folder: Files, rng: random.Random) -> Files:
    mutate = rng.choice((damaged, odd_lines, odd_lines))
    return {**folder, RESULTS: mutate(folder[RESULTS], rng)}


MUTATIONS = (manifest, results, manifest, odd_file, results, manifest)
