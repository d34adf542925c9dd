"""A plan as a board sees it: its manifest, all of its shape, its files, and its noise.

First, how a board reads what others wrote: regular files of bounded size, JSON of one shape.
"""

import hashlib
import json
import os
import re
import stat
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from . import BoardError

Kind = NamedTuple("Kind", [("words", str), ("fits", Callable[[Any], bool])])
"""A single value: what it is called where another stands in its place, and whether one fits."""


def matching(words: str, pattern: str) -> Kind:
    """Text that a regular expression matches as a whole."""
    whole = re.compile("(?:%s)\\Z" % pattern)
    return Kind(words, lambda value: isinstance(value, str) and bool(whole.match(value)))


def bounded(words: str, least: float, most: float, of: Any = (int, float)) -> Kind:
    """A number between two bounds: no truth value, infinity or NaN."""

    def fits(value: Any) -> bool:
        return isinstance(value, of) and not isinstance(value, bool) and least <= value <= most

    return Kind(words, fits)


def _is_text(value: Any) -> bool:
    """Half of a surrogate pair is no character: nothing can store it."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


TEXT = Kind("text", _is_text)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = bounded("count", 0, 10**12, int)
NUMBER = bounded("number", -1e15, 1e15)
FACT = Kind("fact", lambda value: value is None or _is_text(value) or NUMBER.fits(value))
TIME = matching("time in UTC", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def misfit(value: Any, shape: Any, at: str = "") -> str:
    """What in ``value`` is not of ``shape``, in words; empty where all of it is.

    A shape is a Kind; ``[shape]``, a list of any length; ``{Kind: shape}``, an object of any keys
    of a kind; or an object of fields, of which those whose names end with ``?`` may be missing.
    Further fields are ignored.
    """
    lacks = ""
    if isinstance(shape, Kind):
        return "" if shape.fits(value) else "%s %.60r is no %s" % (at, value, shape.words)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return "%s %.60r is no list" % (at, value)
        parts = [("%s[%d]" % (at, i), one, shape[0]) for i, one in enumerate(value)]
    elif not isinstance(value, dict):
        return "%s %.60r is no object" % (at, value)
    else:
        parts = []
        for key, part in shape.items():
            if isinstance(key, Kind):
                wrong = next((one for one in value if not key.fits(one)), None)
                if wrong is not None:
                    return "%s: %.60r is no %s" % (at, wrong, key.words)
                parts += [("%s.%.40a" % (at, name), one, part) for name, one in value.items()]
            elif key.rstrip("?") in value:
                parts.append((("%s.%s" % (at, key)).strip("?."), value[key.rstrip("?")], part))
            elif not key.endswith("?"):
                lacks = "%s lacks %s" % (at, key)
    return next(filter(None, (misfit(one, part, where) for where, one, part in parts)), lacks)


def parse(text: str) -> Any:
    """A JSON document; ValueError says what is wrong, also with NaN and nesting without end."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply")


def _refuse(name: str) -> None:
    raise ValueError("%s is no number" % name)


def read_file(path: str, most_bytes: int) -> bytes:
    """A regular file's content; BoardError for a device, a pipe, or more than ``most_bytes``."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe is waited for, a device never ends
            raise BoardError("%s is no regular file" % path)
        with open(path, "rb") as source:
            content = source.read(most_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise BoardError("%s cannot be read: %s" % (path, error.strerror))
    if len(content) > most_bytes:
        raise BoardError("%s is larger than %d MB" % (path, most_bytes >> 20))
    return content


_MIRRORED = bytes(int("{:08b}".format(byte)[::-1], 2) for byte in range(256))


def cksum(content: bytes) -> str:
    """Check sum and size as POSIX's ``cksum`` prints them: zlib's polynomial, bits mirrored."""
    size = len(content)
    length = size.to_bytes((size.bit_length() + 7) // 8, "little")
    register = zlib.crc32((content + length).translate(_MIRRORED), 0xFFFFFFFF)
    return "%d %d" % (int("{:032b}".format(register)[::-1], 2), size)


PLAN_FORMAT = 2
KEPT = 48  # models that stay on the device, so that a pair's second half is not built again
_MANIFEST_BYTES = 64 << 20
_MOST_BYTES = 1 << 30  # of any other file of a plan
LISTS = ("items.txt", "noise.txt", "reference_item.txt", "rounds.txt", "runtime.txt", "plan.txt")
_NAME = matching("name in a plan", "[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # no folder, no hidden file
_MODEL = matching("name of a model in a plan", "models/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PART = matching("part of a target", "[a-z0-9][a-z0-9._+-]{0,99}")
_HASH = matching("hash", "[0-9a-f]{32}")
_FEW = bounded("count up to 1000", 1, 1000, int)
_SECONDS = bounded("number of seconds", 0, 1e6)
_OFTEN = bounded("count", 1, 1e9, int)


def _is_use(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and _HASH.fits(value[0]) and _OFTEN.fits(value[1])


_USES = [Kind("hash with its count", _is_use)]
_MANIFEST = {
    "plan": matching("hash", "[0-9a-f]{16}"),
    "device": _PART, "runtime": _PART, "settings": {
        "samples": bounded("count", 1, 1e6, int), "rounds": _FEW,
        "warm_s": _SECONDS, "limit_s": _SECONDS, "build_s": _SECONDS,
    },
    "items": {_NAME: {
        "file": _MODEL, "typed_file?": _MODEL, "sha256": matching("hash", "[0-9a-f]{64}"),
        "precision": _PART, "alone?": FLAG, "copies?": _FEW,
    }},
    "tasks": [{"task": _NAME, "items": [_NAME], "stage": COUNT, "rounds": _FEW, "title?": TEXT,
               "label?": TEXT}],
    "records": [{
        "signature": _HASH, "kind": matching("kind of record", "cell|network|layer"),
        "precision": _PART, "task": _NAME, "method": TEXT, "labels": {TEXT: TEXT},
    }],
    "noise": {_NAME: COUNT},
    "reference": Kind(_NAME.words, lambda value: value == "" or _NAME.fits(value)),
    "breakdowns": [{
        "network": TEXT, "signature": _HASH, "precision": _PART, "cells": _USES, "layers": _USES,
    }],
    "signatures": {_HASH: TEXT},
}  # fmt: skip


class Plan(object):
    """A plan folder's manifest; BoardError where it is damaged or names files outside of it."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        path = os.path.join(self.folder, "manifest.json")
        try:
            content = parse(read_file(path, _MANIFEST_BYTES).decode("utf-8"))
        except OSError:
            is_folder = os.path.isdir(self.folder)
            why = "it has no manifest.json" if is_folder else "there is no such folder"
            raise BoardError(
                "%s is no plan: %s to read; give the folder that hybridlat plan -o wrote"
                % (folder, why)
            )
        except ValueError as error:
            raise BoardError("%s is no plan: its manifest.json is no JSON: %s" % (folder, error))
        if not isinstance(content, dict) or content.get("format") != PLAN_FORMAT:
            raise BoardError("%s is not a plan of format %d" % (path, PLAN_FORMAT))
        problem = misfit(content, _MANIFEST) or _dangling(content)
        if problem:
            raise BoardError("%s: %s" % (path, problem))
        self.name: str = content["plan"]
        if self.name != name_of(content):
            raise BoardError("%s was changed after the plan was written" % path)
        self.settings: Dict[str, Any] = content["settings"]
        self.content: Dict[str, Any] = content
        self.items: Dict[str, Dict[str, Any]] = content["items"]
        self.tasks: List[Dict[str, Any]] = content["tasks"]
        self.noise: Dict[str, int] = content["noise"]
        self.reference: str = content["reference"]

    @property
    def files(self) -> List[str]:
        """The files that the plan is made of, but for its manifest and what runs it."""
        specs = self.items.values()
        models = {spec[key] for spec in specs for key in ("file", "typed_file") if key in spec}
        return sorted(models | {"blocks/" + name for name in self.noise}) + list(LISTS)

    def check_files(self) -> None:
        """BoardError for a file that is not as it was written: a copy that was cut off."""
        path = self.file("files.txt")
        try:
            *lines, end, _ = read_file(path, _MOST_BYTES).decode("utf-8", "replace").split("\n")
            sums = {name: of_file for of_file, _, name in (line.rpartition(" ") for line in lines)}
            if end != "end" or not set(self.files) <= set(sums):
                raise ValueError
            for name in self.files:
                path = self.file(name)
                if cksum(read_file(path, _MOST_BYTES)) != sums[name]:
                    raise ValueError
        except (OSError, ValueError):
            raise BoardError("%s is not as it was written: copy the plan again" % path)

    def file(self, name: str) -> str:
        return os.path.join(self.folder, name) if name else ""


def name_of(content: Dict[str, Any]) -> str:
    """The hash that names a plan, of all that its manifest says but for the name itself."""
    body = {key: value for key, value in content.items() if key != "plan"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def in_order(tasks: List[Dict[str, Any]]) -> List[Tuple[int, Dict[str, Any]]]:
    """The visits (round, task) of a plan: stage by stage, and in a stage group by group.

    A group's models fit on the device together, so that none is built twice, and all its rounds
    come before the next group's: visits of one task are apart in time.
    """
    groups = []  # type: List[List[Dict[str, Any]]]
    models = set()  # type: set[str]
    for task in sorted(tasks, key=lambda task: int(task["stage"])):
        larger = models | set(task["items"])
        is_other = groups and groups[-1][0]["stage"] != task["stage"]
        if not groups or is_other or len(larger) >= KEPT:
            groups.append([])
            larger = set(task["items"])
        groups[-1].append(task)
        models = larger
    visits = []
    for group in groups:
        for number in range(max(int(task["rounds"]) for task in group)):
            visits += [(number, task) for task in group if number < task["rounds"]]
    return visits


def _dangling(content: Dict[str, Any]) -> str:
    """Which name of a manifest stands for nothing in it, in words; empty where all are known."""
    items, tasks = content["items"], {task["task"] for task in content["tasks"]}
    for task in content["tasks"]:
        if len(task["items"]) not in (1, 2):
            return "the task %s has not one or two items" % task["task"]
    names = [name for task in content["tasks"] for name in task["items"]] + [content["reference"]]
    missing = [name for name in names if name and name not in items]
    missing += [one["task"] for one in content["records"] if one["task"] not in tasks]
    return "%s is named and not there" % missing[0] if missing else ""


def make_files(blocks: str, folder: str, sizes: Dict[str, int]) -> None:
    """Write the noise files that ``folder`` still lacks, from the blocks in ``blocks``."""
    for name, size in sorted(sizes.items()):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getsize(path) >= size:
            continue
        content = read_file(os.path.join(blocks, name), _MOST_BYTES)
        if not content:  # it would be repeated for ever
            raise BoardError("blocks/%s is empty: copy the plan again" % name)
        with open(path + ".part", "wb") as sink:
            written = 0
            while written < size:
                sink.write(content)
                written += len(content)
        os.replace(path + ".part", path)
