"""The page of the family's mathematics and the code name the same equations and symbols."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FAMILY = ROOT / "hybridlat/model/family"
PAGE = (ROOT / "docs/background/family.md").read_text(encoding="utf-8")
CODE = {p.stem: p.read_text("utf-8") for p in FAMILY.glob("*.py")}
CALIBRATION = (ROOT / "hybridlat/model/conformal.py").read_text("utf-8")
NUMBERS = set(re.findall(r"\((\d+)\)", " ".join(re.findall(r"^> \(\d+\)", PAGE, re.MULTILINE))))


def test_every_equation_is_cited_and_every_number_is_on_the_page() -> None:
    docs = " ".join(re.findall(r'""".*?"""', "\n".join([*CODE.values(), CALIBRATION]), re.DOTALL))
    assert {str(i) for i in range(1, len(NUMBERS) + 1)} == NUMBERS
    cited = set(re.findall(r"\((\d+)\)", docs))
    cited |= {n for two in re.findall(r"\((\d+)\) (?:and|to) \((\d+)\)", docs) for n in two}
    assert cited == NUMBERS


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w./]+)`", PAGE))))
def test_every_name_of_the_page_is_in_the_code(name: str) -> None:
    holder, _, member = name.rpartition(".")
    if member in ("py", "toml"):
        assert any((place / name).is_file() for place in (FAMILY, ROOT))
    elif holder[:1].isupper():
        (module,) = [stem for stem, text in CODE.items() if f"class {holder}" in text]
        made = getattr(importlib.import_module(f"hybridlat.model.family.{module}"), holder)
        assert member in {*vars(made), *made.__annotations__} or f"self.{member}" in CODE[module]
    else:
        words = set(re.findall(r"\w+", " ".join([CALIBRATION, *CODE, *CODE.values()])))
        assert set(re.findall(r"\w+", name)) <= words
