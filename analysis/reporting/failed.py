"""What failed in a study, before anything else on its page: runs without figures, statements and claims that are refuted,
charts that could not be drawn. Then what is not finished, and what runs that succeeded did not do as asked. One line each."""

import re

from . import answer, claims, ends, expect, judge, steps
from .info import unmet

FEW = 3  # names in a line
NUMBERS = re.compile(r"\d+")  # causes that differ in a step or a rank alone are one
FAILED, UNFINISHED, OTHERWISE = "What failed", "Not finished", "Not done as asked, in runs that succeeded"
TO_COME = (ends.INTERRUPTED, ends.UNFINISHED)  # what --resume runs again
TITLES = {claims.REFUTED: "refuted", claims.DIFFERS: "of another size"}


def named(names):
    names = list(dict.fromkeys(names))
    return "; ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")


def counted(n, what):
    return f"{n} {what}{'s' * (n != 1)}"


def runs_of(gone):
    """A line for each cause by which runs [(how it ended, folder, why)] have no figures."""
    causes = {}
    for end, folder, why in gone:
        causes.setdefault((end, NUMBERS.sub("#", why)), []).append((folder, why))
    for (end, _), some in sorted(causes.items(), key=lambda cause: -len(cause[1])):
        what = counted(len(some), "folder" if end == ends.LEFT_OUT else "run")
        yield f"{what} {end}: {some[0][1]} ({named([folder for folder, _ in some])})"


def statements_of(results):
    said = answer.statements(results)
    refuted = [f"{one.label}, expected {one.word}: {one.verdict}" for one in said if one.state == expect.REFUTED]
    if refuted:
        yield f"{len(refuted)} of {counted(len(said), 'statement')} refuted: {named(refuted)}"


def claims_of(judged):
    for verdict, word in TITLES.items():
        found = [row["claim"] + (f" (here {claims.shown(row)})" if claims.shown(row) else "")
                 for row in judged if row["verdict"] == verdict]
        if found:
            yield f"{len(found)} of {counted(len(judged), 'claim')} {word}: {named(found)}"


def unmet_of(results):
    """What runs were asked for and did not do."""
    found = {}
    for cell in results.cells:
        for run in cell.runs:
            for what, option, why in unmet(run.info):
                found.setdefault((option, what, why), []).append(cell.label)
    for (option, what, why), labels in found.items():
        yield f"{option}, in {len(labels)} of {counted(len(results.runs), 'run')}: {what}: {why} ({named(labels)})"


def lines(results, errors):
    """{heading: lines}. errors: [(title, error)] of charts."""
    gone = [(one.end, one.folder, one.why) for one in results.lost]
    gone += [(ends.LEFT_OUT, folder, why) for folder, why in results.left_out if steps.NO_TIME not in why]
    short = [(ends.LEFT_OUT, folder, why) for folder, why in results.left_out if steps.NO_TIME in why]
    missing = [f"{counted(len(results.missing), 'planned run')} not made: {named(results.missing)}"] if results.missing else []
    return {
        FAILED: [*runs_of([one for one in gone if one[0] not in TO_COME]), *statements_of(results),
                 *claims_of(judge.of_results(results)),
                 *(f"the chart {title} could not be drawn: {type(error).__name__}: {error}" for title, error in errors)],
        UNFINISHED: [*runs_of([one for one in gone if one[0] in TO_COME]), *missing],
        OTHERWISE: [*runs_of(short), *unmet_of(results)]}
