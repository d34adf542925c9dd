"""Stands in for pip: ``install`` of this project is well if the extras that it names exist."""

import re
import sys
import tomllib
from pathlib import Path


def main() -> int:
    project, *words = sys.argv[1:]
    if words[:1] != ["install"]:
        print(f"the pages know only `pip install`, not {words}", file=sys.stderr)
        return 1
    known = tomllib.loads(Path(project).read_text(encoding="utf-8"))["project"]
    extras = {e for word in words for group in re.findall(r"\[([a-z,]+)\]", word)
              for e in group.split(",")}  # fmt: skip
    unknown = extras - known["optional-dependencies"].keys()
    if unknown:
        print(f"no such extra: {sorted(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
