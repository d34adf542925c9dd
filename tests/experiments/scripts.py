"""Scripts whose names begin with a number, as modules."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "experiments"


def load(name: str) -> Any:
    """The script ``experiments/<name>.py``."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
