"""``hybridlat examples`` and ``completion``: networks to try, and completion in a shell."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from hybridlat.errors import InputError
from hybridlat.schema.plugins import shipped

_HINTS = {
    "bash": 'eval "$(hybridlat completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(hybridlat completion zsh)"   # in ~/.zshrc',
    "fish": "hybridlat completion fish > ~/.config/fish/completions/hybridlat.fish",
}


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
    known = {path.stem: path for path in sorted(shipped("data", "nets").glob("*.onnx"))}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"unknown example {unknown[0]!r}; choose from {', '.join(known)}")
    output.mkdir(parents=True, exist_ok=True)
    for name in names or known:
        shutil.copyfile(known[name], output / f"{name}.onnx")
        click.echo(output / f"{name}.onnx")


@click.command()
@click.argument("shell", type=click.Choice(list(_HINTS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and targets.

    \b
    bash   eval "$(hybridlat completion bash)"   in ~/.bashrc
    zsh    eval "$(hybridlat completion zsh)"    in ~/.zshrc
    fish   hybridlat completion fish > ~/.config/fish/completions/hybridlat.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(f"# {_HINTS[shell]}")
    click.echo(kind(ctx.find_root().command, {}, "hybridlat", "_HYBRIDLAT_COMPLETE").source())
