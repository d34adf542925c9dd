"""The page in a real Chromium: clicked, searched, walked with keys, printed, light and dark."""

import base64
import dataclasses
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hybridlat import Predictor
from hybridlat.report.views import page
from tests.report.estimates import described, residual, untrusted

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on the path"
)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:  # a container's root may have no sandbox
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


DRAWN = """
const first = document.querySelector("section[data-network] .graph");
return document.readyState === "complete" && (!first || first.querySelector("g.place") !== null);
"""


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page of estimates, ``dark`` or light, so many pixels wide."""

    def go(*estimates: Any, dark: bool = False, width: int = 1280, media: str = "") -> Any:
        path = tmp_path / "page.html"
        path.write_text(page(estimates), encoding="utf-8")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        look = {"media": media, "features": [scheme]}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", look)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        assert within(20, lambda: bool(browser.execute_script(DRAWN)))
        return browser

    yield go
    # Nothing went wrong on the way, and nothing was asked of anybody.
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def one(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def every(driver: Any, selector: str) -> list[Any]:
    return list(driver.find_elements("css selector", selector))


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def test_a_click_opens_a_cell_to_its_kernels_and_node_names(opened: Open) -> None:
    driver = opened(described())
    places = every(driver, "g.place")
    assert len(places) == 8 and not every(driver, "g.kernel")
    places[5].click()
    assert one(driver, "[data-place='5']").get_attribute("aria-expanded") == "true"
    kernels = [kernel.text for kernel in every(driver, "g.kernel text.op")]
    assert kernels == ["Conv", "Conv+Relu", "Conv+Add+Relu"]
    beside = one(driver, "aside").text
    for words in ("layer2.0", "64→128, 3×3/2, 28×28", "/layer2.0/Conv_0 <&>", "compute"):
        assert words in beside, words
    assert one(driver, "tr.current").get_attribute("data-cell") == "3"
    one(driver, "[data-place='5'] .box").click()
    assert not every(driver, "g.kernel")


COVERED = """
const boxes = [...document.querySelectorAll(arguments[0])].map((b) => b.getBoundingClientRect());
const over = (a, b) => a.left < b.right - 0.5 && a.top < b.bottom - 0.5;
return boxes.some((a, i) => boxes.slice(i + 1).some((b) => over(a, b) && over(b, a)));
"""


@pytest.mark.parametrize("width", [1280, 500])
def test_no_two_boxes_cover_each_other(opened: Open, width: int) -> None:
    driver = opened(described(), width=width)
    one(driver, "[data-do=all]").click()
    for selector in ("g.place > .box", "g.kernel > rect"):
        assert len(every(driver, selector)) > 7
        assert not driver.execute_script(COVERED, selector), selector


def test_search_finds_modules_operators_and_node_names(opened: Open) -> None:
    driver = opened(described())
    search = one(driver, "input[type=search]")
    for wanted, found in (("layer1", 3), ("MAXPOOL", 1), ("/fc/gemm", 1), ("nothing", 0)):
        search.clear()
        search.send_keys(wanted)
        assert one(driver, ".found").text == f"{found} of 8 cells"
        assert len(every(driver, "g.place.hit")) == found
        assert len(every(driver, "g.place.dimmed")) == 8 - found
    search.clear()
    search.send_keys("layer2\n")
    assert one(driver, "g.place.current").get_attribute("data-place") == "5"
    search.clear()
    search.send_keys("x\b")
    assert not every(driver, "g.place.dimmed") and one(driver, ".found").text == ""


def test_keys_walk_open_zoom_and_search(opened: Open) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = opened(described())
    driver.execute_script("document.querySelector('g.place.current').focus()")

    def press(keys: str) -> None:
        driver.switch_to.active_element.send_keys(keys)

    def focused() -> str:
        return str(driver.switch_to.active_element.get_attribute("data-place"))

    press(Keys.HOME)
    assert focused() == "0"
    press(Keys.ARROW_DOWN)
    press(Keys.ARROW_RIGHT)
    assert focused() == "2" and "layer1.0" in one(driver, "aside").text
    press(Keys.ENTER)
    assert len(every(driver, "g.kernel")) == 3 and focused() == "2"
    press(Keys.END)
    press("+")
    assert one(driver, "g.moved").get_attribute("transform")
    press("/")
    assert driver.switch_to.active_element.get_attribute("type") == "search"
    # One stop for the tabulator, however many cells there are.
    assert len(every(driver, "g.place[tabindex='0']")) == 1


def test_the_table_and_the_roofline_lead_to_the_graph(opened: Open) -> None:
    driver = opened(described())
    one(driver, "tr[data-cell='4'] button.show").click()
    assert one(driver, "g.place.current").get_attribute("data-place") == "6"
    dots = every(driver, ".roofline .dot")
    assert len(dots) == 5  # a Flatten computes nothing
    assert {dot.get_attribute("data-limit") for dot in dots} == {"compute", "memory"}
    one(driver, ".roofline .dot[data-cell='0']").click()
    assert one(driver, "g.place.current").get_attribute("data-place") == "0"


def test_what_a_screen_reader_is_told(opened: Open) -> None:
    driver = opened(described())
    named: list[tuple[str, str]] = []

    def told() -> bool:
        """Whether the tree, which is built a moment later than the page, has a cell in words."""
        tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        named[:] = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node.get("ignored") and "role" in node
        ]
        cells = [name for role, name in named if role == "button" and "layer1.0:" in name]
        return any("64, 3×3, 56×56" in c and "limited by compute" in c for c in cells)

    assert within(10, told), named
    for role in ("button", "searchbox", "combobox", "columnheader"):
        assert all(name for kind, name in named if kind == role), role
    assert any(role == "image" and "Roofline" in name for role, name in named)


@pytest.mark.parametrize("width", [360, 820, 1920])
def test_nothing_reaches_beyond_the_window(opened: Open, width: int) -> None:
    driver = opened(described(), untrusted(), residual(), width=width)
    seen = driver.execute_script("return document.documentElement.scrollWidth")
    assert seen <= width
    assert one(driver, ".graph-panel").rect["width"] > 0.55 * min(width, 1240)


def test_on_paper_there_are_no_tools_and_the_whole_graph(opened: Open) -> None:
    driver = opened(described(), dark=True)
    one(driver, "[data-do=closer]").click()
    assert within(3, lambda: bool(one(driver, "g.moved").get_attribute("transform")))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not one(driver, ".bar-of-tools").is_displayed()
    assert one(driver, "g.moved").value_of_css_property("transform") == "none"
    assert "255, 255, 255" in one(driver, "body").value_of_css_property("background-color")


def test_several_batches_are_a_curve_and_several_networks_are_compared(opened: Open) -> None:
    first = described()
    batches = [
        dataclasses.replace(first, batch=b, latency_us=us, interval_us=(0.9 * us, 1.1 * us))
        for b, us in ((4, 20e3), (1, 8e3), (2, 12e3))
    ]
    driver = opened(*batches)
    assert len(every(driver, "[data-curve] .point")) == 6  # latency and throughput of three
    assert not every(driver, ".comparison")
    rows = [row.text for row in every(driver, "section:first-of-type tbody tr")]
    assert [row.split()[0] for row in rows] == ["1", "2", "4"]
    assert "200 fps" in rows[2]
    driver = opened(first, untrusted())
    assert len(every(driver, ".comparison .bar")) == 2 and not every(driver, "[data-curve]")


def test_many_networks_and_intervals_without_an_upper_end_are_drawn(opened: Open) -> None:
    first = dataclasses.replace(described(), interval_us=(7e3, math.inf))
    others = [dataclasses.replace(first, batch=2), untrusted()]
    driver = opened(first, *others, *(dataclasses.replace(first, network=n) for n in "abc"))
    for path in every(driver, ".comparison .whisker, [data-curve] .band"):
        assert not re.search("NaN|Infinity", path.get_attribute("d"))
    last = "section[data-network='5'] g.place"  # without scrolling
    assert within(10, lambda: len(every(driver, last)) == 8)


def test_a_detector_prints_on_three_pages(opened: Open) -> None:
    with Predictor("orin-nano/tensorrt/fp16", store="sqlite://") as predictor:
        driver = opened(predictor.predict("yolo_cross_stage", describe=True))
    pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 3
