"""The lowest versions that pyproject.toml allows, printed as constraints for pip."""

import itertools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LOWEST = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\w.]+)[^;]*(?P<marker>;.*)?")


def constraints() -> list[str]:
    """``numpy==1.26`` for each dependency, those of the extras with them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [
        *project["dependencies"],
        *itertools.chain(*project["optional-dependencies"].values()),
    ]
    found = [_LOWEST.fullmatch(dependency) for dependency in listed]
    return [f"{m['name']}=={m['version']}{m['marker'] or ''}" for m in found if m is not None]


if __name__ == "__main__":
    print("\n".join(constraints()))
