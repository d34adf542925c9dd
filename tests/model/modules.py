"""Modules of PyTorch whose FLOP its own counter tells, and the files that its exporters make.

``python -m tests.model.modules`` writes both anew; it needs PyTorch, onnx and onnxscript. The files
hold architectures alone.
"""

import csv
import io
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COUNTS, FILES = HERE / "modules.csv", HERE / "modules.zip"
EXPORTERS = ("dynamo", "torchscript")
NOT_COUNTED = {"bilinear": 2 * 16 * 40 * 30 * (20 + 1)}
"""FLOP of what the counter does not know: one operand is multiplied in after the other."""
_DATE = (2020, 1, 1, 0, 0, 0)  # the same files give the same archive


def modules() -> dict[str, tuple[Callable[[], Any], Sequence[tuple[int, ...]]]]:
    """How each module is made, and the shapes that it reads."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Call(nn.Module):  # type: ignore[misc]
        """A function as a module, with parameters of its own."""

        def __init__(self, run: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
            super().__init__()
            self.run = run
            self.own = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

        def forward(self, *read: Any) -> Any:
            return self.run(*read, *self.own)

    def einsum(equation: str, *shapes: tuple[int, ...]) -> Callable[[], Any]:
        return lambda: Call(lambda *read: torch.einsum(equation, *read), *shapes)

    def attention(**options: Any) -> Callable[[], Any]:
        return lambda: Call(lambda *read: functional.scaled_dot_product_attention(*read, **options))

    def heads(x: Any, wide: Any) -> Any:
        q, k, v = functional.linear(x, wide).view(2, 50, 3, 4, 32).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(2, 50, 128)

    def written_out(q: Any, k: Any, v: Any) -> Any:
        return ((q * 32**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v

    def dynamic(x: Any, weight: Any) -> Any:
        made = functional.linear(x.mean((2, 3)), weight).view(24, 16, 3, 3)
        return functional.conv2d(x, made, padding=1)

    def dynamic_groups(x: Any, weight: Any) -> Any:
        made = functional.linear(x.mean((2, 3)), weight).view(4 * 8, 8, 3, 3)
        return functional.conv2d(x.reshape(1, 4 * 8, 20, 20), made, padding=1, groups=4)

    def dynamic_transposed(x: Any, weight: Any) -> Any:
        made = functional.linear(x.mean((2, 3)), weight).view(16, 12, 4, 4)
        return functional.conv_transpose2d(x, made, stride=2)

    class Last(nn.Module):  # type: ignore[misc]
        """A recurrent layer without its states."""

        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    qkv = [(2, 4, 50, 32)] * 3
    few = [(2, 4, 50, 32), (2, 4, 70, 32), (2, 4, 70, 16)]
    image = [(2, 16, 20, 24)]
    return {
        "conv1d": (lambda: nn.Conv1d(16, 24, 5, stride=2), [(2, 16, 100)]),
        "conv1d_grouped": (lambda: nn.Conv1d(16, 32, 3, groups=4, padding=1), [(2, 16, 100)]),
        "conv1d_dilated": (lambda: nn.Conv1d(16, 24, 3, dilation=4), [(2, 16, 100)]),
        "conv2d": (lambda: nn.Conv2d(16, 24, 3, padding=1), image),
        "conv2d_1x1": (lambda: nn.Conv2d(16, 24, 1), image),
        "conv2d_strided": (lambda: nn.Conv2d(16, 24, (5, 3), stride=(2, 1)), image),
        "conv2d_grouped": (lambda: nn.Conv2d(16, 24, 3, groups=8), image),
        "conv2d_depthwise": (lambda: nn.Conv2d(16, 16, 7, groups=16, padding=3), image),
        "conv2d_dilated": (lambda: nn.Conv2d(16, 24, 3, dilation=3), image),
        "conv2d_circular": (
            lambda: nn.Conv2d(16, 24, 3, padding=1, padding_mode="circular"), image),
        "conv3d": (lambda: nn.Conv3d(8, 12, 3, padding=1), [(1, 8, 6, 10, 12)]),
        "conv3d_grouped": (lambda: nn.Conv3d(8, 16, (1, 3, 3), groups=4), [(1, 8, 6, 10, 12)]),
        "transposed1d": (lambda: nn.ConvTranspose1d(16, 12, 16, stride=8), [(2, 16, 40)]),
        "transposed2d": (lambda: nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1), image),
        "transposed2d_uneven": (lambda: nn.ConvTranspose2d(16, 12, (3, 4), stride=(1, 2)), image),
        "transposed2d_grouped": (lambda: nn.ConvTranspose2d(16, 24, 2, stride=2, groups=4), image),
        "transposed2d_dilated": (lambda: nn.ConvTranspose2d(16, 12, 3, dilation=2), image),
        "transposed3d": (lambda: nn.ConvTranspose3d(8, 6, 4, stride=2), [(1, 8, 4, 6, 8)]),
        "dynamic": (lambda: Call(dynamic, (24 * 16 * 9, 16)), [(1, 16, 20, 24)]),
        "dynamic_groups": (lambda: Call(dynamic_groups, (8 * 8 * 9, 8)), [(4, 8, 20, 20)]),
        "dynamic_transposed": (
            lambda: Call(dynamic_transposed, (16 * 12 * 16, 16)), [(1, 16, 9, 9)]),
        "linear": (lambda: nn.Linear(64, 96), [(2, 10, 64)]),
        "linear_of_rows": (lambda: nn.Linear(64, 96, bias=False), [(7, 64)]),
        "matmul": (lambda: Call(torch.matmul), [(2, 4, 30, 40), (2, 4, 40, 50)]),
        "matmul_broadcast": (lambda: Call(torch.matmul), [(2, 4, 30, 40), (40, 50)]),
        "matmul_transposed": (
            lambda: Call(lambda a, b: a @ b.transpose(1, 2)), [(8, 30, 40), (8, 50, 40)]),
        "matmul_reshaped": (
            lambda: Call(lambda a, b: a @ b.reshape(8, 40, 50)), [(8, 30, 40), (8, 50, 40)]),
        "bilinear": (lambda: nn.Bilinear(20, 30, 40), [(16, 20), (16, 30)]),
        "lstm": (lambda: Last(nn.LSTM(32, 48, batch_first=True)), [(3, 20, 32)]),
        "lstm_two_layers": (lambda: Last(nn.LSTM(32, 48, 2, bidirectional=True)), [(20, 3, 32)]),
        "gru": (lambda: Last(nn.GRU(32, 48)), [(20, 3, 32)]),
        "gru_both_ways": (lambda: Last(nn.GRU(32, 48, bidirectional=True)), [(20, 3, 32)]),
        "rnn": (lambda: Last(nn.RNN(32, 48)), [(20, 3, 32)]),
        "attention": (attention(), qkv),
        "attention_causal": (attention(is_causal=True), qkv),
        "attention_of_others": (attention(), few),
        "attention_masked": (
            lambda: Call(lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, m)),
            [*qkv, (2, 1, 50, 50)]),
        "attention_grouped": (
            attention(enable_gqa=True), [(2, 8, 50, 32), (2, 2, 50, 32), (2, 2, 50, 32)]),
        "attention_three_axes": (attention(), [(8, 50, 32)] * 3),
        "attention_written_out": (lambda: Call(written_out), qkv),
        "attention_projected": (lambda: Call(heads, (384, 128)), [(2, 50, 128)]),
        "encoder_layer": (
            lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), [(2, 30, 64)]),
        "einsum_1x1": (einsum("bchw,oc->bohw", (24, 16)), image),
        "einsum_scores": (einsum("bhid,bhjd->bhij"), [(2, 4, 30, 32), (2, 4, 40, 32)]),
        "einsum_dots": (einsum("...ij,...jk->...ik"), [(2, 4, 30, 32), (2, 4, 32, 40)]),
        "einsum_three": (einsum("bi,bj,oij->bo", (24, 30, 40)), [(8, 30), (8, 40)]),
        "einsum_implicit": (einsum("ij,jk"), [(30, 40), (40, 50)]),
    }  # fmt: skip


def count(module: Any, read: list[Any]) -> int:
    """What PyTorch's own counter counts, of its plain operators alone."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.mha.set_fastpath_enabled(False)
    plain = torch.backends.mkldnn.flags(enabled=False)  # its recurrent layers are not counted
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), plain, sdpa_kernel(SDPBackend.MATH), counter:
        module(*read)
    return int(counter.get_total_flops())


def export(module: Any, read: list[Any], exporter: str) -> bytes:
    """The module as a file without weights."""
    import onnx
    import torch

    from data.nets.architecture_only import strip

    file = io.BytesIO()
    dynamo = exporter == "dynamo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(
            module, tuple(read), None if dynamo else file, dynamo=dynamo, verbose=False
        )
    model = made.model_proto if made is not None else onnx.load_from_string(file.getvalue())
    return bytes(strip(model).SerializeToString())


def main() -> None:
    """Write the counts and the files anew."""
    import torch

    rows = []
    with zipfile.ZipFile(FILES, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (make, shapes) in modules().items():
            torch.manual_seed(0)
            module, read = make().eval(), [torch.randn(shape) for shape in shapes]
            rows.append((name, NOT_COUNTED.get(name) or count(module, read)))
            for exporter in EXPORTERS:
                try:
                    content = export(module, read, exporter)
                except Exception as error:  # noqa: BLE001 - of an exporter: anything
                    print(f"{name} {exporter}: {error}".split("\n")[0], file=sys.stderr)
                    continue
                entry = zipfile.ZipInfo(f"{name}.{exporter}.onnx", _DATE)
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    with COUNTS.open("w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([("module", "flop"), *rows])


if __name__ == "__main__":
    main()
