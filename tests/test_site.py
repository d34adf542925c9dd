"""The site is built offline and without a warning, and fetches nothing when it is read."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hybridlat
from hybridlat import errors
from hybridlat.cli.main import COMMANDS

pytest.importorskip("sphinx", reason="Sphinx builds the site: install the extra docs or dev")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make docs`` builds it, with a proxy that leads nowhere."""
    out = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going",
         "-c", str(ROOT / "docs"), "-d", str(out / "doctrees"), str(ROOT), str(out / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        env={**nowhere, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(out)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "site"


def fetched(page: Path) -> list[str]:
    """What a browser loads when it shows a page or a style sheet."""
    loads = r"<(?:link|script|img|iframe|source)\b[^>]*?\b(?:href|src)=\"([^\"]+)\""
    if page.suffix == ".css":
        loads = r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)"
    return re.findall(loads, page.read_text(encoding="utf-8"))


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    elsewhere = {
        f"{page.relative_to(site)}: {url}"
        for page in pages for url in fetched(page)
        if re.match(r"(https?:)?//", url)
    }  # fmt: skip
    assert not elsewhere


def test_the_reference_has_every_command_and_option(site: Path) -> None:
    text = (site / "docs" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f'id="hybridlat-{name}"' not in text]
    assert all(option in text for option in ("--max-latency", "--tolerance", "--dry-run"))


def test_the_reference_has_every_public_name_and_error(site: Path) -> None:
    text = (site / "docs" / "reference" / "python.html").read_text(encoding="utf-8")
    names = [f"hybridlat.{name}" for name in hybridlat.__all__ if not name.startswith("__")]
    names.remove("hybridlat.HybridlatError")  # under the module that holds all errors
    names += [
        f"{kind.__module__}.{kind.__name__}"
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    ]
    assert not [name for name in names if f'id="{name}"' not in text]
