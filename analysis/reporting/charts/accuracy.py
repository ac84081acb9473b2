"""Test accuracy over time and bytes, and the time and bytes to a target."""

import numpy

from reporting import figure, learning, panels, rows
from reporting.model import Chart, NotShown, Table

NAME = "accuracy"
TITLE = "Accuracy against time and against bytes sent"
NEVER = "not reached"


def figures(reach, factor):
    """Median, low and high for the table."""
    if reach.n == 0:
        return [NEVER, None, None]
    value, low, high = learning.summary(reach)
    if value is None or numpy.isinf(value):
        return [None if None in reach.times else NEVER, None, None]
    return [value * factor] + [None if end is None else end * factor for end in (low, high)]


def source_of(cell):
    """Whether the bytes are measured or modelled; None: no run counted any."""
    if all(point[1] is None for run in cell.runs for point in learning.points(run)):
        return None
    return "modelled" if any(map(rows.modelled_bytes, cell.runs)) else "measured"


def modelled(cells):
    """The cells whose bytes are modelled, and not all 0."""
    return [cell for cell in cells if source_of(cell) == "modelled"
            and any(point[1] for run in cell.runs for point in learning.points(run))]


def table_of(results, target, lost):
    table = Table(["configuration", "runs", "diverged", "accuracy at the end, median",
                   "runs at the target", "time to target (s)", "low (s)", "high (s)",
                   "bytes to target (MB)", "low (MB)", "high (MB)", "source of the bytes"], [])
    for cell in results.cells:
        seconds, sent = (learning.reached(cell, target, column) for column in (0, 1))
        table.rows.append([rows.label(cell), len(cell.runs), lost.get(cell.name, 0),
                           learning.median_final(cell), f"{seconds.n} of {seconds.of}"]
                          + figures(seconds, 1) + figures(sent, 1e-6) + [source_of(cell)])
    for name, count in learning.lost_rows(results, lost):
        table.rows.append([name, 0, count, None, "diverged"] + [None] * 7)
    return table


def order_of(target):
    """Which lines get a colour: those first at the target, then those that end highest."""
    def order(cell):
        value = learning.summary(learning.reached(cell, target, 0))[0]
        return numpy.inf if value is None else value, -learning.median_final(cell)
    return order


def by_bytes(curves):
    """Whether anything was sent, and counted."""
    return any(max(curve.sent) for curve in curves.values() if None not in curve.sent)


def draw(fig, narrow, results, curves, named, others, target):
    """Lines over time and, if anything was sent, over bytes."""
    columns = [("seconds", 1, "time of training (s)"), ("sent", 1e-6, "bytes sent by all ranks (MB)")]
    columns = columns[:1 + by_bytes(curves)]
    dashed = {cell.name for cell in modelled(results.cells)} if len(columns) > 1 else set()
    entries = panels.entries(named, others, rows.label)
    if dashed:
        entries.append(figure.line("bytes modelled", figure.FAINT, linestyle="--"))
    entries.append(figure.line(f"target {target:.4g}", figure.INK, linestyle=":"))
    axes = panels.panels(fig, narrow, len(columns), entries)
    for ax, (column, factor, label) in zip(axes, columns):
        lines = {name: [None if value is None else value * factor
                        for value in getattr(curve, column)] for name, curve in curves.items()}
        everything = [value for line in lines.values() for value in line if value is not None]
        log = panels.spread([line[-1] for line in lines.values()]) > 10
        panels.axis(ax, "x", everything, log, 1.04)
        if not log:
            panels.few_ticks(ax.xaxis)
        for cell, colour, strong in panels.coloured(named, others):
            style = "--" if column == "sent" and cell.name in dashed else "-"
            draw_line(ax, curves[cell.name], lines[cell.name], colour, strong, log, style)
        ax.axhline(target, color=figure.INK, linestyle=":", linewidth=1)
        ax.set_xlabel(label)
        if narrow or ax is axes[0]:
            ax.set_ylabel("test accuracy")


def draw_line(ax, curve, x, colour, strong, log, style):
    """A line with the range of the runs."""
    if None in x or (log and min(x) <= 0):
        return
    width, above, dot = (1.5, 4, 2.5) if strong else (0.7, 2, 1.5)
    ax.plot(x, curve.accuracy, color=colour, linewidth=width, linestyle=style, zorder=above,
            marker="o", markersize=dot)
    if strong and curve.low != curve.high:
        ax.fill_between(x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=1)


def notes_of(results, curves, others, target, lost):
    notes = []
    if others:
        notes.append(f"{len(others)} configurations are drawn without a name; those with "
                     "one are the baseline and those first at the target. The table has all.")
    if lost:
        labels = {cell.name: cell.label for cell in results.cells}
        notes.append("Diverged (the loss was no longer finite), so no line, or fewer runs: "
                     + ", ".join(f"{labels.get(name, name)} ({count})"
                                 for name, count in lost.items()) + ".")
    if not by_bytes(curves):
        notes.append("No run sent anything, or none counted what it sent.")
    elif any(not all(curve.sent) for curve in curves.values()):
        notes.append("Configurations that send nothing, or did not count it, have no place on the "
                     "axis of bytes.")
    notes += rows.noted(("Bytes modelled, not measured, since MPI does not say what its own "
                         "collectives send", [cell.label for cell in modelled(results.cells)]),
                        of=len(results.cells))
    notes += rows.noted(
        ("A run did not test its accuracy at the end of an epoch, so no line",
         [cell.label for cell in results.cells if cell.name not in curves]),
        ("Never at the target", [
            cell.label for cell in results.cells
            if cell.name in curves and learning.reached(cell, target, 0).n == 0]))
    return notes + rows.repetitions(results.cells) + rows.remarks(results.cells)


def build(results):
    curves = {cell.name: learning.curve_of(cell) for cell in results.cells}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        raise NotShown("No run finished an epoch, so none tested its accuracy.")
    target, rule = learning.target_of(results)
    lost = learning.diverged(results)
    named, others = panels.named([cell for cell in results.cells if cell.name in curves],
                                 results.baseline, order_of(target))
    whole = any(row.get("train_s") is None for run in results.runs for row in run.epochs)
    clock = ("since the first step, including the tests of earlier epochs" if whole else
             "within steps, without tests and what lies between steps")
    caption = ("Accuracy on the test samples at the end of each epoch, measured: median over the "
               "runs of a configuration, at their median time and bytes; bands are the range of "
               f"the runs. Target: {target:.4g}, {rule}. A run reaches it at the end of an epoch; "
               "the median over runs counts those that never do as the longest, and its 95% "
               f"interval is over runs. Time is {clock}.")
    return Chart(NAME, TITLE, caption,
                 lambda fig, narrow: draw(fig, narrow, results, curves, named, others, target),
                 table_of(results, target, lost),
                 notes_of(results, curves, others, target, lost))
