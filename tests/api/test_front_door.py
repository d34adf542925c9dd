"""The front door: signatures, wrong arguments, and how answers show themselves."""

import copy
import dataclasses
import inspect
import json
import math
import pickle
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

import hybridlat
from hybridlat import Predictor
from hybridlat.api.arguments import PredictOptions, PredictorOptions
from hybridlat.errors import HybridlatError, InputError, MissingExtra
from hybridlat.onnx_io import to_onnx
from hybridlat.report.prediction_table import COLUMNS
from hybridlat.schema.target import Target
from tests.cli.shell import python
from tests.fakes.fake_backend import FAKE, QUICK
from tests.networks import NETS, classifier
from tests.report.estimates import described, residual, untrusted
from tests.report.test_terminal import hold_against

GPU, PACK = "l4/tensorrt/fp16", "epyc-26-2/onnxruntime-1.31/fp32/1t"
NET = to_onnx(classifier(), seed=1)


def test_every_keyword_is_explained_and_spelt_out() -> None:
    spelt = inspect.signature(Predictor).parameters
    assert not [p for p in spelt.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert PredictorOptions.__annotations__.keys() == spelt.keys() - {"target"}
    defaults = [spelt[word].default for word in ("tolerance", "measure", "confidence")]
    assert defaults == [None, "auto", 0.9]
    shown = inspect.signature(hybridlat.predict).parameters  # in help and notebooks
    assert shown.keys() == {"source", "target", "input", *PredictOptions.__annotations__}
    defaults = [shown[word].default for word in ("describe", "batch", "measure")]
    assert defaults == [True, None, "auto"]
    for call, words in ((Predictor, spelt), (hybridlat.predict, PredictOptions.__annotations__)):
        assert not [word for word in words if word not in str(inspect.getdoc(call))]


def test_types_reach_the_user(store: str) -> None:
    """Checked by mypy."""
    assert_type(hybridlat.predict(NET, FAKE, store=store, measure="never"), hybridlat.Estimate)
    with Predictor(FAKE, store=store, measure="never") as predictor:
        curve = predictor.predict(NET, batch=[1, 2])
        assert_type(curve, hybridlat.Estimates[hybridlat.Estimate])
        assert [one.batch for one in curve] == [1, 2]
        assert_type(next(predictor.predict_many([NET])), hybridlat.Estimate)
        answer = next(predictor.predict_many([NET], errors="return"))
        assert_type(answer, hybridlat.Estimate | hybridlat.HybridlatError)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((FAKE, 4), {}, "input=4 goes with a torch.nn.Module, and a bytes is none: .*batch=8"),
        ((4, FAKE), {}, "4 is no target: give its name"),
        ((FAKE, (1, 3, 8, 8)), {}, "goes with a torch.nn.Module"),
        ((), {"device": "l4"}, "give a target as well, as in target='l4/tensorrt/fp16'"),
        ((FAKE,), {"device": "cuda"}, "cuda is not a data sheet of a device"),
        ((Target("l4", "tensorrt", "fp17"),), {}, "'fp17' is not a precision"),
        ((Target("L4", "TensorRT", "fp16"),), {}, "'L4/TensorRT/fp16' is not a target"),
        ((), {"threads": 0}, "threads=0: give a whole number"),
        ((FAKE,), {"measure": "sometimes"}, "choose auto, never or always"),
        ((FAKE,), {"tolerance": "5%"}, "tolerance='5%' is no share .*: write 0.05 for 5 %"),
        ((FAKE,), {"tolerance": 0}, "tolerance=0 is no share .*: write 0.05 for 5 %"),
        ((FAKE,), {"confidence": 1 - 1e-16}, "confidence=.* is no share .*: write 0.9 for 90 %"),
        *(
            ((FAKE,), {"shapes": odd}, r'give shapes=\{"input": \(1, 3, 224, 224\)\}')
            for odd in (5, "abc", {"input": "abc"}, {"input": 5}, {"input": (1, 2.5)})
        ),
    ],
)
def test_wrong_arguments_say_what_to_write(arguments: Any, keywords: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hybridlat.predict(NET, *arguments, store="sqlite://", **keywords)


ODD: tuple[Any, ...] = ("x", "1", math.nan, True, 10**400, [], object())
CALLS: dict[str, Callable[[Predictor, Any], object]] = {
    "store": lambda _, odd: hybridlat.predict(NET, GPU, store=odd),
    "threads": lambda _, odd: Predictor(threads=odd, store="sqlite://"),
    "settings": lambda _, odd: Predictor(GPU, settings=odd),
    "progress": lambda _, odd: Predictor(GPU, progress=odd),
    "tolerance": lambda _, odd: Predictor(GPU, tolerance=odd),
    "confidence": lambda _, odd: Predictor(GPU, confidence=odd),
    "device": lambda _, odd: Predictor(GPU, device=odd),
    "name": lambda one, odd: one.predict(NET, name=odd),
    "batch": lambda one, odd: one.predict(NET, batch=odd),
    "jobs": lambda one, odd: one.predict_many([NET], jobs=odd),
    "known": lambda one, odd: one.give({"resnet18": odd}),
    "measured_us": lambda one, odd: one.explain(NET, odd),
    "over": lambda one, odd: one.sweep(NET, odd, [1, 2]),
    "values": lambda one, odd: one.sweep(NET, "batch", odd),
    "value": lambda one, odd: one.sweep(NET, "width", [1, odd]),
    "fps": lambda one, odd: one.predict(NET).against(fps=odd),
    "max_latency_us": lambda one, odd: one.predict(NET).against(odd),
    "latency_us": lambda one, odd: one.predict(NET).probability_below(odd),
    "pattern": lambda _, odd: hybridlat.recommend(NET, odd),
    "targets": lambda _, odd: hybridlat.list_targets("sqlite://", odd),
}
FINE = {
    "store": ("x", "1"), "name": ("x", "1"), "targets": ("x", "1"), "latency_us": (10**400,),
    "pattern": ("x", "1"),
}  # fmt: skip


@pytest.mark.parametrize("keyword", CALLS)
def test_what_is_no_value_of_a_keyword_is_a_sentence(keyword: str) -> None:
    with Predictor(GPU, store="sqlite://") as predictor:
        for odd in ODD:
            if odd not in FINE.get(keyword, ()):
                with pytest.raises(HybridlatError) as caught:
                    CALLS[keyword](predictor, odd)
                assert len(str(caught.value)) > 10, odd
        if keyword in ("confidence", "values", "value", "measured_us", "latency_us", "pattern"):
            with pytest.raises(InputError):
                CALLS[keyword](predictor, None)


@pytest.mark.parametrize("kind", [np.float32, Fraction])
def test_numbers_of_every_kind_are_those_of_json(kind: Callable[[Any], Any]) -> None:
    plain: Any = {"tolerance": 0.25, "confidence": 0.5}
    own = {name: kind(value) for name, value in plain.items()}
    answers = [hybridlat.predict(NET, GPU, store="sqlite://", **each) for each in (plain, own)]
    one, other = (dataclasses.replace(answer, elapsed_s=0.0).to_json() for answer in answers)
    assert json.dumps(one) == json.dumps(other)
    with Predictor(threads=np.int32(1), store="sqlite://") as predictor:  # type: ignore[arg-type]
        assert type(predictor.target.threads) is int


def test_networks_are_compared_and_measured(tmp_path: Path) -> None:
    options: Any = {"store": str(tmp_path / "s.db"), "settings": QUICK}
    other = to_onnx(classifier(16), seed=1)
    found = hybridlat.compare([NET, other], FAKE, **options)
    assert found.speed_up[0] == 1 and found.speed_up[1] not in (None, 1)
    assert "network 1" in str(found) and "against A" in found._repr_html_()
    assert json.dumps(found.to_json())
    assert hybridlat.measure(NET, FAKE, **options).known == len(found.estimates[0].cells)
    for sources, message in (([NET], "targets: add one"), ("a.onnx", "^compare takes a list")):
        with pytest.raises(InputError, match=message):
            hybridlat.compare(sources, FAKE, **options)
    with Predictor(FAKE, store="sqlite://") as predictor:
        with pytest.raises(InputError, match="a target is given to Predictor"):
            predictor.predict(NET, FAKE)
        with pytest.raises(InputError, match="for several there is predict_many"):
            predictor.predict([NET, NET])
        with pytest.raises(InputError, match="what='cell': choose cells, network or both"):
            predictor.measure(NET, what="cell")  # type: ignore[arg-type]


def test_python_and_notebooks_show_what_was_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    nothing = dataclasses.replace(untrusted(), latency_us=None, interval_us=None)
    cell = dataclasses.replace(residual().cells[0], nodes=("Constant_17",) * 84)
    many = hybridlat.Estimates(iter([residual(), untrusted(), InputError("<no> network")]))
    batches = hybridlat.Estimates([dataclasses.replace(residual(), batch=n) for n in (1, 2)])
    texts = [repr(nothing), repr([residual(), untrusted()]), repr(cell), str(described())]
    texts += [str(many), str(batches), str(hybridlat.Estimates())]
    pages = [one._repr_html_() for one in (described(), untrusted(), many)]
    hold_against("python.txt", "\n\n".join([*texts, *pages]) + "\n")


def test_frames_have_a_row_for_each_cell_or_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = described().to_frame()
    assert list(cells["uses"]) == [cell.uses for cell in described().cells]
    assert list(cells["total_us"]) == [cell.total_us for cell in described().cells]
    assert {"low_us", "high_us", "share", "flop", "limit", "signature"} <= {*cells.columns}
    frame = hybridlat.to_frame([residual(), untrusted()])
    assert tuple(frame.columns) == COLUMNS[:-1] and list(frame["batch"]) == [1, 8]
    failed = hybridlat.Estimates([residual(), InputError("no network")])
    assert list(failed.to_frame()["error"])[1:] == ["no network"]
    assert str(failed[:1]) == str(hybridlat.Estimates(failed[:1])) != str([failed[0]])
    compared = hybridlat.to_frame(hybridlat.Comparison((residual(), untrusted())))
    assert compared.equals(frame) and hybridlat.to_frame(residual()).equals(frame[:1])
    curve = hybridlat.Sweep("batch", {1: residual(), 8: untrusted()})
    assert list(hybridlat.to_frame(curve)["step"]) == list(curve.steps)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"to_frame needs .* `pip install \"\.\[train\]"):
        residual().to_frame()


@pytest.mark.parametrize(
    ("source", "name", "word", "file"),
    [
        ("resnet18", None, "resnet18", f"{NETS / 'resnet18.onnx'}"),
        ("resnet18", "mine", "resnet18", f"{NETS / 'resnet18.onnx'}"),
        (NETS / "resnet18.onnx", "a b", f"{NETS / 'resnet18.onnx'}", f"{NETS / 'resnet18.onnx'}"),
        (to_onnx(classifier(), seed=None), "resnet18", "resnet18.onnx", "resnet18.onnx"),
        (to_onnx(classifier(), seed=None), "r at 0.5", "'r at 0.5.onnx'", "'r at 0.5.onnx'"),
    ],
)
def test_commands_name_a_file_that_is_or_can_be_written(
    source: Any, name: str | None, word: str, file: str
) -> None:
    with Predictor("orin-nano/tensorrt/fp16", store="sqlite://") as predictor:
        answer = predictor.predict(source, name=name)
    assert answer.network == name or name is None
    commands = [remark.fix for remark in answer.warnings if "hybridlat plan" in remark.fix]
    assert [f"hybridlat plan {word} --target" in command for command in commands] == [True]
    assert f"trtexec --onnx={file} " in answer.check


def test_a_page_is_text_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert described().to_html(path) is None
    assert path.read_text(encoding="utf-8") == described().to_html()
    both = hybridlat.to_html([residual(), untrusted()])
    assert both == hybridlat.to_html(hybridlat.Comparison((residual(), untrusted())))
    assert "side by side" in str(both) and hybridlat.to_html(residual())
    for odd in (None, 5, "r.onnx", [None], [[residual()]]):
        for call in (hybridlat.to_html, hybridlat.to_frame):
            with pytest.raises(InputError, match=r"takes an estimate, .* is no estimate$"):
                call(odd)
    with pytest.raises(InputError, match="there is none"):
        hybridlat.to_html([])


@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy])
def test_a_predictor_is_neither_copied_nor_sent(send: Callable[[Any], Any]) -> None:
    with Predictor(GPU) as one, pytest.raises(InputError, match="make one in each process"):
        send(one)


def test_importing_loads_nothing_and_a_repr_no_pandas() -> None:
    script = (
        "import sys, hybridlat\n"
        "print(*sorted(m for m in sys.modules if m.startswith('hybridlat')))\n"
        f"e = hybridlat.predict({str(NETS / 'squeezenet.onnx')!r}, {PACK!r}, store='sqlite://')\n"
        "print('rich' in sys.modules); repr(e), str(e), e._repr_html_()\n"
        "print('pandas' in sys.modules)"
    )
    done = python("-c", script)
    modules = "hybridlat hybridlat.schema hybridlat.schema.plugins hybridlat.schema.shown"
    assert done.stdout.splitlines() == [modules, "False", "False"]


def test_every_field_of_every_exported_type_is_explained() -> None:
    missing = []
    for name in hybridlat.__all__:
        kind = getattr(hybridlat, name)
        fields = getattr(kind, "__dataclass_fields__", getattr(kind, "__struct_fields__", ()))
        text = str(inspect.getdoc(kind))
        known = {f for f in fields if f"``{f}``" in text or f"    {f}: " in text}
        missing += [f"{name}.{field}" for field in fields if field not in known]
    assert missing == []
