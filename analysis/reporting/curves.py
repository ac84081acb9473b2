"""Curves of learning: a column of epochs.csv over epochs, time of training and bytes sent."""

from collections import namedtuple

from . import figure, learning, panels

# Over the runs of a cell, one entry for each test that all have: medians, and the figure's range.
Curve = namedtuple("Curve", "epochs seconds sent figure low high")
# An axis: attribute of Curve, factor, label.
AXES = [("epochs", 1, "epochs"), ("seconds", 1, "time of training (s)"),
        ("sent", 1e-6, "bytes sent by all ranks (MB)")]


def curve_of(cell, column):
    """The cell's Curve; None if a run has no test."""
    series = [learning.curve(run, column) for run in cell.runs]
    if not series or not all(series):
        return None
    tests = [list(zip(*one)) for one in zip(*series)]  # to the end of the shortest
    columns = list(zip(*tests))
    return Curve(*(list(map(learning.middle, values)) for values in columns),
                 list(map(min, columns[3])), list(map(max, columns[3])))


def curves_of(cells, column):
    """{name of a cell: its Curve}, without those that have none."""
    found = {cell.name: curve_of(cell, column) for cell in cells}
    return {name: curve for name, curve in found.items() if curve}


def by_bytes(curves):
    """Whether anything was sent, and counted."""
    return any(max(curve.sent) for curve in curves.values() if None not in curve.sent)


class Drawing:
    """Lines of `curves`, a panel for each axis that has something. `dashed`: cells whose bytes are
    modelled; `validation`: {name of a cell: its Curve on the validation samples}; `target`: a level to reach, or
    None."""

    def __init__(self, label, curves, named, others, dashed, validation, target):
        self.label, self.curves, self.validation, self.target = label, curves, validation, target
        self.named, self.others, self.dashed = named, others, dashed
        self.axes = [axis for axis in AXES if axis[0] != "sent" or by_bytes(curves)]

    def __call__(self, fig):
        entries = panels.entries(self.named, self.others)
        entries += [figure.line("validation", figure.FAINT, linestyle="-.")] * bool(self.validation)
        if self.target is not None:
            entries.append(figure.line(f"target {self.target:.4g}", figure.INK, linestyle=":"))
        if self.dashed and len(self.axes) == len(AXES):
            entries.append(figure.line("bytes modelled", figure.FAINT, linestyle="--"))
        axes = panels.panels(fig, len(self.axes), entries)
        for ax, (attribute, factor, label) in zip(axes, self.axes):
            self.panel(ax, attribute, factor)
            ax.set_xlabel(label)
            if ax is axes[0]:
                ax.set_ylabel(self.label)
            if self.target is not None:
                ax.axhline(self.target, color=figure.INK, linestyle=":", linewidth=1)

    def panel(self, ax, attribute, factor):
        lines = {name: [None if value is None else value * factor
                        for value in getattr(curve, attribute)]
                 for name, curve in self.curves.items()}
        everything = [value for line in lines.values() for value in line if value is not None]
        log = attribute != "epochs" and panels.spread([line[-1] for line in lines.values()]) > 10
        panels.axis(ax, "x", everything or [1], log, 1.04)
        if not log:
            panels.few_ticks(ax.xaxis)
        for cell, colour, strong in panels.coloured(self.named, self.others):
            style = "--" if attribute == "sent" and cell.name in self.dashed else "-"
            draw_line(ax, self.curves[cell.name], lines[cell.name], colour, strong, log, style)
            if strong and cell.name in self.validation:
                beside = self.validation[cell.name]
                x = [None if value is None else value * factor for value in getattr(beside, attribute)]
                draw_line(ax, beside, x, colour, False, log, "-.")


def draw_line(ax, curve, x, colour, strong, log, style):
    """A line with the range of the runs."""
    if None in x or (log and min(x) <= 0):
        return
    width, above, dot = (1.5, 4, 2.5) if strong else (0.7, 2, 1.5)
    ax.plot(x, curve.figure, color=colour, linewidth=width, linestyle=style, zorder=above,
            marker="o" if style in "--" else "", markersize=dot)
    if strong and curve.low != curve.high:
        ax.fill_between(x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=1)
