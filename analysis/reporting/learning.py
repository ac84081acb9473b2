"""Accuracy by epoch, the target accuracy, and when a run reached it."""

from collections import Counter, namedtuple

import numpy

from . import ends
from .shape import is_number
from .stats import median_ci

# `times`: one figure per run, infinite if it never reached the target; `n` of `of` runs did.
Reached = namedtuple("Reached", "times n of")


def curve(run, column):
    """[(epochs, seconds, bytes sent by all ranks, figure)] of each epoch, of what a test tells of each
    test, if the run has evaluated more often; a test within an epoch lies where its step does.
    Seconds are within steps if the run has them, else since the first step, including tests."""
    rows = (run.evaluations if column.startswith("test_") else None) or run.epochs
    steps = [(row["step"], row["epoch"]) for row in run.epochs if row.get("step") and row.get("epoch")]
    of_epoch = max((step / epoch for step, epoch in steps), default=None)
    return [(row["step"] / of_epoch if row.get("step") and of_epoch else row.get("epoch"),
             row["train_s"] if row.get("train_s") is not None else row.get("elapsed_s"),
             row.get("wire_bytes"), row[column])
            for row in rows if row.get(column) is not None]


def points(run):
    """[(seconds, bytes sent by all ranks, accuracy)] of each test."""
    return [point[1:] for point in curve(run, "test_accuracy")]


def final(run):
    """Accuracy after the last epoch; None: never tested. Of a kept run that of its results, since no epoch is kept."""
    return points(run)[-1][2] if points(run) else run.info["results"].get("test_accuracy")


def best_epoch(run):
    """The epoch with the least validation loss; None: the run had no validation set."""
    return (run.info["results"].get("best") or {}).get("epoch")


def middle(values):
    """Median; None if a value is absent."""
    return None if None in values else float(numpy.median(values))


def median_final(cell):
    return cell.middle(final)


def target_of(results):
    """(accuracy to reach, the rule in words); None if no run tested its accuracy."""
    said = results.hints.get("target_accuracy")
    if is_number(said):
        return float(said), "as the study says"
    known = [cell for cell in results.cells if median_final(cell) is not None]
    if results.baseline in known:
        return 0.99 * median_final(results.baseline), "99% of what the baseline ends at (median)"
    if known:
        return (0.99 * max(map(median_final, known)),
                "99% of what the best configuration ends at (median)")
    return None


def reached(cell, target, column):
    """When each run reached the target, by column 0 (seconds) or 1 (bytes) of points(): at one
    of its tests."""
    times = []
    for run in cell.runs:
        hits = [point[column] for point in points(run) if point[2] >= target]
        times.append(hits[0] if hits else numpy.inf)
    return Reached(times, sum(time != numpy.inf for time in times), len(times))


def summary(reach):
    """(median, low, high) of a Reached. The median counts runs that never reached the target as the
    longest; the interval requires that all did. All None: most did not, or it was not measured."""
    if None in reach.times or 2 * reach.n <= reach.of:
        return None, None, None
    if reach.n < reach.of:
        return float(numpy.median(reach.times)), None, None
    interval = median_ci(reach.times)
    return interval.value, interval.low, interval.high


def diverged(results):
    """{cell: how many of its runs ended because the loss was no longer finite}."""
    return Counter(one.cell for one in results.ended(ends.DIVERGED))


def lost_rows(results, lost):
    """(name, how many diverged) of the cells without a finished run, which `results.cells`
    lacks."""
    alive = {cell.name for cell in results.cells}
    return [(name, count) for name, count in lost.items() if name not in alive]
