"""Pictures of the terminal and of the page that ``--html`` writes, taken in a real Chromium.

    python experiments/report_page.py                        the picture of the front page
    python experiments/report_page.py --to DIR NET.onnx ...  light, dark, wide, narrow; terminal

Needs chromium with its driver, and selenium. The answers are those of the shipped CPU pack: nothing
is measured.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat import Predictor
from hybridlat.report.html import page

TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
FRONT = ROOT / "data" / "nets" / "resnet50.onnx"
PICTURE = Path(__file__).parent / "figures" / "report_page.png"
OPENED = "res4_0"
COLUMNS = 110  # of the terminal
TALLEST = 3000  # pixels of a picture


class Browser:
    """A Chromium without a window, one page after another."""

    def __enter__(self) -> Browser:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for switch in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
            options.add_argument(switch)
        self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def show(self, file: Path, width: int, dark: bool) -> None:
        """Open a page in a window so many pixels wide."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
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


def write_terminal(network: Path, folder: Path) -> Path:
    """What ``hybridlat predict NET`` prints on a terminal, with its colours, as a page."""
    from rich.console import Console
    from rich.text import Text

    command = [sys.executable, "-m", "hybridlat", "predict", str(network), "--target", TARGET,
               "--measure", "never", "--store", str(folder / "s.db")]  # fmt: skip
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    ran = subprocess.run(
        command, env=environment, cwd=ROOT, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(f"$ hybridlat predict {network.name}", highlight=False)
        console.print(Text.from_ansi(ran.stdout))
        file = folder / f"{network.stem}-terminal.html"
        file.write_text(console.export_html(), encoding="utf-8")
    return file


def main() -> None:
    """Take the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", type=Path)
    parser.add_argument("--to", type=Path, help="folder for the pictures of the networks given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Browser() as browser:
        folder = Path(name)
        if not arguments.networks:
            browser.show(write_page(FRONT, folder), 1180, dark=False)
            browser.open_cell(OPENED)
            PICTURE.write_bytes(browser.picture(1180, 1560))
            print(PICTURE)
        for network in arguments.networks:
            file = write_page(network, folder)
            print(network, f"{file.stat().st_size / 1e3:.0f} kB")
            browser.show(write_terminal(network, folder), 1140, dark=False)
            (arguments.to / f"{network.stem}-terminal.png").write_bytes(
                browser.picture(1140, TALLEST)
            )
            for width in (390, 1280):
                for dark in (False, True):
                    browser.show(file, width, dark)
                    shade = "dark" if dark else "light"
                    to = arguments.to / f"{network.stem}-{width}-{shade}.png"
                    to.write_bytes(browser.picture(width, TALLEST))


if __name__ == "__main__":
    main()
