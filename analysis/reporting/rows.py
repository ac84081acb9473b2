"""Charts with one row per configuration: selection, labels, axes, units and whiskers.

Labels are left of the rows. All sizes are inches: the chart grows with its rows."""

import math
import re
import textwrap

from . import figure, panels
from .model import Cell

MOST = 25  # rows that a chart shows; its table has all
MOST_NAMES = 8  # in a note
MOST_NOTES = 6  # of one kind
WRAP = 34  # letters in a line of a label
LETTER_IN = 0.068
LINE_IN = 0.15
LEGEND_COLUMNS = 3
CAP = 0.04  # half of a whisker's cap
THICK = 0.17  # of a bar


def chosen(things, baseline=None):
    """(things to draw, notes): the first MOST, always with the baseline. A thing is a cell, or a
    tuple that begins with one."""
    if len(things) <= MOST:
        return list(things), []
    kept = [one for one in things[MOST:] if baseline is not None
            and (one if isinstance(one, Cell) else one[0]) is baseline]
    return things[:MOST - len(kept)] + kept, [
        f"{len(things) - MOST} of {len(things)} configurations are in the table only."]


def label(cell):
    """The cell's label, with a star if its runs have marks."""
    return row_label(cell).replace("\n", " ")


def row_label(cell, verdict=""):
    """The label of a row; what follows the line break is never shortened."""
    behind = " ".join(filter(None, ["(baseline)" if cell.baseline else "", verdict]))
    return ("* " if cell.marks else "") + cell.label + ("\n" + behind if behind else "")


def remarks(cells):
    """The meaning of the stars: one note per mark."""
    marks = dict.fromkeys(mark for cell in cells for mark in cell.marks)
    return [f"* {mark}: {listed([cell.label for cell in cells if mark in cell.marks], len(cells))}."
            for mark in marks]


def listed(labels, of=None):
    """Names in a note: `all` of so many, or the first few and how many more."""
    if len(labels) == of and of > 1:
        return "all"
    more = len(labels) - MOST_NAMES
    return "; ".join(labels[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def noted(*notes, of=None):
    """"TEXT: NAMES." for each (text, names) that has names."""
    return [f"{text}: {listed(labels, of)}." for text, labels in notes if labels]


def modelled_bytes(run):
    """Whether the bytes on the wire are modelled: MPI does not say what its collectives send."""
    return run.info["sources"]["wire_bytes"].startswith("modelled")


def capped(lines):
    """The first notes of one kind, and the number of the others."""
    if len(lines) <= MOST_NOTES:
        return lines
    return lines[:MOST_NOTES] + [f"And {len(lines) - MOST_NOTES} more like these."]


def repetitions(cells):
    """A note on configurations with too few runs for an interval."""
    single = [cell for cell in cells if len(cell.runs) == 1]
    if not single:
        return []
    which = "Each configuration has" if len(single) == len(cells) else \
        f"{len(single)} of {len(cells)} configurations have"
    return [f"{which} a single run: no interval over repetitions, so nothing tells how far another "
            "run would lie from it."]


def unit(values):
    """(factor, name) for seconds, by the largest of them."""
    most = max((abs(value) for value in values if value is not None and math.isfinite(value)),
               default=0.0)
    return (1.0, "s") if most >= 1 else (1e3, "ms") if most >= 1e-3 else (1e6, "us")


def bytes_unit(values):
    """The same for bytes."""
    most = max((value for value in values if value), default=0)
    return next(((1 / size, name) for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
                 if most >= size), (1, "bytes"))


def scaled(value, factor):
    return None if value is None else value * factor


def ends(interval, factor=1.0):
    """[low, high] for a table; None where there is no interval."""
    if interval is None or not known(interval.low) or not known(interval.high):
        return [None, None]
    return [interval.low * factor, interval.high * factor]


def titles(what, unit):
    """The columns of figures()."""
    return [f"{what} ({unit})", f"{what}, 95% from ({unit})", f"{what}, 95% to ({unit})"]


def figures(interval, factor=1.0):
    """[value, low, high] for a table; None where there is none."""
    return [scaled(interval.value if interval else None, factor), *ends(interval, factor)]


class Wrapper(textwrap.TextWrapper):
    """Breaks a label after a space, a comma or the like."""

    wordsep_re = re.compile(r"( +|[^ ,:;+=/]*[,:;+=/]+)")


def broken(text, letters, most=3):
    """Lines of a label, as few as possible and about equally long."""
    lines = Wrapper(letters, max_lines=most, placeholder="...").wrap(text) or [""]
    evenly = (Wrapper(n).wrap(text) for n in range(1, letters))
    return next((shorter for shorter in evenly if 0 < len(shorter) <= len(lines)), lines)


def row_lines(text, letters):
    """Lines of a row_label()."""
    name, _, behind = text.partition("\n")
    if not behind:
        return broken(name, letters)
    together = f"{name} {behind}"
    return [together] if len(together) <= letters else \
        broken(name, letters, 2) + broken(behind, letters, 2)


def known(value):
    return value is not None and math.isfinite(value)


def whisker(ax, y, interval, factor=1.0, colour=figure.INK, within=(-math.inf, math.inf)):
    """The interval as a line with caps over row y; an arrow where it continues beyond the axis."""
    low, high = ends(interval, factor)
    if low is None:
        return
    shown = max(low, within[0]), min(high, within[1])
    ax.plot(shown, [y, y], color=figure.GROUND, linewidth=2.4, zorder=4.9)  # visible on a bar
    ax.plot(shown, [y, y], color=colour, linewidth=1.2, solid_capstyle="butt", zorder=5)
    for end, at, arrow in ((low, shown[0], "<"), (high, shown[1], ">")):
        if end == at:
            ax.plot([end, end], [y - CAP, y + CAP], color=colour, linewidth=1.2, zorder=5)
        else:
            ax.plot([at], [y], linestyle="none", marker=arrow, color=colour, markersize=5,
                    clip_on=False, zorder=5)


def measured(ax, y, value, interval, factor, end):
    """The interval at the end of a bar, not beyond `end` of the axis, and the value behind both."""
    whisker(ax, y, interval, factor, within=(0, end))
    high = ends(interval, factor)[1] or 0.0
    panels.figure_at(ax, min(max(value * factor, high), end), y, f"{value * factor:.3g}")


class Rows:
    """Axes of panels over the same rows, side by side, the first row on top. y is in inches, downwards: the marks of
    row i are at at(i), and bars are THICK."""

    def __init__(self, fig, labels, panels=("",), legend=()):
        self.fig, self.legend, self.columns = fig, list(legend), len(panels)
        self.labels = [row_lines(text, WRAP) for text in labels]
        self.heights = [max(THICK + 0.12, len(lines) * LINE_IN + 0.1) for lines in self.labels]
        self.width = fig.get_size_inches()[0]
        self.title = 0.27 if any(panels) else 0.07
        top = math.ceil(len(self.legend) / LEGEND_COLUMNS) * 0.175
        self.height = top + self.title + sum(self.heights) + 0.5
        fig.set_layout_engine("none")  # the axes are placed here
        fig.set_size_inches(self.width, self.height)
        self.axes = [self.panel(i, name, top) for i, name in enumerate(panels)]
        self.draw_legend()

    def at(self, i):
        """y of the marks of row i."""
        return sum(self.heights[:i]) + self.heights[i] / 2

    def panel(self, i, name, top):
        longest = max(len(line) for lines in self.labels for line in lines)
        left = 0.25 + LETTER_IN * longest
        gap, rest = 0.3, 0.15
        each = (self.width - left - rest - gap * (self.columns - 1)) / self.columns
        height = sum(self.heights)
        ax = self.fig.add_axes([(left + i * (each + gap)) / self.width, 1 - (top + self.title + height) / self.height,
                                each / self.width, height / self.height])
        ax.set_ylim(height, 0)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.spines["bottom"].set_color(figure.GRID)
        ax.grid(axis="x")
        ax.tick_params(axis="x", length=0)
        ax.set_title(name, loc="left")
        if i == 0:
            self.draw_labels(ax, each)
        return ax

    def draw_labels(self, ax, each):
        for i, lines in enumerate(self.labels):
            ax.text(-0.1 / each, self.at(i), "\n".join(lines), transform=ax.get_yaxis_transform(), linespacing=1.0,
                    va="center", ha="right")

    def draw_legend(self):
        if self.legend:
            names, handles = zip(*self.legend)
            self.fig.legend(handles, names, loc="upper left", ncol=LEGEND_COLUMNS,
                            frameon=False, bbox_to_anchor=(0, 1), borderaxespad=0.1,
                            handlelength=1.4, columnspacing=1.2, labelspacing=0.3)

    def absent(self, ax, i):
        """Writes that row i has no figure here, since 0 would be wrong."""
        ax.text(0.02, self.at(i), "absent", transform=ax.get_yaxis_transform(), va="center",
                ha="left", color=figure.FAINT, fontstyle="italic")
