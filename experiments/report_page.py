"""The picture of the page that ``--html`` writes, taken in a real Chromium.

    python experiments/report_page.py

Needs chromium with its driver, and selenium. The answers are those of the shipped CPU pack: nothing
is measured.
"""

import base64
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat import Predictor
from hybridlat.report.views import page

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
FRONT = ROOT / "data" / "nets" / "resnet50.onnx"
PICTURE = Path(__file__).parent / "figures" / "report_page.png"
OPENED = "res4_0"
WIDTH = 1180  # pixels


def chromium() -> Any:
    """A Chromium without a window, as selenium drives it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{switch}")
    return webdriver.Chrome(options, Service(shutil.which("chromedriver")))


class Browser:
    """A Chromium without a window, one page after another."""

    def __enter__(self) -> "Browser":
        self.driver = chromium()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def show(self, file: Path, width: int) -> None:
        """Open a page in a window so many pixels wide."""
        scheme = {"name": "prefers-color-scheme", "value": "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        self.driver.get(file.as_uri())
        time.sleep(1.0)  # drawn and laid out

    def open_cell(self, path: str) -> None:
        """Open the first cell of a module to its kernels."""
        self.driver.execute_script(
            "[...document.querySelectorAll('g.place')].find((g) => "
            "g.getAttribute('aria-label').startsWith(arguments[0] + ':'))"
            "?.dispatchEvent(new MouseEvent('click', {bubbles: true}))", path,
        )  # fmt: skip

    def picture(self, width: int, tallest: int) -> bytes:
        """The page from its top, as a PNG."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, tallest), "scale": 1}
        found = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        return base64.b64decode(found["data"])


def write_page(network: Path, folder: Path) -> Path:
    """The page of one network, from what the shipped pack and model know."""
    with Predictor(TARGET, store=str(folder / "s.db"), measure="never") as predictor:
        predictor.predict(network)  # the engine is asked once; what is drawn is a later answer
        estimate = predictor.predict(network, name=network.name, describe=True)
    file = folder / f"{network.stem}.html"
    file.write_text(page([estimate]), encoding="utf-8")
    return file


def main() -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        browser.show(write_page(FRONT, Path(folder)), WIDTH)
        browser.open_cell(OPENED)
        PICTURE.write_bytes(browser.picture(WIDTH, 1560))
        print(PICTURE)


if __name__ == "__main__":
    main()
