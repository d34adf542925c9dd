"""Names of files in a plan: a manifest comes from another machine, and must not name others."""

import re
from typing import Any, Dict, Iterable

from .errors import BoardError

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def check_names(content: Dict[str, Any]) -> None:
    """Raise BoardError for a manifest whose names could lead out of the plan's folder."""
    for key, spec in content["items"].items():
        check_key(key)
        for field in ("file", "typed_file"):
            if spec.get(field):
                check_file(spec[field])
    for task in content["tasks"]:
        check_key(task["task"])
        check_keys(task["items"])
    check_keys(content["noise"])
    if content.get("reference"):
        check_key(content["reference"])


def check_file(name: Any) -> None:
    """Raise BoardError unless the name is that of a file in ``models``."""
    folder, _, base = name.partition("/") if isinstance(name, str) else ("", "", "")
    if folder != "models" or not _KEY.match(base):
        raise BoardError("%r is no name of a model in a plan" % (name,))


def check_keys(names: Iterable[Any]) -> None:
    """Raise BoardError unless each is a plain name."""
    for name in names:
        check_key(name)


def check_key(name: Any) -> None:
    """Raise BoardError unless the name is a plain one: no folder, no hidden file."""
    if not isinstance(name, str) or not _KEY.match(name):
        raise BoardError("%r is no name in a plan" % (name,))
