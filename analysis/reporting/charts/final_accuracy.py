"""Accuracy at the end of training, and its difference to the baseline's."""

import math

from .. import expect, figure, learning, panels, rows, verdicts
from ..base import telling
from ..model import Chart, NotShown, Table, judged

TITLE = "Final accuracy"
POINTS = 100  # of a fraction
DECIDE = (-expect.POINTS, 0.0, expect.POINTS)  # points on which a verdict depends
# Columns of several figures each, since the table has to fit a page: of results in run.json, a factor, a format.
ENDS = {"macro precision, recall, F1": (("precision", "recall", "f1"), 1, "{:.4f}"),
        "test, its forward passes (ms)": (("test_s", "test_forward_s"), 1e3, "{:.4g}")}


def exponential(run):
    """exp(accuracy): the statistics of its ratios are those of differences of accuracies."""
    accuracy = learning.final(run)
    return None if accuracy is None else math.exp(accuracy)


def compare(results):
    """{cell: Comparison of exponentials, seed by seed}."""
    return verdicts.by_seed(results, exponential)


def points(value):
    """A ratio of exponentials as a difference in points."""
    return POINTS * math.log(value)


def difference(comparison):
    """The comparison's interval in points."""
    return comparison.interval.of(points)


def verdict(comparison):
    if comparison.differs is None:
        return comparison.text
    found = difference(comparison)
    if comparison.differs:
        value, low, high = (telling(part, DECIDE, lambda more, part=part, sign=sign: f"{part:{sign}.{2 + more}f}")
                            for part, sign in ((abs(found.value), ""), (found.low, "+"), (found.high, "+")))
        return f"{value} points {'higher' if found.value > 0 else 'lower'} ({low}..{high})"
    if comparison.mdd == 0:
        return f"equal for each of {comparison.n} seeds"
    least = points(1 + comparison.mdd)
    seen = f"a difference below {least:.2f} points cannot" if least < POINTS else "no difference can"
    return f"inside the noise ({seen} be seen with {comparison.n} pairs of seeds)"


def ends_of(cell, keys, factor, form):
    """The medians over the cell's runs; None: no run has any of these figures."""
    found = [cell.middle(lambda run, key=key: run.info["results"].get(key)) for key in keys]
    if all(value is None for value in found):
        return None
    return " / ".join("-" if value is None else form.format(value * factor) for value in found)


def table_of(results, compared, lost):
    table = Table(["configuration", "runs", "diverged", "accuracy, median", "least", "most",
                   "less the baseline's (points)", "low (points)", "high (points)", "p, adjusted",
                   "verdict", "compared with", *ENDS], [])
    pairs = verdicts.references(results)
    for cell in results.cells:
        values = cell.figures(learning.final)
        row = [rows.label(cell), len(values), lost.get(cell.name, 0), learning.median_final(cell),
               min(values, default=None), max(values, default=None)]
        if cell.name in compared:
            mine = difference(compared[cell.name])
            told = compared[cell.name].differs
            row += [judged(mine.value, mine.value > 0 if told else None), mine.low, mine.high, compared[cell.name].p_adjusted,
                    verdict(compared[cell.name]), pairs[cell.name].label]
        else:
            row += [None, None, None, None, "baseline" if cell.baseline else None, None]
        table.rows.append(row + [ends_of(cell, *end) for end in ENDS.values()])
    for name, count in learning.lost_rows(results, lost):
        table.rows.append([name, 0, count] + [None] * 7 + ["diverged", None] + [None] * len(ENDS))
    return table


def draw(fig, cells, compared, lost):
    """One row per configuration: its runs; beside them the difference."""
    titles = ["test accuracy, each run"] + ["less the baseline's, points"] * bool(compared)
    grid = rows.Rows(fig, [rows.label(cell) + " (diverged)" * bool(lost.get(cell.name))
                                   for cell in cells], titles)
    for i, cell in enumerate(cells):
        y, values = grid.at(i), cell.figures(learning.final)
        grid.axes[0].plot(values, [y] * len(values), "o", color=figure.SERIES[0], markersize=4,
                          alpha=0.6, markeredgewidth=0, zorder=3)
        grid.axes[0].plot([learning.median_final(cell)] * 2,
                          [y - rows.THICK / 2, y + rows.THICK / 2], color=figure.INK,
                          linewidth=1.6, zorder=4)
        if cell.name in compared:
            found, differs = difference(compared[cell.name]), compared[cell.name].differs
            colour = figure.FAINT if not differs else \
                figure.BETTER if found.value > 0 else figure.WORSE
            rows.whisker(grid.axes[1], y, found, colour=colour)
            if found.value is not None:
                grid.axes[1].plot(found.value, y, "o", color=colour, markersize=5, zorder=6)
    for i, cell in enumerate(cells):
        value = learning.median_final(cell)
        panels.figure_above(grid.axes[0], value, grid.at(i), f"{value:.4g}")
    for ax in grid.axes:
        panels.few_ticks(ax.xaxis)
    if compared:
        grid.axes[1].axvline(0, color=figure.INK, linewidth=0.8)


def see(cells, compared):
    worse, better = ([cell.label for cell in cells if cell.name in compared and
                      compared[cell.name].differs and (difference(compared[cell.name]).value > 0) is up]
                     for up in (False, True))
    said = [f"{word} than the baseline: {rows.listed(labels)}" for word, labels in
            (("less accurate", worse), ("more accurate", better)) if labels]
    if said:
        text = "; ".join(said)
        return text[0].upper() + text[1:] + "."
    best = max(cells, key=learning.median_final)
    states = [one.differs for one in compared.values()]
    noise = [f"{states.count(state)} {words}" for state, words in (
        (False, "inside the noise"), (None, "not to be told")) if state in states]
    return (f"The highest median at the end: {best.label}, {learning.median_final(best):.4g}"
            + (f"; against the baseline {', '.join(noise)}." if noise else "."))


def build(results):
    cells = [cell for cell in results.cells if cell.figures(learning.final)]
    if not cells:
        raise NotShown("No run finished an epoch, so none tested its accuracy.")
    compared, lost = compare(results), learning.diverged(results)
    drawn, notes = rows.chosen(cells, results.baseline)
    caption = ("Accuracy on the test samples after the last epoch, measured: a dot is a run, the "
               "tick their median.")
    if compared:
        caption += (" Beside it the mean difference to the baseline (to the configuration that the "
                    "table names, where the study says within which factors to compare), in points "
                    "of a hundred, over pairs of equal seed: runs of one seed repeat each other "
                    "and count once. The interval is Student's t, with Holm's correction for the "
                    "number of configurations: it excludes 0 if and only if the verdict says "
                    "that there is a difference, which is then coloured.")
    else:
        notes.append("There is no baseline to compare with, or it tested no accuracy.")
    notes += rows.noted(
        ("All runs diverged (the loss was no longer finite)",
         [name for name, _ in learning.lost_rows(results, lost)]),
        ("Without any accuracy", [cell.label for cell in results.cells if cell not in cells]))
    return Chart(TITLE, caption,
                 lambda fig: draw(fig, drawn, compared, lost),
                 table_of(results, compared, lost),
                 notes + rows.repetitions(cells) + rows.remarks(cells), see(cells, compared))
