"""``hybridlat examples``: the networks that come along, as files to try things with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from hybridlat.errors import InputError


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True,
              metavar="DIR", help="Folder to write the ONNX files to.")  # fmt: skip
def examples(names: Sequence[str], output: Path) -> None:
    """Write networks that come along as ONNX files: architectures, without weights.

    All of them unless names are given. Files of the same name are replaced.

    \b
    hybridlat examples -o nets
    hybridlat examples resnet18 mobilenetv2_100 -o nets
    """
    from hybridlat.schema.resources import shipped

    known = {path.stem: path for path in sorted(shipped("data", "nets").glob("*.onnx"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"no network {unknown[0]!r} comes along: choose of {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    for name in names or known:
        shutil.copyfile(known[name], output / f"{name}.onnx")
        click.echo(output / f"{name}.onnx")
