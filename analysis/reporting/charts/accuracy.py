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


def plot(ax, curve, x, colour, strong, **more):
    """A line with the range of the runs."""
    if None in x or (ax.get_xscale() == "log" and min(x) <= 0):
        return
    width, above = (1.5, 4) if strong else (0.7, 2)
    ax.plot(x, curve.accuracy, color=colour, linewidth=width, zorder=above, marker="o",
            markersize=2.5 if strong else 1.5, **more)
    if strong and curve.low != curve.high:
        ax.fill_between(x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=1)


class Drawing:
    """Lines over time and, if anything was sent, over bytes."""

    def __init__(self, results, curves, target):
        cells = [cell for cell in results.cells if cell.name in curves]
        self.named, self.others = panels.named(cells, results.baseline, order_of(target))
        self.curves, self.target = curves, target
        self.modelled = {cell.name for cell in modelled(cells)}
        sent = [curve.sent for curve in curves.values() if None not in curve.sent]
        self.by_bytes = any(map(max, sent))
        self.log_bytes = panels.spread([row[-1] for row in sent]) > 10
        self.log_time = panels.spread([curve.seconds[-1] for curve in curves.values()]) > 10

    def __call__(self, fig, narrow):
        entries = [figure.line(rows.label(cell), figure.SERIES[i])
                   for i, cell in enumerate(self.named)]
        if self.others:
            entries.append(figure.line(f"{len(self.others)} others", figure.FAINT, linewidth=0.7))
        if self.by_bytes and self.modelled:
            entries.append(figure.line("bytes modelled", figure.FAINT, linestyle="--"))
        entries.append(figure.line(f"target {self.target:.4g}", figure.INK, linestyle=":"))
        axes = panels.panels(fig, narrow, 1 + self.by_bytes, entries)
        self.plot(axes[0], "seconds", 1, self.log_time)
        axes[0].set_xlabel("time of training (s)")
        axes[0].set_ylabel("test accuracy")
        if self.by_bytes:
            self.plot(axes[1], "sent", 1e-6, self.log_bytes)
            axes[1].set_xlabel("bytes sent by all ranks (MB)")
            if narrow:
                axes[1].set_ylabel("test accuracy")

    def plot(self, ax, column, factor, log):
        curves = [getattr(curve, column) for curve in self.curves.values()]
        everything = [value * factor for values in curves for value in values if value is not None]
        if log:
            panels.log_axis(ax, "x", everything)
        drawn = [(cell, figure.FAINT, False) for cell in self.others]
        drawn += [(cell, figure.SERIES[i], True) for i, cell in enumerate(self.named)]
        for cell, colour, strong in drawn:
            curve = self.curves[cell.name]
            x = [None if value is None else value * factor for value in getattr(curve, column)]
            dashed = column == "sent" and cell.name in self.modelled
            plot(ax, curve, x, colour, strong, label=cell.label, linestyle="--" if dashed else "-")
        if not log:
            ax.set_xlim(0, max(everything) * 1.04)
            panels.few_ticks(ax.xaxis)
        ax.axhline(self.target, color=figure.INK, linestyle=":", linewidth=1)


def notes_of(results, drawing, lost):
    notes = []
    if drawing.others:
        notes.append(f"{len(drawing.others)} configurations are drawn without a name; those with "
                     "one are the baseline and those first at the target. The table has all.")
    if lost:
        labels = {cell.name: cell.label for cell in results.cells}
        notes.append("Diverged (the loss was no longer finite), so no line, or fewer runs: "
                     + ", ".join(f"{labels.get(name, name)} ({count})"
                                 for name, count in lost.items()) + ".")
    if not drawing.by_bytes:
        notes.append("No run sent anything, or none counted what it sent.")
    elif any(not all(curve.sent) for curve in drawing.curves.values()):
        notes.append("Configurations that send nothing, or did not count it, have no place on the "
                     "axis of bytes.")
    notes += rows.noted(("Bytes modelled, not measured, since MPI does not say what its own "
                         "collectives send", [cell.label for cell in modelled(results.cells)]),
                        of=len(results.cells))
    notes += rows.noted(
        ("A run did not test its accuracy at the end of an epoch, so no line",
         [cell.label for cell in results.cells if cell.name not in drawing.curves]),
        ("Never at the target", [cell.label for cell in drawing.named + drawing.others
                                 if learning.reached(cell, drawing.target, 0).n == 0]))
    return notes + rows.repetitions(results.cells) + rows.remarks(results.cells)


def build(results):
    curves = {cell.name: learning.curve_of(cell) for cell in results.cells}
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        raise NotShown("No run finished an epoch, so none tested its accuracy.")
    target, rule = learning.target_of(results)
    lost = learning.diverged(results)
    drawing = Drawing(results, curves, target)
    whole = any(row.get("train_s") is None for run in results.runs for row in run.epochs)
    clock = ("since the first step, including the tests of earlier epochs" if whole else
             "within steps, without tests and what lies between steps")
    caption = ("Accuracy on the test samples at the end of each epoch, measured: median over the "
               "runs of a configuration, at their median time and bytes; bands are the range of "
               f"the runs. Target: {target:.4g}, {rule}. A run reaches it at the end of an epoch; "
               "the median over runs counts those that never do as the longest, and its 95% "
               f"interval is over runs. Time is {clock}.")
    return Chart(NAME, TITLE, caption, drawing, table_of(results, target, lost),
                 notes_of(results, drawing, lost))
