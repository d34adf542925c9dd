"""``hybridlat doctor``: what this machine can measure, how steadily, and what is in the way."""

from __future__ import annotations

import click

from hybridlat.cli import options
from hybridlat.cli.output import console, on_message, print_json
from hybridlat.cli.progress import ProgressShown

CANNOT = 3


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0, max=3600), default=20.0, show_default=True,
              metavar="N", help="How long to time the machine; 0 leaves that out.")  # fmt: skip
@options.store
@options.as_json
@click.pass_context
def doctor(ctx: click.Context, seconds: float, store: str | None, as_json: bool) -> None:
    """Say what this machine can measure, how steadily, what is held where, and what is wrong.

    \b
    hybridlat doctor
    hybridlat doctor --seconds 0 --json

    Exit codes: 0 it can measure, 3 something keeps it from measuring.
    """
    from hybridlat import __version__
    from hybridlat.evaluation.checkup import check_up
    from hybridlat.schema.progress import Progress

    with ProgressShown() as shown:

        def left(seconds_left: float) -> None:
            done = round(seconds - seconds_left)
            shown(Progress(done, round(seconds), "timing the reference network", seconds_left))

        found = check_up(__version__, store, seconds, on_message(as_json), left)
    if as_json:
        print_json(found.to_json())
    else:
        from hybridlat.report.checkup import print_checkup

        print_checkup(console(), found)
    ctx.exit(0 if found.can_measure else CANNOT)
