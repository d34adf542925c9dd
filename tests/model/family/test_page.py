"""The page of the family's mathematics and the code name the same equations and symbols."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/background/family.md").read_text(encoding="utf-8")
CODE = {p.stem: p.read_text("utf-8") for p in (ROOT / "hybridlat/model/family").glob("*.py")}
CALIBRATION = (ROOT / "hybridlat/model/conformal.py").read_text("utf-8")
NUMBERS = set(re.findall(r"\((\d+)\)", " ".join(re.findall(r"^> \(\d+\)", PAGE, re.MULTILINE))))
NAMES = sorted(set(re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE)))


def test_every_equation_is_cited_and_every_number_is_on_the_page() -> None:
    docs = " ".join(re.findall(r'""".*?"""', "\n".join([*CODE.values(), CALIBRATION]), re.DOTALL))
    assert {str(i) for i in range(1, len(NUMBERS) + 1)} == NUMBERS
    cited = set(re.findall(r"\((\d+)\)", docs))
    cited |= {n for two in re.findall(r"\((\d+)\) (?:and|to) \((\d+)\)", docs) for n in two}
    assert cited == NUMBERS


@pytest.mark.parametrize(("holder", "name"), NAMES)
def test_every_name_of_the_page_is_in_the_code(holder: str, name: str) -> None:
    (module,) = [stem for stem, text in CODE.items() if f"class {holder}" in text]
    made = getattr(importlib.import_module(f"hybridlat.model.family.{module}"), holder)
    assert name in {*vars(made), *made.__annotations__} or f"self.{name}" in CODE[module]
