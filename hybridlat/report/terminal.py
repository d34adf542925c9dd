"""An estimate as people read it in a terminal: the answer first, then where the time goes."""

import io
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.text import Text

from hybridlat.report import units
from hybridlat.report.cell_texts import Row, names_text, rows_of
from hybridlat.report.table import GAP, STYLES, Cell, Column, Table
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import visible

WIDTH = 100  # characters of a line where there is no terminal
_OF_THE_COMMAND = re.compile(r"\s*\(--all[^)]*\)")
ROWS = 15  # cells shown without --all
_LEAST_SHARE = 0.0005  # rows below it would read 0.0 %
_NOTE_LENGTH = 240  # about three lines
_LEAST_WHERE, _MOST_WHERE = 13, 28
_LEAST_CELL = 16  # a chain of kernels cannot be read in less
_SOURCE_FROM = 100  # narrower terminals have a mark for what is predicted
_AT_LEAST = 12  # for the last column of a narrow terminal
_BARS_FROM, _BAR_WIDTH = 96, 6
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_VERDICTS = {"within": "bold green", "over": "bold red", "unsure": "yellow"}
_Shown: TypeAlias = tuple[Column, Sequence[str | Cell]]


def plain_console(**more: Any) -> Console:
    """Text is printed as it is, without markup or guesses."""
    console = Console(highlight=False, markup=False, emoji=False, **more)
    console.width = console.width or WIDTH  # a terminal of no size says COLUMNS=0
    return console


def printed(show: Callable[[Console], None]) -> str:
    """What ``show`` prints, without colours; as wide as the terminal, if there is one."""
    out = io.StringIO()
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    show(plain_console(file=out, width=width, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in less_options(out.getvalue()).splitlines())


def less_options(text: str) -> str:
    """A text without what it says of the command's options."""
    return _OF_THE_COMMAND.sub("", text)


def print_estimate(
    console: Console, estimate: Estimate, *, every_cell: bool = False, is_cut: bool = True
) -> None:
    """Print the answer, the cells and the notes; names are cut to lines where ``is_cut``."""
    console.print(headline(estimate, everything=every_cell))
    if estimate.cells:
        console.print()
        table = cells_table(*shown_rows(estimate, every_cell), console.width, is_cut)
        if is_cut:
            console.print(table.terminal())
        else:
            table.print(console)
    if beside := units.beside_text(estimate):
        console.print(Text(beside, "dim"))
    for note in notes(estimate, everything=every_cell):
        console.print(note, soft_wrap=is_command(note))


def headline(estimate: Estimate, *, everything: bool = False) -> RenderableType:
    """Name and target; latency, throughput and interval; what the answer is worth; the budget."""
    place = f"  on {estimate.target}, batch {estimate.batch}"
    answer, interval = units.answer_text(estimate)
    width = units.reach_text(estimate.latency_us, estimate.interval_us)
    figures = [""]
    if estimate.throughput_per_s:
        figures.append(units.fps_text(estimate.throughput_per_s))
    figures += [] if width in (answer, interval) else [width]
    if interval != units.NOTHING:
        figures.append(f"{interval} ({units.confidence_text(estimate.confidence)})")
    lines = [
        Text.assemble((visible(estimate.network), "bold"), visible(place)),
        Text.assemble((answer, "bold cyan"), "   ".join(figures)),
        Text(visible(units.verdict_text(estimate)), "" if estimate.trusted else "bold red"),
    ]
    if estimate.verdict is not None:
        lines.append(Text(units.budget_text(estimate), _VERDICTS[estimate.verdict]))
    tight = estimate.memory is not None and estimate.memory.verdict in ("tight", "too large")
    if (everything and estimate.memory) or tight:
        lines.append(Text(f"memory {units.memory_text(estimate)}", "yellow" if tight else "dim"))
    if everything:
        total = units.latency_text(estimate.sum_of_cells_us)
        facts = [f"sum of cells {total}"] if estimate.latency_us is not None else []
        facts.append(f"answered in {units.latency_text(estimate.elapsed_s * 1e6)}")
        facts += [f"model {estimate.model}"] if estimate.model else []
        lines.append(Text(" · ".join(facts), "dim"))
    return Group(*lines)


def shown_rows(estimate: Estimate, every_cell: bool) -> tuple[list[Row], list[Row]]:
    """The rows to print, slowest first, and the rest. What has no latency is never hidden."""
    rows = rows_of(estimate, fold=not every_cell)
    missing = [row for row in rows if row.latency_us is None]
    known = rows[len(missing) :]
    count = 0 if every_cell else sum(row.share >= _LEAST_SHARE for row in known)
    count = count or len(known)  # where each of thousands takes next to nothing, none is less
    # One hidden row would take as many lines as the row that stands for it.
    limit = count if every_cell or count == ROWS + 1 else min(ROWS, count)
    return missing + known[:limit], known[limit:]


def notes(estimate: Estimate, *, everything: bool = False) -> list[Text]:
    """What the reader must know or can do; ``everything`` at any length, and what does not run."""
    lines = []
    for remark in units.remarks(estimate):
        text = remark.text
        if len(text) > _NOTE_LENGTH and not everything and remark.kind != "command":
            text = f"{text[:_NOTE_LENGTH].rpartition(' ')[0]} … (--all shows all of it)"
        lines.append(Text(visible(text), STYLES[remark.kind]))
    if everything and estimate.check:
        lines.append(Text(f"To check it, compare {estimate.check_field} of", STYLES["hint"]))
        lines.append(Text(f"  {visible(estimate.check)}", STYLES["command"]))
    if everything and estimate.removed:
        lines.append(Text(visible(f"Not run: {names_text(estimate.removed)}"), "dim"))
    return lines


def is_command(note: Text) -> bool:
    """Whether it is there to be copied: one that is broken into lines cannot be."""
    return note.plain.startswith("  ")


def cells_table(
    rows: Sequence[Row], others: Sequence[Row], width: int, is_cut: bool = True
) -> Table:
    """Where the time goes: ``rows`` in their order, and how much the ``others`` take."""
    scale = units.scale_for(row.latency_us for row in (*rows, *others))
    narrow, sources = width < _SOURCE_FROM, {row.source for row in (*rows, *others)}
    several = len(sources) > 1
    shares = [units.percent_text(None if row.latency_us is None else row.share) for row in rows]
    shown: list[_Shown] = [
        (Column("share", True), shares),
        (Column("uses", True), [f"×{row.count}" for row in rows]),
        (Column(f"each [{scale.name}]", True), [_each(r, scale, narrow and several) for r in rows]),
    ]
    if width >= _BARS_FROM:
        top = max((row.share for row in rows), default=0.0)
        shown.insert(0, (Column(most=_BAR_WIDTH), [bar(row.share, top) for row in rows]))
    widths = [units.plus_minus_text(row.half_width_share).removeprefix("±") for row in rows]
    if width >= 72 and len(set(widths)) > 1:  # one width for all is the answer's own
        shown.append((Column("±", True), widths))
    if several and not narrow:
        shown.append((Column("source"), [Cell(row.source, row.source) for row in rows]))
    if width >= 72 and any(row.limit for row in rows):
        shown.append((Column("limit"), [Cell(row.limit, "hint") for row in rows]))
    fixed = sum(max(map(len, [c.title, *map(str, cells)])) + GAP for c, cells in shown)
    shown += _words(rows, max(width - fixed, _AT_LEAST), is_cut)
    notes = []
    rest = units.percent_text(sum(row.share for row in others))
    if others and rest != units.percent_text(0.0):
        notes.append(f"{len(others)} more rows with {rest} of the time (--all)")
    if several and narrow and "predicted" in sources:
        notes.append("≈ predicted, not measured")
    lines = [[cells[i] for _, cells in shown] for i in range(len(rows))]
    return Table([column for column, _ in shown], lines, caption="\n".join(notes))


def bar(share: float, top_share: float) -> str:
    """A bar of block characters, full at ``top_share``; anything above zero shows."""
    if top_share <= 0 or share <= 0:
        return ""
    eighths = max(1, round(8 * _BAR_WIDTH * min(share / top_share, 1.0)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _each(row: Row, scale: units.Scale, is_marked: bool) -> str | Cell:
    text = units.each_text(scale, row.latency_us)
    if not is_marked or row.source == "measured":
        return text
    return Cell(f"{'≈ ' if row.source == 'predicted' else ''}{text}", row.source)


def _words(rows: Sequence[Row], room: int, is_cut: bool) -> list[_Shown]:
    what = max(len(row.what) for row in rows)
    where = 0
    if what:  # what the cells are made of is known
        where = max(map(len, ["where", *(row.where() for row in rows)]))
        if is_cut:
            where = min(where, _MOST_WHERE)
        else:  # names that are cut look alike
            room = max(room, where + what + 2 * GAP)
        least = min(where, _LEAST_WHERE)
        what = min(max(what, len("what")), max(room - least - GAP, _AT_LEAST))
        room -= what + GAP
        where = min(where, room) if room >= least else 0
        room -= where + GAP
        room = room if room >= _LEAST_CELL else 0
    columns = [
        (Column("where", most=where), [row.where(where) for row in rows]),
        (Column("what", most=what), [row.what or row.label(what) for row in rows]),
        (Column("cell", style="dim" if what else "", most=room), [row.label(room) for row in rows]),
    ]
    return [(column, cells) for column, cells in columns if column.most]
