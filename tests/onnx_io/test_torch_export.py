"""A PyTorch module as a network: its mode, its inputs, and PyTorch's absence."""

import contextlib
import importlib.util
import sys
import threading
import types
import warnings
from typing import Any

import onnx
import pytest

import hybridlat
from hybridlat.api.arguments import Item, Query
from hybridlat.errors import InputError, MissingExtra, NetworkError
from hybridlat.onnx_io import torch_export
from tests.networks import NETS, classifier

FAKE = "fake/fake-1.0/fp32/1t"
needs_torch = pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("onnxscript")),
    reason="torch and onnxscript are not installed: they bring 800 megabytes",
)


class Stub:
    """A module of one part to somebody who has not imported PyTorch, as far as modes go."""

    training = True

    def modules(self) -> "list[Stub]":
        return [self]

    def eval(self) -> None:
        self.training = False


Stub.__name__, Stub.__module__ = "Module", "torch.nn.modules.module"


class Net(Stub):
    pass


def test_a_package_that_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs the package 'onnxscript'.*\.\[torch\]"):
        torch_export.export(Net(), (1, 32, 8, 8))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra) as caught:
        hybridlat.predict(Net(), input=(1, 32, 8, 8), target=FAKE, store="sqlite://")
    assert str(caught.value) == (
        "a torch.nn.Module as a network needs the package 'torch': install it with "
        '`pip install ".[torch]"` in a clone of hybridlat'
    )


def test_exports_in_several_threads_leave_a_module_in_its_own_mode() -> None:
    net, modes = Net(), list[bool]()

    def export() -> None:
        with torch_export.as_deployed(net):
            modes.append(net.training)

    with torch_export.as_deployed(net):
        other = threading.Thread(target=export)
        other.start()
        other.join(0.1)  # it waits for this one, and has not seen the module's mode
        assert not modes and not net.training
    other.join()
    assert modes == [False] and net.training


def test_the_line_of_an_operator_is_the_innermost_of_the_models_own_source() -> None:
    stack = (
        'File "/models/resnet.py", line 808, in forward\n    x = self.layer1(x)\n'
        '  File "/lib/torch/nn/modules/container.py", line 253, in forward\n    input = module(x)\n'
        '  File "/models/blocks.py", line 147, in forward\n    x = self.bn1(x)\n'
        '  File "/lib/torch/nn/modules/batchnorm.py", line 210, in forward'
    )
    assert torch_export.source_line(stack, "/lib/torch") == "blocks.py:147"
    assert torch_export.source_line(stack[-70:], "/lib/torch") == ""
    assert torch_export.source_line("", "/lib/torch") == ""


def test_what_is_missing_or_too_much_is_named() -> None:
    with pytest.raises(InputError, match=r"Net is a torch\.nn\.Module.*give one or its shape"):
        Item(Net()).opened(Query())
    with pytest.raises(InputError, match="give the sizes of Net as its input"):
        Item(Net(), example=(1, 32, 8, 8)).opened(Query(shapes={"x": (1, 32, 8, 8)}))
    with pytest.raises(InputError, match=r"goes with a torch\.nn\.Module"):
        Item("net.onnx", example=(1, 32, 8, 8)).opened(Query())
    assert not torch_export.is_module(classifier(8)) and torch_export.is_module(Net())


def test_every_question_takes_a_module_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    file, inputs = NETS / "squeezenet.onnx", list[object]()

    def export(_: object, example: object, batch: int | None) -> onnx.ModelProto:
        inputs.append(example)
        return onnx.load(file)

    monkeypatch.setattr(torch_export, "export", export)
    like = (1, 3, 224, 224)
    (row, *_) = hybridlat.recommend(Net(), "l4", like, store="sqlite://")
    (same, *_) = hybridlat.recommend(file, "l4", store="sqlite://")
    assert (row.network, row.latency_us) == ("Net", same.latency_us)
    with hybridlat.Predictor("l4/tensorrt/fp16", store="sqlite://") as predictor:
        one, other = (predictor.explain(n, 900.0, x) for n, x in ((Net(), like), (file, None)))
        assert str(one) == str(other)
        sizes, same_sizes = (
            predictor.sweep(n, "size", [128, 224], x) for n, x in ((Net(), like), (file, None))
        )
        again = predictor.sweep(Net(), "batch", [1, 2], like)
    assert [e.latency_us for e in sizes.estimates.values()] == [
        e.latency_us for e in same_sizes.estimates.values()
    ]
    assert sizes.estimates[128].network == "Net at size 128"
    assert [*again.estimates] == [1, 2] and inputs == [like] * (3 + 1 + 2)


def module(torch: Any) -> Any:
    """Two blocks alike, whose values an untrained module has in common, a learned scalar, a second
    input that may be added, dropout, a head."""

    class Small(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(
                torch.nn.Sequential(
                    torch.nn.Conv2d(32, 32, 3, padding=1, bias=False), torch.nn.BatchNorm2d(32)
                )
                for _ in range(2)
            )
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.register_buffer("mean", torch.zeros(1, 32, 1, 1))
            self.register_buffer("even", torch.ones(1, 1, 1, 1).expand(1, 32, 1, 1))
            self.dropout = torch.nn.Dropout()
            self.head = torch.nn.Linear(32, 10)

        def forward(self, x: Any, unread: Any = None, y: Any = None) -> Any:
            x = (x - self.mean) * self.even
            for block in self.blocks:
                x = torch.relu(block(x)) * self.scale
            if y is not None:
                x = x + y
            x = x.mean((2, 3))
            return self.head(self.dropout(x.view(x.size(0), -1)))

    return Small()


@needs_torch
def test_a_module_is_read_as_it_is_deployed() -> None:
    torch = importlib.import_module("torch")
    net = module(torch).train()
    net.blocks[0][1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def shapes_and_ops(example: Any, batch: int | None = None) -> tuple[list[Any], list[str]]:
        opened = Item(net, example=example).opened(Query(batch))
        assert opened.file.name == "Small"
        assert len(opened.file.parsed.model.SerializeToString()) < 4096  # the weights are 75 kB
        network = opened.file.network()
        return (
            [network.types[name].shape for name in network.inputs],
            [node.op for node in network.nodes],
        )

    inputs, ops = shapes_and_ops(torch.zeros(2, 32, 8, 8))
    assert inputs == [(2, 32, 8, 8)]
    block = ["Conv", "Relu", "Mul"]  # no Dropout, norms folded
    assert ops == ["Sub", "Mul", *block, *block, "ReduceMean", "Reshape", "Gemm"]
    assert shapes_and_ops((1, 32, 8, 8), batch=5)[0] == [(5, 32, 8, 8)]
    inputs, ops = shapes_and_ops([torch.zeros(1, 32, 8, 8), None, (1, 32, 8, 8)])
    assert inputs == [(1, 32, 8, 8), (1, 32, 8, 8)] and "Add" in ops
    # The one that nothing reads has the shape of the head's weights.
    assert len(shapes_and_ops([(1, 32, 8, 8), (10, 32), (1, 32, 8, 8)])[0]) == 3
    assert shapes_and_ops({"x": (1, 32, 8, 8), "y": (1, 32, 8, 8)})[0] == inputs
    parts = (net, net.blocks[0][0], net.blocks[0][1], net.dropout)
    assert [part.training for part in parts] == [True, True, False, True]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


@needs_torch
def test_a_module_is_predicted_for_with_its_batches(capfd: pytest.CaptureFixture[str]) -> None:
    torch = importlib.import_module("torch")
    net = module(torch)
    found: Any = hybridlat.predict(
        net, FAKE, torch.zeros(1, 32, 8, 8), store="sqlite://", measure="never", batch=[1, 4]
    )
    assert [(e.network, e.batch) for e in found] == [("Small", 1), ("Small", 4)]
    with hybridlat.Predictor(FAKE, store="sqlite://", measure="never") as predictor:
        [one, other] = predictor.predict_many([net, (net, (2, 32, 8, 8))], input=(1, 32, 8, 8))
    assert [(e.network, e.batch) for e in (one, other)] == [("Small 0", 1), ("Small 1", 2)]
    steps = (torch.nn.LSTM(8, 4), FAKE, torch.zeros(20, 2, 8))
    how: Any = {"store": "sqlite://", "measure": "never"}
    assert hybridlat.predict(*steps, **how).batch == 2
    with pytest.raises(InputError, match="batch=4 is the first size of LSTM's input, which holds"):
        hybridlat.predict(*steps, batch=4, **how)
    assert capfd.readouterr() == ("", "")


@needs_torch
def test_a_module_that_does_not_take_its_input_says_why() -> None:
    torch = importlib.import_module("torch")
    net = module(torch).train()
    with pytest.raises(NetworkError, match=r"\(\w+Error: .*dimension of length 32") as error:
        torch_export.export(net, (1, 5, 8, 8))
    assert "\n" not in str(error.value) and net.training
    again = torch.export.export(net, (torch.zeros(1, 32, 8, 8),)).module()
    assert torch_export.export(again, (1, 32, 8, 8)).graph.node
    with warnings.catch_warnings(action="ignore"):  # tracing is deprecated
        scripted = torch.jit.trace(net.eval(), torch.zeros(1, 32, 8, 8))
    with pytest.raises(NetworkError, match="this one was scripted or traced from"):
        torch_export.export(scripted, (1, 32, 8, 8))
    with pytest.raises(InputError, match="a str is no example input"):
        torch_export.export(net, ("image",))
    with pytest.raises(InputError, match="every size must be at least 1"):
        torch_export.export(net, (0, 32, 8, 8))


@needs_torch
def test_what_a_module_has_learned_makes_no_other_network() -> None:
    torch = importlib.import_module("torch")
    fresh, trained = module(torch), module(torch)
    with torch.no_grad():
        for value in (*trained.parameters(), trained.mean, *trained.blocks.buffers()):
            if value.is_floating_point():
                value.uniform_(0.2, 0.9)
    one, other = (torch_export.export(net, (1, 32, 8, 8)) for net in (fresh, trained))
    ops = [node.op_type for node in one.graph.node]
    assert ops == [node.op_type for node in other.graph.node]
    assert ops.count("Conv") == 2 and ops.count("Mul") == 3 and "BatchNormalization" not in ops
    assert all(len(node.input) == 3 for node in one.graph.node if node.op_type == "Conv")
    first = next(node.name for node in one.graph.node if node.op_type == "Conv")
    assert first.startswith("/blocks.0/blocks.0.1/Conv (test_torch_export.py:")


@needs_torch
def test_a_module_keeps_its_values_whether_or_not_it_can_be_exported() -> None:
    torch = importlib.import_module("torch")
    net = module(torch)
    net.tied = torch.nn.Parameter(net.blocks[0][0].weight.data)
    net.nothing = torch.nn.Parameter(torch.empty(0, 3))
    net.elsewhere = torch.nn.Parameter(torch.empty(4, device="meta"))
    loss = net(torch.ones(1, 32, 8, 8)).sum()  # its gradient is still to come
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for size in (32, 5):
        with pytest.raises(NetworkError) if size == 5 else contextlib.nullcontext():
            torch_export.export(net, (1, size, 8, 8))
        for name, value in net.state_dict().items():
            assert name == "elsewhere" or torch.equal(before[name], value), name
    with torch_export.distinct_values(net):
        scale = net.scale.item()
        assert scale not in (0.0, 1.0) and net.blocks[0][0].weight[0, 0, 0, 0] != scale
    assert net.scale.item() == 1.0
    loss.backward()
    assert net.scale.grad is not None
