"""A plan as a board sees it: its manifest, whose names stay in its folder, and its noise."""

import json
import os
import re
from typing import Any, Dict, List, Tuple

from . import BoardError

PLAN_FORMAT = 2
KEPT = 48  # models that stay on the device, so that a pair's second half is not built again
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


class Plan(object):
    """A plan folder's manifest; BoardError where it is damaged or names files outside of it."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        path = os.path.join(self.folder, "manifest.json")
        try:
            with open(path) as source:
                content = json.load(source)
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
        try:
            _check_names(content)
            self.name = str(content["plan"])
            self.settings: Dict[str, Any] = content["settings"]
        except BoardError as error:
            raise BoardError("%s: %s" % (path, error))
        except (KeyError, TypeError, AttributeError) as error:
            raise BoardError("%s lacks %s" % (path, error))
        self.content: Dict[str, Any] = content
        self.items: Dict[str, Dict[str, Any]] = content["items"]
        self.tasks: List[Dict[str, Any]] = content["tasks"]
        self.noise: Dict[str, int] = content["noise"]
        self.reference = content.get("reference") or ""

    def file(self, name: str) -> str:
        """Absolute path of a file in the plan."""
        return os.path.join(self.folder, name) if name else ""


def in_order(tasks: List[Dict[str, Any]]) -> List[Tuple[int, Dict[str, Any]]]:
    """The visits (round, task) of a plan: stage by stage, and in a stage group by group.

    A group has no more models than stay on the device, and all its rounds are made before the next:
    visits of one task are apart in time, and no model is built for each of them.
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


def _check_names(content: Dict[str, Any]) -> None:
    """Raise BoardError for a manifest whose names could lead out of the plan's folder."""
    names = list(content["items"]) + list(content["noise"])
    for task in content["tasks"]:
        names += [task["task"], *task["items"]]
    if content.get("reference"):
        names.append(content["reference"])
    for name in names:  # plain ones: no folder, no hidden file
        if not isinstance(name, str) or not _NAME.match(name):
            raise BoardError("%r is no name in a plan" % (name,))
    for spec in content["items"].values():
        for name in filter(None, (spec.get("file"), spec.get("typed_file"))):
            folder, _, base = name.partition("/") if isinstance(name, str) else ("", "", "")
            if folder != "models" or not _NAME.match(base):
                raise BoardError("%r is no name of a model in a plan" % (name,))


def make_files(blocks: str, folder: str, sizes: Dict[str, int]) -> None:
    """Write the noise files that ``folder`` still lacks, from the blocks in ``blocks``."""
    for name, size in sorted(sizes.items()):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getsize(path) >= size:
            continue
        with open(os.path.join(blocks, name), "rb") as source:
            content = source.read()
        with open(path + ".part", "wb") as sink:
            written = 0
            while written < size:
                sink.write(content)
                written += len(content)
        os.replace(path + ".part", path)
