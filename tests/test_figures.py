"""One number for one fact: figures of accuracy on the pages are those of ``docs/figures.json``."""

import json
import re
import tomllib

import pytest

from experiments import front_pages, front_picture
from tests.pages import ROOT

DOCUMENT = json.loads((ROOT / "docs" / "figures.json").read_text(encoding="utf-8"))
VALUES = {key: figure["value"] for key, figure in DOCUMENT["figures"].items()}
IN_TEXT = tomllib.loads((ROOT / "tests/golden/figures_in_text.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", IN_TEXT)
def test_a_page_names_the_figures_that_were_made(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    expected = [template.format_map(VALUES) for template in IN_TEXT[page]["text"]]
    flowing = " ".join(text.split())
    assert [sentence for sentence in expected if sentence not in flowing] == []
    if "section" in IN_TEXT[page]:
        section = text.partition(IN_TEXT[page]["section"])[2].partition("\n## ")[0]
        rows = [row for row in section.splitlines() if re.match(r"\|.*\d\.\d", row)]
        assert rows and [r for r in rows if not any(sentence in r for sentence in expected)] == []


def test_the_file_and_the_picture_are_what_the_script_makes_of_the_records() -> None:
    assert front_picture.figures() == VALUES
    assert front_picture.PICTURE.read_text(encoding="utf-8") == front_picture.picture(VALUES)
    for page, text in front_pages.written(VALUES).items():
        assert (ROOT / page).read_text(encoding="utf-8") == text
    sources = {figure["source"] for figure in DOCUMENT["figures"].values()}
    assert sources == {*front_picture.SOURCES}
    for source in DOCUMENT["sources"].values():
        name = source["command"].removeprefix("python experiments/").split()[0]
        assert (ROOT / "experiments" / name).is_file()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", source["date"]) and source["machine"]
