"""Whatever file it is given, hybridlat answers with an estimate or a sentence."""

from pathlib import Path

import pytest

from tests.fuzz import driver

MODULES = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.py")}
KINDS = sorted(name for name, text in MODULES.items() if "\ndef attempt(" in text)


@pytest.mark.parametrize("kind", KINDS)
def test_no_traceback_and_no_crash(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The driver's child tries the inputs, so that an engine that crashes is seen as such."""
    code = driver.main([kind, "0", "100"])
    out, err = capfd.readouterr()
    assert code == 0, (out + err)[-3000:]
    summary = out.splitlines()[-1]
    assert "answered" in summary and "refused" in summary  # both broken files and sound ones
