"""``hybridlat completion``: a shell's completion script."""

from __future__ import annotations

import click

_HINTS = {
    "bash": 'eval "$(hybridlat completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(hybridlat completion zsh)"   # in ~/.zshrc',
    "fish": "hybridlat completion fish > ~/.config/fish/completions/hybridlat.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HINTS)))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and targets.

    \b
    bash   eval "$(hybridlat completion bash)"   in ~/.bashrc
    zsh    eval "$(hybridlat completion zsh)"    in ~/.zshrc
    fish   hybridlat completion fish > ~/.config/fish/completions/hybridlat.fish
    """
    from click.shell_completion import get_completion_class

    from hybridlat.cli.main import app

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(f"# {_HINTS[shell]}")
    click.echo(kind(app, {}, "hybridlat", "_HYBRIDLAT_COMPLETE").source())
