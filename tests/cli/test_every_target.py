"""Every target that ``targets`` lists is judged and trained, or a sentence says what is missing."""

import re
from collections.abc import Iterator

import pytest

from hybridlat.cli.main import run
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.target_list import list_targets
from hybridlat.evaluation import evaluate, tracking
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training import train
from tests.cli.test_cli_streams import NEEDLESS, loaded_by
from tests.evaluation.made_networks import HERE, THERE, fill, networks
from tests.evaluation.made_pack import DEVICE, TARGET, FlatModel, conv, made_store

PACKS = {f"epyc-26-2/onnxruntime-1.31/{precision}/1t" for precision in ("fp32", "int8")}
FEW, OTHER = Target.parse("few/maker-1.0/fp32/1t"), Target.parse("t4/openvino-2025.0/fp32")
CPU = Target.parse("i7-12700h/torch-2.4/fp32")
BEGINS = {str(TARGET), str(HERE)}
INSIDE = "behind .* are inside the shipped model; to judge it or to train .* import the table"
MISSING = {
    "jetson-nano/tensorrt/fp16": (f"the 21 networks {INSIDE}.*whole_networks.py --targets",) * 2,
    "v100/tensorrt/fp16": (f"the 89,759 cells {INSIDE}",) * 2,
    "l4/tensorrt/fp16": ("nothing measured on l4/tensorrt/fp16 is in the store: measure",) * 2,
    str(FEW): ("1 cell of few.* 25 are needed to fit a model: measure more",) * 2,
    str(OTHER): ("openvino has no family model", "nothing to learn from"),
    str(CPU): ("i7-12700h is a CPU", "nothing to learn from|nothing has to be trained"),
    str(THERE): ("3 that can be used: 10 are needed", "nothing has to be trained|nothing to learn"),
}
"""Of what cannot be done at once, what evaluate and train say."""


class Begins(Exception):
    """What follows takes minutes; a failure of MLflow's own would be a warning."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Records of every kind that a store may hold."""
    url = made_store(tmp_path_factory.mktemp("every"), networks=0, sweep=40)
    with Store(url) as opened:
        for target, count in ((HERE, 12), (THERE, 3), (OTHER, 12), (CPU, 3)):
            fill(opened, [target], networks(count))
        cell = conv(16, 7, 16, 3)
        opened.add_signatures({cell.hash: cell.text})
        opened.add([Measurement(FEW, cell.hash, "cell", 5.0, 0.01)])
        yield url


@pytest.fixture(autouse=True)
def _nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is said before anything is fitted to train, or recorded."""

    def begin(*_: object) -> None:
        raise Begins("it begins")

    monkeypatch.setattr(tracking, "log_evaluation", begin)
    monkeypatch.setattr(train, "Candidate", begin)
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    for module in (evaluate, train):
        monkeypatch.setattr(module, "device_of", lambda *_: DEVICE)


@pytest.mark.parametrize("target", MISSING)
def test_what_is_missing_is_one_sentence(
    target: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, words in zip(("evaluate", "train"), MISSING[target], strict=True):
        code = run([command, "--target", target, "--store", store])
        out, err = capsys.readouterr()
        assert re.search(words, " ".join((out + err).split())), out + err
        assert code == (0 if "nothing has to be trained" in out else 2)


def test_every_row_begins_or_is_missing(store: str) -> None:
    said: dict[str, str] = {}
    chosen = evaluate.EvaluationOptions(baselines=[])
    for name in {info.target for info in list_targets(store)} - PACKS:  # seconds to read
        with pytest.raises((InputError, Begins)) as caught:
            evaluate.evaluate_targets([name], chosen, store=store)
        said[name] = str(caught.value)
    begins = BEGINS | {"t4/tensorrt/fp16"}  # opens to what the store holds of that device
    assert len(said) > 30 and {name for name in said if said[name] == "it begins"} == begins
    for name in set(said) - begins:
        assert name in said[name] and ("import" in said[name] or "measure" in said[name])
    with pytest.raises(Begins, match="it begins"):
        train.train_target(TARGET, train.TrainingOptions(), store=store)


def test_what_is_missing_is_said_before_anything_heavy_is_loaded() -> None:
    words = ["--target", "jetson-nano/tensorrt/fp16", "--store", "sqlite://"]
    ends = " == ".join(f"c.run({[command, *words]})" for command in ("evaluate", "train"))
    loaded = loaded_by(f"from hybridlat.cli import main as c; assert {ends} == 2")
    assert loaded & NEEDLESS <= {"scipy", "onnx"}
