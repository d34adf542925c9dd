"""The command line: its commands, and their exit codes.

A command's file is loaded when the command runs. Exit codes: 0 done, 1 over the budget, 2 bad input
or usage, 3 not sure enough, 70 a defect of hybridlat, 130 interrupted, 141 the reader of the output
has closed it.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import errno
import gc
import importlib
import io
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from shlex import quote

import click

from hybridlat import __version__
from hybridlat.cli.output import WORDS, aside
from hybridlat.errors import HybridlatError
from hybridlat.schema.shown import visible

NO_MEMORY, DEFECT, INTERRUPTED, BROKEN_PIPE = 3, 70, 130, 141
_DEBUG = "Log all of it, and where an error arose (or HYBRIDLAT_DEBUG=1)."
_LOGGER = logging.getLogger("hybridlat")

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Ask": {
        "predict": ("predict", "Predict latencies, and where the time goes."),
        "compare": ("predict", "Compare networks, cell by cell."),
        "recommend": ("questions", "Rank the GPUs that keep a budget."),
        "explain": ("questions", "Say whether a latency is normal, or why not."),
        "sweep": ("questions", "Sweep a network over batches, input sizes or widths."),
        "targets": ("targets", "List the targets, and what is known of each."),
    },
    "Measure": {
        "measure": ("measure", "Measure networks and their cells, here or on a board."),
        "plan": ("measure", "Write a plan that measures on another device."),
        "import": ("importing", "Import a plan's results, packs, tables or logs."),
        "onboard": ("train", "Measure a new device for so long, then train."),
        "doctor": ("doctor", "Say what this machine can measure, and what is wrong."),
    },
    "Models": {
        "train": ("train", "Train a model; it is promoted only if it is not worse."),
        "evaluate": ("evaluate", "Evaluate predictions on held-out networks."),
        "mlflow": ("evaluate", "Show in a browser what evaluate and train recorded."),
    },
    "Data": {
        "store": ("store", "Show, exchange, check and forget measurements."),
        "examples": ("targets", "Write ONNX files to try things with."),
        "lower": ("targets", "Show the kernels that an engine makes of a network."),
    },
}
"""Of each command its module and its summary."""
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
# What other tools call it, and what it is here.
_OTHER_WORDS = {"fusion": "lower", "inspect": "lower", "benchmark": "measure", "devices": "targets"}
_IN_ASCII = dict(zip("µμ×–→…·−", "uux->~.-", strict=True)) | {"±": "+-"}
_IN_ASCII |= dict.fromkeys("▏▎▍▌▋▊▉█", "#") | dict.fromkeys("─━", "-")
_OF_TARGET = re.compile("--(precision|engine|runtime|dtype|device|gpu|fp32|fp16|bf16|int8)")


class Commands(click.Group):
    """The group of all commands, each loaded from its file when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        loaded = importlib.import_module(f"hybridlat.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(loaded, f"{name}_" if iskeyword(name) else name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in COMMANDS and not word.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(word, COMMANDS, n=2, cutoff=0.6)
            hint = _OTHER_WORDS.get(word) or " or ".join(near)
            hint = f"hybridlat predict {quote(word)}" if word.endswith(".onnx") else hint
            question = f" Did you mean {hint}?" if hint else " See hybridlat --help."
            raise click.UsageError(f"There is no command {word!r}.{question}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(9), words) for name, (_, words) in group.items()])


class _Messages(logging.Handler):
    """Messages of the library, above the line of progress while one is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


class _Form(logging.Formatter):
    """A message in one line; only where an error arose takes more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hybridlat", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log to standard error what is being done.")
@click.option("--debug", is_flag=True, envvar="HYBRIDLAT_DEBUG", help=_DEBUG)
@click.pass_context
def app(ctx: click.Context, verbose: bool, debug: bool) -> None:
    """The latency of a CNN: measured where it can be, predicted where it cannot.

    \b
    hybridlat examples -o nets resnet18 resnet50
    hybridlat predict nets/resnet18.onnx
    hybridlat compare nets/resnet18.onnx nets/resnet50.onnx --target l4/tensorrt/fp16

    \b
    eval "$(_HYBRIDLAT_COMPLETE=bash_source hybridlat)"   completes words in bash, zsh or fish
    """
    handler = ctx.ensure_object(_Messages)
    form = "%(name)s: %(message)s" if debug or verbose else "hybridlat: %(message)s"
    handler.setFormatter(_Form(form))
    _LOGGER.setLevel(logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING)
    _LOGGER.addHandler(handler)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that a terminal lacks: a unit must be read, µs is no ?s."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end


codecs.register_error("hybridlat", _spelled)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: the next file that is opened would be it
            flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY  # output cannot be written
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))
    os.environ["PYTHONSAFEPATH"] = "1"  # no process of it runs modules of the user's folder
    # Collections at every 700 objects take a tenth of a command's time: most of them live on.
    gc.set_threshold(200_000, 2, 2)
    for stream in (sys.stdout, sys.stderr):  # a character that a terminal lacks ends no command
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="hybridlat")
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code. The logging is as it was before."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    handler, level_before = _Messages(), _LOGGER.level
    try:
        code = app.main(words, prog_name="hybridlat", standalone_mode=False, obj=handler)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and _OF_TARGET.fullmatch(error.option_name):
            name = error.option_name
            why = f"{name} is part of --target, as in --target l4/tensorrt/fp16."
            error = click.UsageError(why, error.ctx)
        error.show(message := io.StringIO())
        click.echo(visible(message.getvalue(), breaks=True), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _end("interrupted; what was measured until now is kept", INTERRUPTED)
    except BrokenPipeError:
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  a defect must not look like exit code 1
        if _LOGGER.level == logging.DEBUG:
            traceback.print_exc()
        return _end(*_meaning(error))
    except SystemExit as error:
        # click ends with 1 when the reader of the output has closed it.
        return BROKEN_PIPE if error.code == 1 else int(error.code or 0)
    finally:
        _lost_output()
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level_before)


def _meaning(error: Exception) -> tuple[str, int]:
    if isinstance(error, HybridlatError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        if why := _lost_output() or (error.strerror if error.errno == errno.EBADF else ""):
            return f"standard output cannot be written: {why}", 2
        return ": ".join(map(str, filter(None, [error.strerror or error, error.filename]))), 2
    if isinstance(error, MemoryError):
        return f"there is too little memory, or too low a limit on it: {error}", NO_MEMORY
    return f"defect in hybridlat: {type(error).__name__}: {error} (--debug shows where)", DEFECT


def _end(sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):  # standard error is closed too: the exit code must do
        aside(sentence)
    return code


def _lost_output() -> str:
    """Why standard output takes no more, if so; Python writes nothing to it at its end then."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return str(error.strerror)
    return ""


if __name__ == "__main__":
    main()
