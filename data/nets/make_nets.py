"""Make the architecture-only networks of this folder: `python data/nets/make_nets.py [NAME ...]`.

Without names all are made. The README's table is written anew each time, from the files.
Packages, all for the CPU: torch 2.13, onnx, onnxscript, onnxruntime; timm 1.0 (with --no-deps:
torchvision is replaced by a stub below) and what it imports, pyyaml, huggingface_hub, safetensors
and pillow. Nothing is downloaded: networks have random weights, which are dropped again.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from architecture_only import facts, run, shapes, strip
from recipes import RECIPES, Recipe

if TYPE_CHECKING:
    import torch

FOLDER = Path(__file__).parent


class _TorchvisionStub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for torchvision, of which timm's models use nothing but names.

    timm imports it for data sets and image transforms. Every attribute of every submodule is an
    empty class, which in turn has every attribute.
    """

    class _Name(type):
        def __getattr__(cls, name: str) -> str:
            if name.startswith("__"):
                raise AttributeError(name)
            return name

    class _Module(types.ModuleType):
        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            # Kept, for a class must be the same each time it is asked for.
            setattr(self, name, _TorchvisionStub._Name(name, (), {}))
            value: type = self.__dict__[name]
            return value

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def network(recipe: Recipe) -> torch.nn.Module:
    """Return the recipe's network for inference, every parameter different from all others."""
    import torch

    torch.manual_seed(0)
    if recipe.source == "own":
        module, name = recipe.model.split(":")
        model: torch.nn.Module = getattr(importlib.import_module(module), name)()
    else:
        if importlib.util.find_spec("torchvision") is None:
            sys.meta_path.append(_TorchvisionStub())
        import timm

        # Layers that the exporters do not know, if an option calls for them, are left out.
        timm.layers.set_exportable(True)
        model = timm.create_model(recipe.model, pretrained=False)
        if recipe.merge_branches:
            model = timm.utils.reparameterize_model(model)
    model.eval()
    # Exporters merge equal tensors, and those of an untrained network are equal: all scales are 1.
    # Positive, because some are variances.
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.uniform_(0.01, 0.1)
    return model


def export(recipe: Recipe) -> onnx.ModelProto:
    """Export the recipe's network with the exporter and opset that it names."""
    import torch

    model = network(recipe)
    image = torch.rand(1 if not recipe.symbolic_batch else 2, 3, *recipe.image)
    common: dict[str, Any] = {"opset_version": recipe.opset, "input_names": ["input"]}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if recipe.exporter == "dynamo":
            dynamic = ({0: "batch"},) if recipe.symbolic_batch else None
            program = torch.onnx.export(
                model, (image,), dynamo=True, dynamic_shapes=dynamic, verbose=False, **common
            )
            assert program is not None
            return program.model_proto
        outputs = model(image)
        names = [f"output{n}" for n in range(len(outputs))] if isinstance(outputs, tuple) else []
        names = names or ["output"]
        axes = {name: {0: "batch"} for name in ("input", *names)}
        buffer = io.BytesIO()
        torch.onnx.export(
            model,
            (image,),
            buffer,
            dynamo=False,
            output_names=names,
            dynamic_axes=axes if recipe.symbolic_batch else None,
            **common,
        )
    return onnx.load_from_string(buffer.getvalue())


def load_light(recipe: Recipe) -> onnx.ModelProto:
    """Load one of the networks without weights that come with the onnx package."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return onnx.load(folder / f"light_{recipe.model}.onnx")


def make(recipe: Recipe) -> None:
    """Write the recipe's file, after checks that it is complete and runs."""
    model = strip(load_light(recipe) if recipe.source == "onnx" else export(recipe))
    shapes(model)
    milliseconds = run(model)
    path = FOLDER / f"{recipe.name}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path.name:34} {path.stat().st_size / 1e3:6.1f} kB {milliseconds:8.1f} ms", flush=True)


def write_readme() -> None:
    """Write the table of all files into the README, between its two markers."""
    lines = [
        "| file | family | source | exporter | opset | input | nodes | parameters (M) | GFLOP |",
        "|---|---|---|---|--:|---|--:|--:|--:|",
    ]
    for recipe in sorted(RECIPES, key=lambda recipe: recipe.name):
        path = FOLDER / f"{recipe.name}.onnx"
        if path.exists():
            result = facts(onnx.load(path))
            lines.append(
                f"| {path.name} | {recipe.family} | {recipe.source} | {recipe.exporter} "
                f"| {result.opset} | {result.inputs} | {result.nodes} "
                f"| {result.parameters / 1e6:.2f} | {result.flop / 1e9:.2f} |"
            )
    readme = FOLDER / "README.md"
    begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
    head, rest = readme.read_text().split(begin)
    tail = rest.split(end)[1]
    readme.write_text(head + begin + "\n".join(lines) + "\n" + end + tail)


def main(names: list[str]) -> int:
    """Make the networks named, or all; return the exit code."""
    unknown = set(names) - {recipe.name for recipe in RECIPES}
    if unknown:
        print(f"no recipe for {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    for recipe in RECIPES:
        if not names or recipe.name in names:
            make(recipe)
    write_readme()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
