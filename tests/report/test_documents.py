"""JSON and HTML: what other programs and browsers get."""

import datetime
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import hybridlat
from hybridlat.cli.output import print_json
from hybridlat.errors import InputError
from hybridlat.report.compare import Comparison, cell_differences
from hybridlat.report.html_section import asset
from hybridlat.report.prediction_table import PredictionTable
from hybridlat.report.table import Table, titled
from hybridlat.report.terminal import print_estimate, printed
from hybridlat.report.units import Ratio, ratio_to
from hybridlat.report.views import headings, page
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import Estimates
from hybridlat.schema.structure import EstimateWarning
from tests.report.estimates import described, long_tail, residual, untrusted
from tests.report.test_terminal import hold_against


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps text, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.pieces: list[tuple[str, str]] = []
        """Texts, and the element that each stands in."""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in {"meta", "br", "img", "link", "input", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data
        self.pieces.append((self.open[-1] if self.open else "", data))


def test_json_is_an_estimate_in_ascii_and_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(residual().to_json())
    hold_against("residual.json", capsys.readouterr().out)
    print_json({"µ": "→"})
    assert capsys.readouterr().out.isascii()
    with pytest.raises(ValueError, match="JSON"):
        print_json({"latency_us": math.nan})


def test_the_page_is_whole_and_asks_nobody_for_anything() -> None:
    text = page([residual(), untrusted(), long_tail(40), described()])
    parsed = Page(text)
    assert parsed.open == []
    own = re.sub(r"<script>\n/\* (?:d3|dagre)\n.*?</script>", "", text, flags=re.DOTALL)
    assert len(own) < len(text) - 300_000  # the libraries are in it
    assert "://" not in own and "url(" not in own and "@import" not in own
    assert "sourceMappingURL" not in text
    assert not {"link", "img", "iframe", "object"} & set(parsed.tags)
    links = [v for name, v in parsed.attributes if name in {"src", "href", "srcset"}]
    assert links == ["#n0", "#n1", "#n2", "#n3"]  # within the page
    assert "default-src 'none'" in text
    text = page([described()])
    assert "Copyright 2010-2023 Mike Bostock" in text and "Copyright (c) 2012-2014 Chris" in text
    assert len(text.encode()) < 500_000


def test_the_foot_says_what_made_the_page() -> None:
    text = page([residual()], command="hybridlat predict 'a <b>.onnx' --html p.html")
    (foot,) = re.findall("<footer>(.*)</footer>", text)
    today = datetime.date.today().isoformat()
    assert f"hybridlat {hybridlat.__version__} · {today} · <code>hybridlat predict" in foot
    assert "&lt;b&gt;" in foot and "<code>" not in page([residual()]).partition("<footer>")[2]


def luminance(colour: str) -> float:
    """WCAG's relative luminance of #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("ink", "papers"),
    [
        ("ink", "paper card warn-paper bad-paper cool warm hot compute memory launch none"),
        ("soft", "paper card"),
        ("on-cell", "measured measured-2 predicted predicted-2"),
        ("measured", "paper card"),
        ("predicted", "paper card"),
        ("unsupported", "paper bad-paper"),
        ("accent", "paper"),
    ],
)
def test_words_can_be_read_in_both_colour_schemes_and_on_paper(ink: str, papers: str) -> None:
    schemes = re.findall(r":root \{(.*?)\}", asset("page.css").template, flags=re.DOTALL)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6})", scheme))
        for paper in papers.split():
            low, high = sorted(luminance(colours[n]) for n in (ink, paper))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


COMMAND = "hybridlat plan a.onnx --target l4/tensorrt/fp16 -o plan"


def rough() -> Estimate:
    """A guess for a GPU: lopsided, every cell alike, with remarks of each kind."""
    cells = []
    for cell in residual().cells:
        us = cell.latency_us or 0.0
        cells.append(replace(cell, interval_us=(0.53 * us, 1.87 * us)))
    cells[0] = replace(cells[0], interval_us=(890.0, 910.0))
    cells[3] = replace(cells[3], reason="predicted from <its> kin")
    warnings = (
        EstimateWarning("file", "No fusion rule covers MaxPool."),
        EstimateWarning("batch-outside", "Batch 1 is outside what is known.", COMMAND),
    )
    answer = replace(residual(), interval_us=(4400.0, 15e3), warnings=warnings, cells=tuple(cells))
    return replace(answer, removed=("Dropout_7", "odd <name>"), constants=1)


def test_the_page_without_a_script_reads_as_agreed() -> None:
    """Answers of all kinds, two of one network at two batches, and the comparison of all."""
    curve = [replace(long_tail(3), batch=4), long_tail(3)]
    estimates = [rough(), untrusted(), described().against(9000.0), *curve]
    text = page(estimates)
    parsed = Page(text)
    assert parsed.open == []
    # A name is text, not markup.
    assert not any(tag == "b" and text.startswith("&.onnx") for tag, text in parsed.pieces)
    hold_against("page.html", text.partition("<body>")[2].partition("<footer>")[0])
    for words in ("over batches</h1>", "side by side</h1>"):
        assert words in text and words not in page(curve[:1])
    other = replace(curve[0], target="l4/tensorrt/fp16")  # of other batches none is faster
    assert headings([*curve, other])[2] == "tail.onnx · batch 4 · l4/tensorrt/fp16"
    assert "against A" in page([rough(), curve[1]])
    assert "against A" not in page([curve[1], other])


def test_the_comparison_says_who_is_faster_and_whether_that_is_sure() -> None:
    unknown, *known = cell_differences([residual(), untrusted()])
    assert sorted(row.signature[-1] for row in (unknown, *known)) == list("1234567")
    assert unknown.total_us == [0.0, None] and known[0].total_us == [4500.0, 0.0]
    text = Comparison((residual(), untrusted(), residual())).to_json()
    assert text["format"] == 1
    assert text["speed_up"] == (1.0, None, 1.0)  # a cell of the second has no latency
    assert text["distinguishable"] == [False, False, False]
    json.dumps(text, allow_nan=False)
    assert text["differences"][0]["difference_us"] is None  # and no 0.0
    nothing = replace(untrusted(), latency_us=None, warnings=())
    assert nothing.rests_on == ""  # least of all on a prediction
    twice = replace(residual(), latency_us=2 * 8123.4)
    assert Comparison((residual(), twice)).speed_up == pytest.approx((1.0, 0.5))
    ratio = ratio_to(residual(), residual())
    assert ratio is not None and not ratio.is_sure and ratio.probability_faster == 0.5


def test_what_all_latencies_of_a_machine_share_tells_no_two_apart() -> None:
    one = replace(residual(), latency_us=100.0, interval_us=(100 / 1.1, 110.0))
    cells = one.cells[:3]  # others with the same cells would be the same network
    other = replace(one, latency_us=112.0, interval_us=(112 / 1.1, 112 * 1.1), cells=cells)

    def ratio(first: Estimate, second: Estimate, known: float | None = None) -> Ratio:
        made = ratio_to(first, second, known)
        assert made is not None and made.ratio == pytest.approx(1.12)
        assert made.interval[0] < made.ratio < made.interval[1]
        assert made.probability_faster < 0.5
        return made

    assert not ratio(one, other).is_sure
    even = 1.1 ** (0.6745 / 1.6449)  # the same errors at a confidence of a half
    halved = replace(other, interval_us=(112 / even, 112 * even), confidence=0.5)
    assert ratio(one, halved).interval == pytest.approx(ratio(one, other).interval, rel=1e-3)
    # Nearly all of the width is the machine's own pace, the same for both.
    paced = [replace(each, pace_share=0.095) for each in (one, other)]
    assert ratio(paced[0], paced[1]).is_sure
    assert not ratio(paced[0], replace(paced[1], target="another/onnxruntime/fp32/1t")).is_sure
    # A family's law says how unsure a ratio is: never more than of errors that share nothing.
    alone, close = ratio(one, other, 1.0), ratio(one, other, 0.02)
    assert not alone.is_sure and close.is_sure
    assert alone.interval[1] / 1.12 == pytest.approx(1.1 ** math.sqrt(2))


def test_cells_of_the_same_modules_and_those_that_read_the_same_are_one_row() -> None:
    one = described()
    assert one.structure is not None
    halves = [
        replace(cell, signature=f"{i:032x}", latency_us=(cell.latency_us or 0.0) / 2)
        for i, cell in enumerate(one.cells, 90)
    ]
    other = replace(one, cells=tuple(halves))  # one network at another size
    rows = cell_differences([one, other])
    assert sorted(row.module for row in rows) == sorted(p.path for p in one.structure.places)
    for row in rows:
        first_us, second_us = row.total_us
        assert row.count == [1, 1] and first_us == 2 * (second_us or 0.0)
    assert rows[0].module in str(Comparison((one, other)))
    # At another precision the last module runs within another cell.
    last, places = len(other.cells) - 1, one.structure.places[:-1]
    assert one.structure.places[-1].cell == last
    structure = replace(one.structure, places=places)
    shorter = replace(other, cells=other.cells[:last], structure=structure)
    rows = cell_differences([one, shorter])
    assert sorted(filter(None, (row.module for row in rows))) == sorted(p.path for p in places)
    assert [row.count for row in rows if not row.module] == [[1, 0]]
    # Other modules with cells that read the same, one of them used less.
    alike = [replace(cell, signature=f"{i:032x}") for i, cell in enumerate(one.cells, 90)]
    alike[2] = replace(alike[2], uses=1)
    places = tuple(replace(place, path=f"new.{place.path}") for place in one.structure.places)
    structure = replace(one.structure, places=places)
    other = replace(one, cells=tuple(alike), structure=structure)
    assert len(cell_differences([one, other])) == 2 * len(one.cells)
    (row,) = cell_differences([one, other], alike=True)
    assert (row.count, row.total_us) == ([3, 1], [4500.0, 1500.0])
    # The same cells of a quantised file, which lists other operators for them.
    own = tuple([replace(cell, ops=("int8 Conv",)) for cell in one.cells])
    assert not cell_differences([one, replace(other, cells=own)], alike=True)


def test_a_file_of_another_precision_has_a_target_of_its_own_in_a_table() -> None:
    plain, quantised = (replace(residual(), target=f"a/b/{name}") for name in ("fp32", "int8"))
    answers: Any = {(0, 0, 0): plain, (1, 0, 0): quantised, (2, 0, 0): InputError("no network")}
    table = PredictionTable(["a", "q", "x"], [None], ["this machine"], answers)
    rows = [line.split(",")[1] for line in table.csv().splitlines()]
    assert rows == ["target", "a/b/fp32", "a/b/int8", "a/b/fp32"]
    assert [body["target"] for body in table.to_json()] == rows[1:]
    assert "a/b/int8" in table.markdown() and "a/b/int8" in printed(table.print)


def test_nothing_that_is_to_be_copied_is_cut_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However narrow the terminal: it wraps the lines itself, and a pipe has them whole."""
    monkeypatch.setenv("COLUMNS", "60")
    name, target = "a_network_with_a_long_name.onnx", "orin-agx-32gb/tensorrt-10.3/fp16"
    one = replace(residual(), network=name, target=target).against(9000.0)
    other = replace(one, target="orin-nano-4gb/tensorrt/fp16")
    answers = {(0, 0, 0): one, (0, 0, 1): other}
    table = PredictionTable([name], [None], [target, other.target], dict(answers))
    texts = (printed(table.print), str(Comparison((one, other))), str(Estimates([one, other])))
    for shown in texts:
        assert all(whole in shown for whole in (name[:-5], target, other.target, "8.12 ms", "good"))


EVIL = "=\x1b[2J\x1b]0;owned\x07|</script><img src=x>\n\x9b\u2028\u202e\udcff.onnx"


def test_names_steer_no_terminal_table_or_page() -> None:
    cells = [replace(cell, nodes=(EVIL,)) for cell in described().cells]
    odd = replace(described(), network=EVIL, cells=tuple(cells), removed=(EVIL,))
    odd = replace(odd, warnings=(EstimateWarning("file", EVIL),))
    table = PredictionTable([EVIL], [None], ["a/b/fp32"], {(0, 0, 0): odd})
    comparison = Comparison((odd, residual()))
    shown = printed(lambda console: print_estimate(console, odd, every_cell=True))
    shown += str(comparison) + printed(table.print) + str(odd) + repr(odd) + table.csv()
    shown += table.markdown()
    assert all(line.isprintable() for line in shown.split("\n"))
    assert len(table.markdown().splitlines()) == 3
    row = table.markdown().splitlines()[2]
    assert "\\|" in row and "<img" not in row.replace("\\<img", "")
    text = page([odd])
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert held is not None and json.loads(held[1])["networks"][0]["network"] == odd.network
    assert Page(text).open == [] and "img" not in Page(text).tags
    assert table.csv().splitlines()[1].startswith("'=")
    assert Table(titled("a", "b"), [["-6.5", "-x"]]).csv() == "a,b\n-6.5,'-x\n"
    narrow = Table(titled("a", "b"), [["1", "2"]], title="Wider than its table")
    assert printed(narrow.print).splitlines()[0].rstrip() == narrow.title
    for text in (page([odd, residual()]), comparison._repr_html_(), odd._repr_html_()):
        assert not re.search("[\x07\x1b\x7f-\x9f\u2028-\u202e\ud800-\udfff]", text)
    assert odd.to_json()["network"] == EVIL
