"""The lowest versions that pyproject.toml allows, printed as constraints for pip."""

import itertools
import re
import tomllib
from pathlib import Path

_LOWEST = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\w.]+)[^;]*(?P<marker>;.*)?")


def constraints() -> list[str]:
    """``numpy==1.26`` for each dependency, those of the extras with them."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    found = [_LOWEST.fullmatch(dependency) for dependency in every]
    return [f"{m['name']}=={m['version']}{m['marker'] or ''}" for m in found if m is not None]


if __name__ == "__main__":
    print("\n".join(constraints()))
