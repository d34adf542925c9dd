"""``hybridlat predict`` and ``compare``: latencies of networks, and where the time goes."""

import itertools
import shlex
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import click

import hybridlat
from hybridlat.cli.options import command
from hybridlat.cli.output import (
    OVER,
    UNTRUSTED,
    ProgressShown,
    Run,
    aside,
    console,
    echo,
    print_json,
    worst,
)
from hybridlat.errors import HybridlatError
from hybridlat.graph.network import Shapes
from hybridlat.report.prediction_table import Answer, Place, PredictionTable
from hybridlat.report.terminal import print_estimate
from hybridlat.report.units import budget_text, percent_text, verdict_text, why_untrusted
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import part_text, visible
from hybridlat.schema.structure import EstimateWarning

MOST_DOUBTS = 3  # of a kind that are printed
MOST_ADVISED, WORTH_ADVISING = 100, 1 / 3  # networks, and what one tells of the others
WIDE = ("rough", "order of magnitude")
_RESULTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}  # JUnit's names


@command(
    "networks targets device threads store batches shape tolerance confidence measure",
    "known max_latency jobs json html markdown csv junit every_cell",
)
def predict(run: Run) -> int:
    """Predict the latency of networks, and where the time goes.

    The name of a shipped network stands for its file: `hybridlat examples` lists them. Several
    batches give a curve of latency and throughput, several targets a table. Of several networks
    with wide intervals the last line names the one to measure first.

    \b
    hybridlat predict resnet18
    hybridlat predict a.onnx b.onnx --target l4/tensorrt/fp16 --target t4/tensorrt/fp16 --csv t.csv
    hybridlat predict a.onnx --batch 1,2,4,8

    Exit codes: 0 done, 1 over --max-latency (the whole interval), 2 bad input, 3 not sure enough:
    --max-latency lies within the interval, --tolerance is not kept, a cell has no latency, or
    measurements are of no use.
    """
    networks, each_target = run.networks, tuple(dict.fromkeys(run.targets)) or (None,)
    if run.latencies and len(each_target) > 1:
        raise click.UsageError("--known is a latency on one target: give one --target.")
    names = [target or "this machine" for target in each_target]
    table = PredictionTable(networks, run.batches or (None,), names)
    shows_cells = len(table.batches) * len(names) == 1
    quiet = run.prints_document
    for k, target in enumerate(each_target):
        try:
            with run.opened(target) as (predictor, shown):
                predictor.give(run.latencies, batch=run.batches, shapes=run.shapes)
                for j, batch in enumerate(table.batches):
                    how = run.among("shapes jobs") | {"batch": batch, "describe": True}
                    results = predictor.predict_many(networks, errors="return", **how)
                    for i, network in enumerate(networks):
                        count = f", {len(table.answers) + 1} of {table.size}"
                        step = f"predicting {network} on {names[k]}"
                        shown.at(step + (count if table.size > 1 else ""))
                        result = next(results)
                        if shows_cells or not isinstance(result, Estimate):
                            shown.close()
                        answer = _keep(run, table, (i, j, k), result)
                        if isinstance(answer, Estimate) and shows_cells:
                            run.show_first(partial(_print, run, answer, len(table.estimates())))
                if shows_cells and (hint := _advise(predictor, table, run.shapes)):
                    run.show_first(partial(echo, hint))
        except HybridlatError as error:
            places = [*itertools.product(range(len(networks)), range(len(table.batches)), [k])]
            if len(each_target) == 1:  # tests failed where their command did
                table.answers.update((p, error) for p in places if p not in table.answers)
                run.write_tables(junit=lambda: _junit(table))
                raise
            for place in places:
                _keep(run, table, place, error)
        except BaseException:
            if table.answers:  # hours may be in them
                _write_files(run, table)
            raise
    estimates = table.estimates()
    if failed := table.size - len(estimates):
        others = ", the others are complete" if estimates else ""
        aside(f"{failed} of {table.size} predictions failed{others}")
    _write_files(run, table)  # before a reader may go away
    run.show_last()
    if not quiet and not shows_cells:
        table.print(console())
    if run.as_json:
        objects = table.to_json()
        print_json(objects[0] if table.size == 1 else objects)
    return _exit_code(table, shown=shows_cells and not quiet)


def _print(run: Run, answer: Estimate, count: int) -> None:
    if count > 1:
        click.echo()
    out = console()
    print_estimate(out, answer, every_cell=run.every_cell, is_cut=out.is_terminal)


def _write_files(run: Run, table: PredictionTable) -> None:
    run.write_page(table.estimates())
    run.write_tables(markdown=table.markdown, csv=table.csv, junit=lambda: _junit(table))


def _junit(table: PredictionTable) -> str:
    """JUnit's XML: a case for each answer, without a time, which would be the test's own."""
    cases = []
    for place, answer in table.rows():
        result, sentence = "error", str(answer)
        if isinstance(answer, Estimate):
            code, doubt = doubt_of(answer)
            result = {OVER: "failure", UNTRUSTED: "skipped"}.get(code, "system-out")
            sentence = doubt or budget_text(answer) or verdict_text(answer)
        batch = table.batches[place[1]]
        name = table.networks[place[0]] + (f" at batch {batch}" if batch else "")
        case = ElementTree.Element("testcase", classname=table.target(place), name=visible(name))
        of = {"message": visible(sentence)} if result in _RESULTS else {}
        ElementTree.SubElement(case, result, of).text = visible(sentence)
        cases.append(case)
    tags = [case[0].tag for case in cases]
    counts = {plural: str(tags.count(result)) for result, plural in _RESULTS.items()}
    counts |= {"name": "hybridlat", "tests": str(len(cases))}
    suite = ElementTree.Element("testsuite", counts)
    suite.extend(cases)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"


def _keep(run: Run, table: PredictionTable, place: Place, answer: Answer) -> Answer:
    """One more answer, held against the budget; an error of one of several is printed once."""
    errors = {str(one) for one in table.answers.values() if isinstance(one, HybridlatError)}
    if isinstance(answer, Estimate):
        answer = answer.against(**dict([run.budget])) if run.budget else answer
    elif table.size == 1:  # it is the command's
        raise answer
    elif str(answer) not in errors:
        aside(str(answer))
    table.answers[place] = answer
    return answer


def _advise(predictor: "hybridlat.Predictor", table: PredictionTable, shapes: Shapes) -> str:
    """Which known latency would narrow several wide intervals, a remark of that network."""
    answers = [(place, one) for place, one in table.rows() if isinstance(one, Estimate)]
    wide = [(place, one) for place, one in answers if one.grade in WIDE][:MOST_ADVISED]
    paths = [table.networks[place[0]] for place, _ in wide]
    telling = None
    if len(paths) > 1:
        telling = predictor.most_telling(paths, batch=table.batches[0], shapes=shapes)
    if telling is None or telling[1] < WORTH_ADVISING:
        return ""
    best, share = telling
    text = (
        f"Of these, measure {paths[best]} first: its latency "
        f"(--known {shlex.quote(paths[best])}=1.21ms) "
        f"tells {part_text(share)} of what is unsure of the others."
    )
    place, estimate = wide[best]
    remark = EstimateWarning("known-network", text)
    table.answers[place] = replace(estimate, warnings=(*estimate.warnings, remark))
    return text


def _exit_code(table: PredictionTable, *, shown: bool) -> int:
    """Of all answers; doubts that are not ``shown`` go to standard error, counted by kind."""
    codes = {0}
    doubts: dict[str, list[str]] = {}
    for answer in table.answers.values():
        if isinstance(answer, HybridlatError):
            codes.add(answer.exit_code)
            continue
        code, doubt = doubt_of(answer)
        codes.add(code)
        if code and not shown:
            label = answer.network if table.size > 1 else ""
            label += f" at batch {answer.batch}" if len(table.batches) > 1 else ""
            label += f" on {answer.target}" if len(table.targets) > 1 else ""
            sentence = ": ".join(filter(None, [label, doubt]))
            doubts.setdefault(doubt.partition(":")[0], []).append(sentence)
    for kind, sentences in doubts.items():
        for sentence in sentences[:MOST_DOUBTS]:
            aside(sentence)
        if len(sentences) > MOST_DOUBTS:
            aside(f"{kind}: {len(sentences)} of {table.size}")
    return worst(codes)


def doubt_of(estimate: Estimate) -> tuple[int, str]:
    """The exit code of an estimate, and why it is not sure enough for what was asked."""
    if estimate.verdict == "over":
        return OVER, budget_text(estimate)
    if not estimate.trusted:
        return UNTRUSTED, verdict_text(estimate)
    return (UNTRUSTED, budget_text(estimate)) if estimate.verdict == "unsure" else (0, "")


@command(
    "networks targets device threads store batch shape tolerance confidence measure",
    "known max_slower json html every_cell",
)
def compare(run: Run) -> int:
    """Compare networks: which is faster, by how much, and which cells make the difference.

    The first is what the others are compared with. Several targets compare each network on all of
    them: which cells gain from another precision, and which lose.

    \b
    hybridlat compare a.onnx b.onnx
    hybridlat compare base.onnx new.onnx --target l4/tensorrt/fp16 --max-slower 5%
    hybridlat compare a.onnx --target l4/tensorrt/fp16 --target l4/tensorrt/int8 --html why.html

    Exit codes: 0 done, 1 over --max-slower (the whole interval of the ratio), 2 bad input, 3 not
    sure enough.
    """
    each_target, max_slower = list(dict.fromkeys(run.targets)) or None, run.max_slower
    how = run.among("batch shapes store threads measure tolerance confidence")
    with ProgressShown().at(f"predicting {run.networks[0]} and others") as shown:
        comparison = hybridlat.compare(
            run.networks, each_target, known=run.latencies, progress=shown, **how
        )
    estimates, ratios = comparison.estimates, comparison.ratios
    run.write_page(estimates, comparison=comparison)
    if run.as_json:
        print_json(comparison.to_json())
    else:
        comparison.print(console(), every_cell=run.every_cell)
    doubtful = [estimate for estimate in estimates if not estimate.trusted]
    for estimate in doubtful if run.as_json else ():  # people have read it beside the table
        aside(f"{estimate.network}: {why_untrusted(estimate)}")
    codes = {UNTRUSTED if doubtful else 0}
    for estimate, ratio in zip(estimates, ratios, strict=True):
        if max_slower is not None and ratio is not None and ratio.interval[1] > 1 + max_slower:
            is_sure = ratio.interval[0] > 1 + max_slower
            codes.add(OVER if is_sure else UNTRUSTED)
            low, high = (percent_text(end - 1, 0) for end in ratio.interval)
            verb = "is" if is_sure else "may be"
            what = estimate.target if len(each_target or ()) > 1 else estimate.network
            aside(f"{what} {verb} slower than the first: {low} to {high} more")
    return worst(codes)
