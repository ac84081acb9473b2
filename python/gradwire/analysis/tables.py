"""What the report computes of several runs, as tables of pandas."""

import pandas

from gradwire.analysis.read import results
from gradwire.analysis.reporting import perrun, sidebyside
from gradwire.analysis.reporting import summary as reported


def summary(runs, baseline=None):
    """A row a configuration, as summary.csv of `gradwire report` has it: medians over the runs, their intervals, the
    ratio to the baseline and its verdict. baseline: a cell, its label, or FACTOR=LEVEL,..."""
    rows = [row for one in results(runs, baseline) for row in reported.rows_of(one)]
    return pandas.DataFrame(rows, columns=perrun.columns_of(rows))


def compare(a, b, metric=sidebyside.DEFAULT, threshold=0.05):
    """Two results, cell by cell, as `gradwire compare` has them: medians of both with intervals, the ratio b/a, its
    interval, and a verdict. metric: step, elapsed, accuracy, loss, or a column of batches.csv. `regressed`: b is worse,
    significantly and by more than the threshold. attrs: whether runs are `paired`, what `differs` between the sides."""
    both = sidebyside.compare(results(a), results(b), metric, threshold)
    table = pandas.DataFrame([_row(row) for row in both.rows])
    table.attrs = {"metric": both.metric.title, "paired": both.paired, "differs": both.differences}
    return table


def _row(row):
    sides = {f"{side}{end}": value for side, interval in (("a", row.a), ("b", row.b)) for end, value in (
        ("", interval.value), ("_low", interval.low), ("_high", interval.high), ("_runs", interval.n))}
    ratio, found = row.comparison.interval, row.comparison
    return {"cell": row.title, **sides, "ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high,
            "ratio_level": ratio.level, "p_holm": found.p_adjusted, "least_difference": found.mdd, "verdict": found.text,
            "regressed": row.regressed, "marks": "; ".join(row.marks)}
