"""Settings for all tests, and the fake engine offered as another package offers one."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx.parser
import onnxruntime
import pytest
from hypothesis import settings

from hybridlat import Predictor
from hybridlat.measuring import machine, replicas, visiting
from tests.fakes.fake_backend import FAKE, QUICK
from tests.fakes.measured_here import measuring_process
from tests.pages import forking

# Machines that run tests are shared and slow at times: time is no property of the code here.
EXAMPLES = 200 if os.environ.get("HYBRIDLAT_SLOW_TESTS") else 50
settings.register_profile("hybridlat", deadline=None, max_examples=EXAMPLES)
settings.load_profile("hybridlat")

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "tests" / "fakes" / "plugin"
sys.path.append(str(PLUGIN))
# Processes that tests start find the package, the tests' fakes and the plug-in as they do here.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PLUGIN)])
# The machine counts as idle, whatever else runs on it beside the tests.
os.environ["HYBRIDLAT_LOCK"] = f"{tempfile.gettempdir()}/hybridlat-tests-{os.getpid()}.lock"
os.environ["HYBRIDLAT_PROC"] = str(ROOT / "tests" / "fakes" / "proc")
# It is a machine with the CPU that IDENTITY names, whatever its own is: one that no pack knows.
IDENTITIES = ROOT / "tests" / "fakes" / "identities"
IDENTITY = IDENTITIES / os.environ.get("IDENTITY", "unknown")
assert IDENTITY.is_dir(), f"{IDENTITY} is no identity"
os.environ["HYBRIDLAT_IDENTITY"] = str(IDENTITY)

EMPTY = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> empty (float[1] x) => (float[1] y) { y = Relu(x) }'
)


def pytest_sessionstart() -> None:
    """Keep denormal numbers in this process: hypothesis draws them, and refuses to go without.

    The first session of ONNX Runtime decides for its thread, and those that are measured take
    denormals for zero. Which test is the first in a process is left to chance.
    """
    onnxruntime.InferenceSession(EMPTY.SerializeToString(), providers=["CPUExecutionProvider"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pages first: they take the longest, and workers that are done steal what follows them."""
    items.sort(key=lambda item: item.path.name != "test_pages.py")


@pytest.fixture(autouse=True, scope="session")
def measured_here() -> Iterator[None]:
    """A fake engine is measured in this process; ``measuring/test_process.py`` has real ones."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (replicas, machine):
            patch.setattr(module, "MeasuringProcess", measuring_process)
        patch.setattr(visiting, "WARM_UP_S", 0.0)  # a fake engine is always warm
        yield


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a process that commands are forked from."""
    path = tmp_path_factory.mktemp("fork") / "socket"
    with forking(path):
        yield path


@pytest.fixture
def unknown_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pack answers for this machine."""
    monkeypatch.setenv("HYBRIDLAT_IDENTITY", str(IDENTITIES / "unknown"))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def fake(store: str) -> Iterator[Predictor]:
    with Predictor(FAKE, store=store, settings=QUICK) as predictor:
        yield predictor
