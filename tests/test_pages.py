"""Every command and every piece of Python on the pages runs as it stands; one number for a fact."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from experiments import front_pages, front_picture
from tests.pages import BLOCK, PAGES, ROOT, RUN, Place, blocks, name_of, place, skeleton

WITH_CODE = [page for page in PAGES if blocks(page)]
assert {"README.md", "docs/quickstart.md"} <= {name_of(page) for page in WITH_CODE}
OTHER = ("text", "json", "yaml", "{eval-rst}", "{toctree}", "sql")  # tests/store runs the SQL
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.fixture
def here(tmp_path: Path, commands: Path) -> Place:
    return place(tmp_path, commands)


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_from_top_to_bottom(page: Path, here: Place) -> None:
    if page.parent == ROOT:  # README and CONTRIBUTING speak to who stands in a clone
        (here.folder / "data").symlink_to(ROOT / "data")
    for block in blocks(page):
        result = here.run_block(block)
        if result is None:
            continue
        at = f"{name_of(page)}, block {block.number}:\n{block.text}"
        assert result.returncode == 0, f"{at}\n{result.stdout}\n{result.stderr}"
        assert "Traceback" not in result.stderr, at
        if block.shown:
            assert skeleton(result.stdout) == skeleton(block.shown), f"{at}\n{result.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_is_not_run_has_a_reason_that_readers_see(page: Path) -> None:
    """Nothing that looks like a command hides in a block that is never run."""
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match["language"] not in RUN:
            assert match["language"] in OTHER, match["text"]
            assert not re.match(r"(\$ )?(hybridlat|python|pip|make) ", match["text"])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("false  # ends with 1: it is wrong\n", 0),
        ("true  # ends with 1: it is not\n", 99),
        ("true  # may end with 1: it may not\n", 0),
        ("false  # may end with 1: it does\n", 0),
        ("hybridlat predict no.onnx\n", 2),
        ("pip install 'hybridlat[none]'\n", 1),
        ("make nothing\n", 2),
    ],
)
def test_a_block_that_fails_is_seen(text: str, code: int, here: Place) -> None:
    page = here.around / "page.md"
    page.write_text(f"```sh\n{text}```\n", encoding="utf-8")
    (block,) = blocks(page)
    result = here.run_block(block)
    assert result is not None
    assert result.returncode == code, result.stderr


@pytest.mark.parametrize(("between", "count"), [("", 0), ("A word.\n\n", 1)])
def test_what_is_marked_is_passed_over(between: str, count: int, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"*Not run by the tests: needs a GPU.*\n\n{between}```sh\nfalse\n```\n")
    assert len(blocks(page)) == count


def test_the_demo_predicts(here: Place) -> None:
    done = here.run("make", "demo")
    assert done.returncode == 0, done.stderr
    command = done.stdout.splitlines()[-1].split()
    assert command[0].endswith("bin/hybridlat") and command[1] == "predict"
    assert (ROOT / command[2]).is_file()


def test_latencies_shown_are_near_what_is_said(here: Place) -> None:
    """The README's first block with the output of one network asks for what that says."""
    shown = [block for block in blocks(ROOT / "README.md") if block.shown]
    block = next(block for block in shown if " fps " in block.shown)
    (here.folder / "data").symlink_to(ROOT / "data")
    command = next(line for line in block.text.splitlines() if line.startswith("hybridlat"))
    latency = r"(?m)^([0-9.]+) ms   [0-9.,]+ fps   ±([0-9.]+) %"
    found = re.search(latency, here.run("sh", "-c", command).stdout)
    printed = re.search(latency, block.shown)
    assert found and printed
    assert float(found[1]) == pytest.approx(float(printed[1]), rel=float(printed[2]) / 100)


def test_every_picture_is_made_by_a_script() -> None:
    """A page's picture lies where a script writes it, and a script names it."""
    scripts = [*ROOT.glob("docs/*.py"), *ROOT.glob("experiments/*.py")]
    named = "".join(script.read_text(encoding="utf-8") for script in scripts)
    shown = {
        (page.parent / picture).resolve()
        for page in [*PAGES, *ROOT.glob("experiments/*.md")]
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert len(shown) >= 4
    assert {p.parent for p in shown} <= {ROOT / "docs/pictures", ROOT / "experiments/figures"}
    assert not [path.name for path in shown if not path.is_file()]
    assert not [path.name for path in shown if path.stem.partition("_")[0] not in named]


def test_the_script_of_the_site_draws_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("site_pictures", ROOT / "docs/pictures.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "PICTURES", tmp_path)
    with matplotlib.rc_context():
        script.main()
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn <= {path.name for path in ROOT.glob("docs/pictures/*")} and len(drawn) == 4


def test_what_the_pages_point_at_is_there() -> None:
    missing = [
        f"{name_of(page)}: {target}"
        for page in [*PAGES, ROOT / "experiments" / "README.md", ROOT / "CHANGELOG.md"]
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not missing


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
