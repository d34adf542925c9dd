"""Plans that were changed on their way: manifests with a right hash, missing and odd files."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hybridlat.board import BoardError
from hybridlat.board.plan import Plan, in_order, make_files
from hybridlat.errors import StoreError
from hybridlat.measuring.plan_runs import import_results
from hybridlat.measuring.plans import draft_for
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.fuzz.driver import refusal
from tests.networks import classifier

Folder = dict[str, bytes]
"""Files by their name in the plan; one that begins with LINK is a link, PIPE a pipe."""
LINK, PIPE = b"\0link ", b"\0pipe"

NAMES = ("", "../evil", "/etc/passwd", "x" * 300, "a\0b", "\ud800", "é", "\x1b[2J", "models/x.onnx")
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**70, 10**400, 1.5, -0.0, 1e300, 1e-300, float("nan"),
    float("inf"), [], {}, [[]], [{}], {"": {}}, [None], "1", *NAMES,
)  # fmt: skip


def corpus(numbers: Iterable[int], seed: int = 0) -> Iterator[tuple[str, Folder]]:
    """Each number's plan: mutations take turns."""
    for number in numbers:
        rng = random.Random(f"{seed}/{number}")
        mutate = MUTATIONS[number % len(MUTATIONS)]
        folder = mutate(dict(sound_plan()), rng)
        yield f"{number}-{mutate.__name__}", folder


def attempt(label: str, data: Folder, folder: Path) -> str:
    """Import it as the package does, and open it as a board does: answers of one kind."""
    for name, content in data.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(LINK):
            path.symlink_to(content.removeprefix(LINK).decode())
        elif content == PIPE:
            os.mkfifo(path)
        else:
            path.write_bytes(content)
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
            if "no results yet" in str(error):
                return "wrong the results are there"
            raise
        assert not [problem for record in records for problem in record.problems()]
    return "answered"


@functools.cache
def sound_plan() -> Folder:
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
    return {**files, "results.jsonl": journal(json.loads(files["manifest.json"]))}


def journal(manifest: dict[str, Any]) -> bytes:
    """Results of all of its tasks, as worker.py writes them."""
    rng = random.Random("journal")
    about = {"format": 1, "board_id": "0123456789abcdef", "at": "2026-11-21T10:00:00Z"}
    facts = {"engine": "tensorrt", "engine_version": "10.3", "runner": "worker", "gpu": "T4"}
    lines: list[dict[str, Any]] = [
        {"kind": "board", **about, "plan": manifest["plan"], "board": facts}
    ]
    for task in manifest["tasks"]:
        for number in range(task["rounds"]):
            result = {**about, "task": task["task"], "round": number}
            samples = {item: [50 + rng.random() for _ in range(9)] for item in task["items"]}
            sensors = {item: {"sm_mhz": 1500.0} for item in task["items"]}
            lines.append({"kind": "visit", **result, "samples_us": samples, "sensors": sensors,
                          "reference_us": 7.0, "process": 1, "built": {}})  # fmt: skip
    lines[-1] = {"kind": "failure", **result, "error": "out of memory", "items": task["items"]}
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def change_value(value: Any, rng: random.Random) -> Any:
    """The JSON value with one part of it, at any depth, made another or taken away."""
    value = copy.deepcopy(value)
    holder: Any = None
    key: Any = None
    here = value
    while isinstance(here, dict | list) and here and (holder is None or rng.random() < 0.75):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        holder, key = here, rng.choice(list(keys))
        here = holder[key]
    if holder is None:
        return rng.choice(ODD)
    what = rng.randrange(5)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[rng.choice(NAMES)] = holder.pop(key)
    elif what == 2 and isinstance(holder, list):
        holder[:] = holder * rng.choice((2, 2, 50))
    else:
        holder[key] = rng.choice(ODD)
    return value


def with_manifest(folder: Folder, manifest: Any) -> Folder:
    """The plan with this manifest, its hash made right; the results stay those of the plan."""
    if isinstance(manifest, dict):
        name = manifest.pop("plan", "")
        text = json.dumps(manifest, sort_keys=True).encode()
        manifest["plan"] = hashlib.sha256(text).hexdigest()[:16]
        old, new = str(name).encode("utf-8", "replace"), manifest["plan"].encode()
        results = folder["results.jsonl"].replace(old, new)
        folder = {**folder, "results.jsonl": results}
    return {**folder, "manifest.json": json.dumps(manifest).encode()}


def change_types(folder: Folder, rng: random.Random) -> Folder:
    manifest = json.loads(folder["manifest.json"])
    for _ in range(rng.choice((1, 1, 1, 3))):
        if isinstance(manifest, dict) and manifest:
            key = rng.choice(list(manifest))
            manifest[key] = change_value(manifest[key], rng)
    return with_manifest(folder, manifest)


def odd_file(folder: Folder, rng: random.Random) -> Folder:
    """Links, pipes and files that are missing, cut or of another content."""
    name = rng.choice(list(folder))
    content = folder.pop(name)
    other = rng.choice((
        None, LINK + b"/dev/zero", LINK + b"/proc/self/mem", LINK + b"nowhere", LINK + b".", PIPE,
        b"", content[: rng.randrange(len(content) or 1)], content + content, b"\0" * 999,
    ))  # fmt: skip
    return folder if other is None else {**folder, name: other}


def bytes_of_manifest(folder: Folder, rng: random.Random) -> Folder:
    return {**folder, "manifest.json": change_bytes(folder["manifest.json"], rng)}


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, spliced, zeroed, nested without end, and digits without number."""
    start = rng.randrange(len(data) or 1)
    end = start + rng.randrange(1, 400)
    part = rng.choice((
        b"", b"\0" * (end - start), b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000,
        b"NaN", b"-Infinity", b"1e999", b"\n", b'"', b"}", b"x" * (3 << 20), b"\\ud800", b"null",
        data[end : end + 300], bytes(rng.randrange(256) for _ in range(5)),
    ))  # fmt: skip
    keep = rng.choice((start, end, len(data)))
    return data[:start] + part + data[keep:]


MUTATIONS: tuple[Callable[[Folder, random.Random], Folder], ...] = (
    change_types, change_types, change_types, odd_file, bytes_of_manifest,
)  # fmt: skip
